package s3store

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const noSuchKey = "NoSuchKey"

// refusal is an answer that is an error.
type refusal struct {
	status  int
	code    string // the service's own word
	message string
	region  string // where the bucket is, if the service says so
	header  http.Header
}

// Error is what the service said.
func (r *refusal) Error() string {
	text := wire.Clip(r.code, 80)
	switch {
	case r.code == "":
		text = strings.ToLower(http.StatusText(r.status))
	case r.message != "":
		text += ": " + wire.Clip(r.message, 300)
	}
	return text
}

// expired tells whether other credentials may help: these have expired, or were taken away.
func (r *refusal) expired() bool {
	switch r.code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidAccessKeyId":
		return true
	}
	return false
}

// read reads what the service says of an error.
func read(ctx context.Context, resp *http.Response) *refusal {
	r := &refusal{status: resp.StatusCode, header: resp.Header, region: regionIn(wire.First(resp.Header, "X-Amz-Bucket-Region"))}
	stop := context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	text, _ := io.ReadAll(io.LimitReader(resp.Body, errorLimit))
	stop()
	wire.Drain(resp)
	r.parse(text)
	return r
}

// parse reads an error document, and tells whether it is one.
func (r *refusal) parse(text []byte) bool {
	var doc struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
		Message string   `xml:"Message"`
		Region  string   `xml:"Region"`
	}
	if wire.UnmarshalXML(text, &doc) != nil {
		return false
	}
	r.code, r.message = strings.TrimSpace(doc.Code), doc.Message // whole: what is cut cannot be redacted any more
	if r.region == "" && (r.code == "AuthorizationHeaderMalformed" || r.code == "InvalidRegion" || r.code == "PermanentRedirect") {
		r.region = regionIn(doc.Region)
	}
	return true
}

// regionIn is the region that a service names, "" if that is none.
func regionIn(text string) string {
	if name := strings.TrimSpace(text); isRegion(name) {
		return name
	}
	return ""
}

// explain asks once more where the answer to a HEAD, which has no body, may mean this or that: credentials that have
// expired, a wrong region. It tells whether the cause has gone meanwhile.
func (r *refusal) explain(ctx context.Context, s *Store, c *call, creds credentials.Value, region string) (gone bool) {
	if r.status != http.StatusBadRequest || c.method != http.MethodHead {
		return false
	}
	plain := call{op: c.op, key: c.key, method: http.MethodGet, header: http.Header{"Range": {"bytes=0-0"}}}
	resp, err := s.send(ctx, &plain, creds, region) //nolint:bodyclose // drained, or read
	if err != nil {
		return false
	}
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		wire.Drain(resp)
		return true
	}
	told := read(ctx, resp) // which may be of another status, and then says more: 403, 301
	if told.region == "" {
		told.region = r.region
	}
	*r = *told
	return false
}

// redact takes out what nobody is to read in a log, should a service repeat it.
func (r *refusal) redact(creds *credentials.Value) {
	for _, secret := range []string{creds.SecretAccessKey, creds.SessionToken, creds.AccessKeyID} {
		if secret != "" {
			for _, text := range []*string{&r.code, &r.message, &r.region} {
				*text = strings.ReplaceAll(*text, secret, "***")
			}
		}
	}
}

// codes of the service that mean something else than their status does.
var codes = map[string]muxcore.Code{
	noSuchKey: muxcore.CodeKeyNotFound, "NoSuchVersion": muxcore.CodeKeyNotFound,
	"KeyTooLongError": muxcore.CodeInvalidKey, "InvalidObjectName": muxcore.CodeInvalidKey, "XMinioInvalidObjectName": muxcore.CodeInvalidKey,
	"EntityTooLarge": muxcore.CodeTooLarge, "MetadataTooLarge": muxcore.CodeTooLarge,
	"ExpiredToken": muxcore.CodeCredentialExpired, "ExpiredTokenException": muxcore.CodeCredentialExpired, "TokenRefreshRequired": muxcore.CodeCredentialExpired,
	"InvalidToken": muxcore.CodeDenied, "AuthorizationHeaderMalformed": muxcore.CodeDenied, "InvalidRegion": muxcore.CodeDenied,
	"PermanentRedirect": muxcore.CodeDenied, "InvalidAccessKeyId": muxcore.CodeDenied, "SignatureDoesNotMatch": muxcore.CodeDenied,
	"ObjectParentIsFile": muxcore.CodeKeyConflict, folderThere: muxcore.CodeKeyConflict,
	"XMinioParentIsObject": muxcore.CodeKeyConflict, "ExistingObjectIsFile": muxcore.CodeKeyConflict,
}

// failures are codes that are the service's, not the request's, although their status says so.
var failures = map[string]bool{
	"NoSuchBucket": true, noSuchUpload: true, "InvalidPart": true, "BadDigest": true, "IncompleteBody": true, "XAmzContentSHA256Mismatch": true,
	"RequestTimeout": true, "SlowDown": true, "SlowDownRead": true, "SlowDownWrite": true, "Throttling": true, "RequestThrottled": true,
	"OperationAborted": true, conditionalConflict: true, "InternalError": true, "InvalidDigest": true, "ServiceUnavailable": true,
}

// refused is the error that an answer means.
func (s *Store) refused(c *call, r *refusal) error {
	e := &muxcore.Error{
		Code: muxcore.CodeUnavailable, Op: c.op, Key: c.key, Status: r.status, Err: s.told(r), RetryAfter: wire.RetryAfter(r.header, s.now),
	}
	if code, ok := codes[r.code]; ok {
		e.Code = code
		return e
	}
	if failures[r.code] {
		if r.status < 500 {
			e.Status = 0
		}
		return e
	}
	switch r.status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
		http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		e.Code = muxcore.CodeDenied
	case http.StatusNotFound:
		e.Status = 0 // the bucket is not there
		if c.key != "" && (c.method == http.MethodGet || c.method == http.MethodHead || c.method == http.MethodDelete) {
			e.Code, e.Status = muxcore.CodeKeyNotFound, r.status
			break
		}
		e.Err = fmt.Errorf("%w: there is no bucket %q at %s, or what answers there is no S3", r, s.place.bucket, s.place.hostIn(s.region.get()))
	case http.StatusPreconditionFailed:
		e.Code = muxcore.CodePreconditionFailed
	case http.StatusMethodNotAllowed:
		if e.Code = muxcore.CodeUnsupported; c.op.Writes() {
			e.Code = muxcore.CodeReadOnly
		}
	case http.StatusRequestEntityTooLarge:
		e.Code = muxcore.CodeTooLarge
	case http.StatusNotImplemented:
		e.Code = muxcore.CodeUnsupported
	}
	if r.status < 400 && e.Code == muxcore.CodeUnavailable {
		e.Status = 0 // nobody asked for what such an answer is about
	}
	return e
}

// told adds to what the service said what can be done about it.
func (s *Store) told(r *refusal) error {
	switch {
	case r.region != "" && r.region != s.region.get():
		return fmt.Errorf("%w: the bucket %q is in the region %q: write region %s", r, s.place.bucket, r.region, r.region)
	case r.code == "NoSuchBucket":
		return fmt.Errorf("%w: there is no bucket %q at %s", r, s.place.bucket, s.place.hostIn(s.region.get()))
	}
	return r
}

// codeOf is the service's own word in err.
func codeOf(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.code
	}
	return ""
}
