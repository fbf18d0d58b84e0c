package s3store_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

func TestWhatAnAnswerMeans(t *testing.T) {
	service := s3fake.New(t, "bucket")
	s := open(t, settings(service, "bucket"))
	cloudtest.Put(t, s, "key", "body", muxcore.PutOptions{})
	for _, row := range []struct {
		status int
		code   string
		get    muxcore.Class
		put    muxcore.Class
	}{
		{http.StatusForbidden, "AccessDenied", muxcore.ClassDenied, muxcore.ClassDenied},
		{http.StatusForbidden, "InvalidObjectState", muxcore.ClassDenied, muxcore.ClassDenied}, // archived
		{http.StatusForbidden, "RequestTimeTooSkewed", muxcore.ClassDenied, muxcore.ClassDenied},
		{http.StatusBadRequest, "RequestTimeout", muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusBadRequest, "ExpiredToken", muxcore.ClassDenied, muxcore.ClassDenied},
		{http.StatusBadRequest, "InvalidToken", muxcore.ClassDenied, muxcore.ClassDenied},
		{http.StatusBadRequest, "MetadataTooLarge", muxcore.ClassSemantic, muxcore.ClassSemantic},
		{http.StatusBadRequest, "InvalidArgument", muxcore.ClassSemantic, muxcore.ClassSemantic},
		{http.StatusNotFound, "NoSuchBucket", muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusConflict, "OperationAborted", muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusServiceUnavailable, "SlowDown", muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusInternalServerError, "InternalError", muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusTooManyRequests, "TooManyRequests", muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusMovedPermanently, "PermanentRedirect", muxcore.ClassDenied, muxcore.ClassDenied},
		{http.StatusTemporaryRedirect, "TemporaryRedirect", muxcore.ClassDenied, muxcore.ClassDenied},
		{http.StatusNotModified, "", muxcore.ClassTransient, muxcore.ClassTransient},
	} {
		service.Fail(func(r *http.Request) *s3fake.Refusal {
			if r.Method == http.MethodHead {
				return nil
			}
			return s3fake.Refuse(row.status, row.code, "as the test wants it")
		})
		_, err := s.Get(t.Context(), "key", muxcore.GetOptions{})
		if got := muxcore.Classify(t.Context(), err); got != row.get {
			t.Errorf("Get answered %d %s is %s (%v), want %s", row.status, row.code, got, err, row.get)
		}
		_, err = s.Put(t.Context(), "key", strings.NewReader("x"), 1, muxcore.PutOptions{})
		if got := muxcore.Classify(t.Context(), err); got != row.put {
			t.Errorf("Put answered %d %s is %s (%v), want %s", row.status, row.code, got, err, row.put)
		}
	}
}

// An answer of 204, by something in between, was an empty object.
func TestOnlyA200IsAnObject(t *testing.T) {
	for _, status := range []int{http.StatusCreated, http.StatusNonAuthoritativeInfo, http.StatusNoContent} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		s := open(t, s3store.Settings{Bucket: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
		if _, err := s.Get(t.Context(), "key", muxcore.GetOptions{}); muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
			t.Errorf("Get answered %d = %v, want a failure", status, err)
		}
		s.Close()
		server.Close()
	}
}

// S3 hides from those who may not list whether a key is there. That is no 404, and no failure.
func TestWithoutTheRightToListAMissingKeyCouldNotBeAsked(t *testing.T) {
	service := s3fake.New(t, "bucket")
	service.NoList(true)
	s := open(t, settings(service, "bucket"))
	all := cloudtest.Calls(t, s, "key")
	for _, name := range []string{"Get", "Stat", "List"} {
		if err := all[name](); muxcore.CodeOf(err) != muxcore.CodeDenied {
			t.Errorf("%s = %v, want %s", name, err, muxcore.CodeDenied)
		}
	}
	for _, name := range []string{"Put", "Get", "Put", "Delete", "Delete"} {
		if err := all[name](); err != nil {
			t.Errorf("%s = %v, want success", name, err)
		}
	}
	_, err := s.Put(t.Context(), "key", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
	if muxcore.CodeOf(err) != muxcore.CodeDenied {
		t.Errorf("Put with a condition = %v, want %s", err, muxcore.CodeDenied)
	}
}

func TestABucketThatIsNotThereIsAFailureAndNoMiss(t *testing.T) {
	s := open(t, settings(s3fake.New(t), "nowhere"))
	all := cloudtest.Calls(t, s, "key")
	all["Probe"] = func() error { return s.Probe(t.Context()) }
	for name, call := range all {
		err := call()
		if muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
			t.Errorf("%s = %v, want a failure", name, err)
		}
		if name == "Get" && !strings.Contains(fmt.Sprint(err), `no bucket "nowhere"`) {
			t.Errorf("%s = %v, want an error that names the bucket", name, err)
		}
	}
}

