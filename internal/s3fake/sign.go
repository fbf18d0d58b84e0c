package s3fake

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5" // Content-MD5
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	algorithm = "AWS4-HMAC-SHA256"
	stamp     = "20060102T150405Z"
	unsigned  = "UNSIGNED-PAYLOAD"
)

// admit checks the signature of a request, and that its body is what was signed for.
func (s *Service) admit(r *http.Request) *Refusal {
	if r.ContentLength < 0 || len(r.TransferEncoding) > 0 {
		return Refuse(http.StatusLengthRequired, "MissingContentLength", "You must provide the Content-Length HTTP header.")
	}
	sum := r.Header.Get("X-Amz-Content-Sha256")
	if strings.HasPrefix(sum, "STREAMING-") || r.Header.Get("X-Amz-Trailer") != "" || strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
		return Refuse(http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented")
	}
	if refusal := s.authorize(r, sum); refusal != nil {
		return refusal
	}
	return check(r, sum)
}

// check makes the body one that ends in an error unless it is what was signed.
func check(r *http.Request, sum string) *Refusal {
	body := &summed{ReadCloser: r.Body}
	if sum != unsigned {
		want, err := hex.DecodeString(sum)
		if err != nil || len(want) != sha256.Size {
			return Refuse(http.StatusBadRequest, "InvalidArgument", "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, or a valid sha256 value.")
		}
		body.sums = append(body.sums, bodySum{sha256.New(), want, Refuse(http.StatusBadRequest, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was computed.")})
	}
	if v := r.Header.Get("Content-Md5"); v != "" {
		want, err := base64.StdEncoding.DecodeString(v)
		if err != nil || len(want) != md5.Size {
			return Refuse(http.StatusBadRequest, "InvalidDigest", "The Content-MD5 you specified is not valid.")
		}
		body.sums = append(body.sums, bodySum{md5.New(), want, Refuse(http.StatusBadRequest, "BadDigest", "The Content-MD5 you specified did not match what we received.")})
	}
	r.Body = body
	return nil
}

// summed is a body with its digests.
type summed struct {
	io.ReadCloser
	sums []bodySum
}

type bodySum struct {
	hash interface {
		io.Writer
		Sum(b []byte) []byte
	}
	want    []byte
	refusal *Refusal
}

// Read implements io.Reader.
func (b *summed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, sum := range b.sums {
		_, _ = sum.hash.Write(p[:n])
	}
	return n, err
}

// whole reads the body of a request, which must be what was declared.
func whole(r *http.Request) ([]byte, *Refusal) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, "IncompleteBody", "You did not provide the number of bytes specified by the Content-Length HTTP header")
	}
	if b, ok := r.Body.(*summed); ok {
		for _, sum := range b.sums {
			if !bytes.Equal(sum.hash.Sum(nil), sum.want) {
				return nil, sum.refusal
			}
		}
	}
	return body, nil
}

func denied(code, message string) *Refusal { return Refuse(http.StatusForbidden, code, message) }

// authorize checks the Authorization field.
func (s *Service) authorize(r *http.Request, sum string) *Refusal {
	fields, ok := strings.CutPrefix(r.Header.Get("Authorization"), algorithm+" ")
	at, err := time.Parse(stamp, r.Header.Get("X-Amz-Date"))
	if !ok || err != nil || sum == "" {
		return denied("AccessDenied", "Access Denied")
	}
	auth := map[string]string{}
	for field := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		auth[name] = value
	}
	scope := strings.Split(auth["Credential"], "/")
	s.mu.Lock()
	region, known := s.region, s.tokens[r.Header.Get("X-Amz-Security-Token")]
	s.mu.Unlock()
	switch {
	case len(scope) != 5 || scope[3] != "s3" || scope[4] != "aws4_request" || scope[1] != at.Format("20060102"):
		return Refuse(http.StatusBadRequest, "AuthorizationHeaderMalformed", "The authorization header is malformed.")
	case scope[2] != region:
		refusal := Refuse(http.StatusBadRequest, "AuthorizationHeaderMalformed", "The authorization header is malformed; the region '"+scope[2]+"' is wrong; expecting '"+region+"'")
		refusal.Region, refusal.Header = region, http.Header{"X-Amz-Bucket-Region": {region}}
		return refusal
	case scope[0] != AccessKey:
		return denied("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records: "+scope[0])
	case time.Since(at).Abs() > 15*time.Minute:
		return denied("RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	}
	names := strings.Split(auth["SignedHeaders"], ";")
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(names, name) {
			return denied("AccessDenied", "There were headers present in the request which were not signed: "+name)
		}
	}
	if !slices.Contains(names, "host") || auth["Signature"] != signature(r, names, scope, at, sum) {
		return denied("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	if !known {
		return Refuse(http.StatusBadRequest, "ExpiredToken", "The provided token has expired: "+r.Header.Get("X-Amz-Security-Token"))
	}
	return nil
}

// signature is what a request must be signed with.
func signature(r *http.Request, names, scope []string, at time.Time, sum string) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n" + escape(r.URL.Path, true) + "\n")
	q := r.URL.Query()
	var pairs []string
	for name, values := range q {
		for _, value := range values {
			pairs = append(pairs, escape(name, false)+"="+escape(value, false))
		}
	}
	slices.Sort(pairs)
	b.WriteString(strings.Join(pairs, "&") + "\n")
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = r.Header.Get("Content-Length")
		}
		b.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	b.WriteString("\n" + strings.Join(names, ";") + "\n" + sum)
	hashed := sha256.Sum256([]byte(b.String()))
	text := strings.Join([]string{algorithm, at.Format(stamp), strings.Join(scope[1:], "/"), hex.EncodeToString(hashed[:])}, "\n")
	key := []byte("AWS4" + SecretKey)
	for _, word := range append(slices.Clone(scope[1:]), text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(word))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

// escape encodes all but the unreserved characters.
func escape(text string, slashes bool) string {
	text = strings.NewReplacer("+", "%20", "%7E", "~").Replace(url.QueryEscape(text))
	if slashes {
		text = strings.ReplaceAll(text, "%2F", "/")
	}
	return text
}