// The encoded path was used as the key, and what has a space, a plus or an umlaut was not found.
func TestCase080KeysAreSentEncodedOnce(t *testing.T) {
	service := s3fake.New(t, "bucket")
	set := settings(service, "bucket")
	set.Prefix = "p"
	s := open(t, set)
	for key, want := range map[string]string{
		"a b": "a%20b", "a+b": "a%2Bb", "a%2Bb": "a%252Bb", "q?x#y&z": "q%3Fx%23y%26z", "é/😀": "%C3%A9/%F0%9F%98%80",
	} {
		cloudtest.Put(t, s, key, key, muxcore.PutOptions{})
		if line := "PUT /bucket/p/" + want; !slices.Contains(service.Lines(), line) {
			t.Errorf("%q was not sent as %s", key, line)
		}
	}
	want := []string{"a b", "a%2Bb", "a+b", "q?x#y&z", "é/😀"}
	if keys := listed(t, s, muxcore.ListOptions{}); !slices.Equal(keys, want) {
		t.Errorf("List = %q, want %q", keys, want)
	}
}

// listed are the keys of a list.
func listed(t *testing.T, s muxcore.Store, opts muxcore.ListOptions) (keys []string) {
	t.Helper()
	for e, err := range s.List(t.Context(), opts) {
		if err != nil {
			t.Fatalf("List(%+v) = %v after %d entries", opts, err, len(keys))
		}
		keys = append(keys, e.Key)
	}
	return keys
}

// Only the first thousand entries ever showed.
func TestCase088AListOfManyPagesGivesEachKeyOnce(t *testing.T) {
	service := s3fake.New(t, "bucket")
	const n = 2500
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("k/%04d", i))
		service.Put("bucket", want[i], "x", nil)
	}
	service.Put("bucket", "not//a key", "x", nil)
	service.Put("bucket", "folder/", "", nil)
	s := open(t, settings(service, "bucket"))
	if keys := listed(t, s, muxcore.ListOptions{}); !slices.Equal(keys, want) {
		t.Errorf("List gives %d entries, want the %d keys in order", len(keys), n)
	}
	before := len(service.Lines())
	for delimiter, want := range map[string][]string{
		"k": {"k"}, // by us, which must not read all pages
		"/": {"folder/", "k/", "not/"},
	} {
		if rolled := listed(t, s, muxcore.ListOptions{Delimiter: delimiter}); !slices.Equal(rolled, want) {
			t.Errorf("List with delimiter %q = %q, want %q", delimiter, rolled, want)
		}
	}
	if got := len(service.Lines()) - before; got > 3 {
		t.Errorf("%d requests for two lists of rolled-up entries, want 3 at most", got)
	}
}

// A directory bucket lists in whatever order. Half a list is worse than none.
func TestAListThatIsNotInOrderIsRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>b</Key></Contents><Contents><Key>a</Key></Contents></ListBucketResult>`)
	}))
	defer server.Close()
	s := open(t, s3store.Settings{Bucket: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
	for e, err := range s.List(t.Context(), muxcore.ListOptions{}) {
		if !errors.Is(err, muxcore.ErrUnsupported) {
			t.Errorf("List = %q, %v, want %v", e.Key, err, muxcore.ErrUnsupported)
		}
	}
}

func TestAForeignObjectKeepsItsOwnValidators(t *testing.T) {
	service := s3fake.New(t, "bucket")
	service.Put("bucket", "theirs", "body", http.Header{
		"Content-Type": {"text/plain"}, "X-Amz-Meta-Name": {"=?UTF-8?Q?J=C3=BCrgen?="}, "X-Amz-Meta-Storage-Mux-Etag": {`"old"`}, "X-Amz-Meta-Storage-Mux-Size": {"5"},
	})
	s := open(t, settings(service, "bucket"))
	info, err := s.Stat(t.Context(), "theirs", muxcore.Conditions{})
	if err != nil || info.ETag != `"841a2d689ad86bd1611447453c22c6fc"` || info.ETagStored || info.ModTime.IsZero() || info.Metadata["name"] != "Jürgen" {
		t.Errorf("Stat = %+v, %v, want S3's own ETag, as the identity that is there is one of other bytes", info, err)
	}
	_, err = s.Get(t.Context(), "theirs", muxcore.GetOptions{Conditions: muxcore.Conditions{IfNoneMatch: info.ETag}})
	if !errors.Is(err, muxcore.ErrNotModified) {
		t.Errorf("Get with If-None-Match of it = %v, want %v", err, muxcore.ErrNotModified)
	}
}

// Clients that decompress on their own made lengths and digests wrong.
func TestCase056WhatIsStoredCompressedComesBackCompressed(t *testing.T) {
	s := open(t, settings(s3fake.New(t, "bucket"), "bucket"))
	const body = "\x1f\x8b\x08\x00 not quite gzip"
	cloudtest.Put(t, s, "a.gz", body, muxcore.PutOptions{Attributes: muxcore.Attributes{ContentEncoding: "gzip", ContentType: "text/plain"}})
	o, err := s.Get(t.Context(), "a.gz", muxcore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Body.Close()
	got, err := io.ReadAll(o.Body)
	if err != nil || string(got) != body || o.Size != int64(len(body)) || o.ContentEncoding != "gzip" {
		t.Errorf("Get = %q (%d bytes, %s), %v, want it as it was put", got, o.Size, o.ContentEncoding, err)
	}
}

// Whoever is sent elsewhere must not take a signed request along.
func TestARedirectIsNotFollowed(t *testing.T) {
	var asked atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer other.Close()
	service := s3fake.New(t, "bucket")
	service.Fail(func(*http.Request) *s3fake.Refusal {
		r := s3fake.Refuse(http.StatusTemporaryRedirect, "TemporaryRedirect", "Please re-send this request to the specified temporary endpoint.")
		r.Header = http.Header{"Location": {other.URL}}
		return r
	})
	for name, call := range cloudtest.Calls(t, open(t, settings(service, "bucket")), "key") {
		if err := call(); muxcore.CodeOf(err) != muxcore.CodeDenied {
			t.Errorf("%s = %v, want %s", name, err, muxcore.CodeDenied)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests went where the redirect pointed", n)
	}
}

func TestSettingsThatCannotWorkAreNamed(t *testing.T) {
	good := s3store.Settings{Bucket: "bucket", Endpoint: "https://h.example", AccessKey: "a", SecretKey: "s3cr3t"}
	for want, change := range map[string]func(*s3store.Settings){
		"bucket: missing":    func(set *s3store.Settings) { set.Bucket = "" },
		"bucket: \"a/b\"":    func(set *s3store.Settings) { set.Bucket = "a/b" },
		"endpoint: must hol": func(set *s3store.Settings) { set.Endpoint = "https://u:s3cr3t@h.example" },
		"endpoint: must be ": func(set *s3store.Settings) { set.Endpoint = "ftp://h.example" },
		"endpoint: 99999 is": func(set *s3store.Settings) { set.Endpoint = "h.example:99999" },
		"endpoint: has no h": func(set *s3store.Settings) { set.Endpoint = "https://:443" },
		"endpoint: \"https:": func(set *s3store.Settings) { set.Endpoint = "https://a b" },
		"region":             func(set *s3store.Settings) { set.Region = "a/b" },
		"prefix":             func(set *s3store.Settings) { set.Prefix = "a//b" },
		"access_key":         func(set *s3store.Settings) { set.AccessKey = "" },
		"secret_key":         func(set *s3store.Settings) { set.SecretKey = "" },
		"access_key: missing beside session_token": func(set *s3store.Settings) { set.AccessKey, set.SecretKey, set.SessionToken = "", "", "s3cr3t" },
		"storage_class": func(set *s3store.Settings) { set.StorageClass = "two words" },
		"part_size":     func(set *s3store.Settings) { set.PartSize = 1 << 20 },
		"memory":        func(set *s3store.Settings) { set.Memory = 1 << 20 },
	} {
		set := good
		change(&set)
		_, err := s3store.New(set)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("New = %v, want an error that begins with %s and shows no secret", err, want)
		}
	}
}

// A server that gave the same token again and again made a list without an end.
func TestAListThatGoesRoundInCirclesEnds(t *testing.T) {
	page := `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>%s</ListBucketResult>`
	for name, answer := range map[string]func(token string) string{
		"the same page":   func(string) string { return fmt.Sprintf(page, "t", "<Contents><Key>a</Key></Contents>") },
		"the same token":  func(string) string { return fmt.Sprintf(page, "t", "") },
		"two empty pages": func(token string) string { return fmt.Sprintf(page, map[string]string{"t": "u"}[token]+"t", "") },
	} {
		var asked atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) > 10 {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			fmt.Fprint(w, answer(r.URL.Query().Get("continuation-token")))
		}))
		s := open(t, s3store.Settings{Bucket: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
		var last error
		for _, err := range s.List(t.Context(), muxcore.ListOptions{}) {
			last = err
		}
		if muxcore.Classify(t.Context(), last) != muxcore.ClassTransient || asked.Load() > 10 {
			t.Errorf("List of %s = %v after %d requests, want a failure", name, last, asked.Load())
		}
		s.Close()
		server.Close()
	}
}

// A program that writes other bytes of the same length, and keeps the metadata, kept our identity with them.
func TestAForeignEditOfEqualLengthIsNoticed(t *testing.T) {
	service := s3fake.New(t, "bucket")
	s := open(t, settings(service, "bucket"))
	cloudtest.Put(t, s, "first", "by which it is known what ETags are here", muxcore.PutOptions{})
	cloudtest.Put(t, s, "key", "body", muxcore.PutOptions{ETag: `"ours"`})
	ours := service.Header("bucket", "key")
	for _, row := range []struct {
		body   string
		stored bool
	}{{"body", true}, {"evil", false}} {
		service.Put("bucket", "key", row.body, ours)
		info, err := s.Stat(t.Context(), "key", muxcore.Conditions{})
		if err != nil || info.ETagStored != row.stored || (info.ETag == `"ours"`) != row.stored || (info.Digests.SHA256 != nil) != row.stored {
			t.Errorf("Stat of %q under the metadata of %q = %+v, %v; want our identity: %t", row.body, "body", info, err, row.stored)
		}
	}
}

// Where ETags are no digests, as with some kinds of encryption, they say nothing about bytes.
func TestAnETagThatIsNoDigestSaysNothing(t *testing.T) {
	service := s3fake.New(t, "bucket")
	set := settings(service, "bucket")
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	set.Transport = encrypted{transport}
	s := open(t, set)
	for range 2 {
		cloudtest.Put(t, s, "key", "body", muxcore.PutOptions{ETag: `"ours"`})
	}
	if info, err := s.Stat(t.Context(), "key", muxcore.Conditions{}); err != nil || !info.ETagStored || info.ETag != `"ours"` {
		t.Errorf("Stat = %+v, %v, want our identity", info, err)
	}
}

// encrypted makes ETags what they are with SSE-KMS.
type encrypted struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (e encrypted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.RoundTripper.RoundTrip(r)
	if err == nil && resp.Header.Get("ETag") != "" {
		resp.Header.Set("ETag", `"0123456789abcdef0123456789abcdef"`)
	}
	return resp, err
}

// A HEAD has no body to say why: what a GET says counts, also if its status is another one.
func TestWhatAHEADCannotSayAGETDoes(t *testing.T) {
	service := s3fake.New(t, "bucket")
	s := open(t, settings(service, "bucket"))
	service.Fail(func(r *http.Request) *s3fake.Refusal {
		if r.Method == http.MethodHead {
			return s3fake.Refuse(http.StatusBadRequest, "", "")
		}
		return s3fake.Refuse(http.StatusForbidden, "InvalidAccessKeyId", "The Access Key Id you provided does not exist in our records.")
	})
	_, err := s.Stat(t.Context(), "key", muxcore.Conditions{})
	if muxcore.CodeOf(err) != muxcore.CodeDenied || !strings.Contains(fmt.Sprint(err), "InvalidAccessKeyId") {
		t.Errorf("Stat = %v, want %s and why", err, muxcore.CodeDenied)
	}
}

// A service that is no S3, or has no such bucket, is a failure that says so, whatever was asked and however little it says itself.
func TestAServiceThatIsNoneIsNamed(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	s := open(t, s3store.Settings{Bucket: "bucket", Endpoint: server.URL, AccessKey: "a", SecretKey: "s"})
	calls := map[string]func() error{
		"Get":  func() error { _, err := s.Get(t.Context(), "k", muxcore.GetOptions{}); return err },
		"Stat": func() error { _, err := s.Stat(t.Context(), "k", muxcore.Conditions{}); return err },
		"Put": func() error {
			_, err := s.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{})
			return err
		},
		"Put of a large body": func() error {
			_, err := s.Put(t.Context(), "k", io.LimitReader(strings.NewReader(strings.Repeat("x", 9<<20)), 9<<20), -1, muxcore.PutOptions{})
			return err
		},
		"Delete": func() error { _, err := s.Delete(t.Context(), "k", muxcore.DeleteOptions{}); return err },
		"List": func() error {
			for _, err := range s.List(t.Context(), muxcore.ListOptions{}) {
				return err
			}
			return nil
		},
	}
	for name, call := range calls {
		err := call()
		if muxcore.Classify(t.Context(), err) != muxcore.ClassTransient || !strings.Contains(err.Error(), `no bucket "bucket" at `+strings.TrimPrefix(server.URL, "http://")) {
			t.Errorf("%s = %v, want a failure that names bucket and service", name, err)
		}
	}
}
