package bunnystore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/bunnyfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/bunnystore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

// settings are those of a zone of z.
func settings(z *bunnyfake.Zones, zone string) bunnystore.Settings {
	return bunnystore.Settings{Zone: zone, Endpoint: z.URL, AccessKey: bunnyfake.AccessKey}
}

// published are settings with a pull zone.
func published(z *bunnyfake.Zones, zone string) bunnystore.Settings {
	set := settings(z, zone)
	set.PullZone, set.APIKey, set.APIEndpoint = "https://cdn.example/base/", bunnyfake.APIKey, z.URL
	return set
}

// open makes a store of settings.
func open(tb testing.TB, set bunnystore.Settings) *bunnystore.Store {
	tb.Helper()
	return cloudtest.Open(tb, bunnystore.New, set)
}

// suite runs the conformance suite on zones of one endpoint.
func suite(t *testing.T, skip map[string]string, quick []string, make func(testing.TB, bunnystore.Settings) muxcore.Store) {
	t.Helper()
	z := bunnyfake.New(t)
	h := storetest.Harness{TimeResolution: time.Millisecond, Skip: skip, Quick: quick}
	cloudtest.Suite(t, h, func(tb testing.TB, n int64) muxcore.Store {
		name := fmt.Sprintf("zone-%d", n)
		z.AddZone(name)
		return make(tb, settings(z, name))
	})
}

func TestConformance(t *testing.T) {
	suite(t, nil, nil, func(tb testing.TB, set bunnystore.Settings) muxcore.Store { return open(tb, set) })
}

func TestConformanceInAMuxBelowAPrefix(t *testing.T) {
	skip := map[string]string{
		"keys are bytes and come back as they were": "the longest of them has no room beside a prefix",
		"every list is what an oracle says":         "as without a mux, and it costs most of the time",
	}
	suite(t, skip, storetest.Beneath(), func(tb testing.TB, set bunnystore.Settings) muxcore.Store {
		set.Prefix, set.VerifyWrites = "/a b/é/", true
		return cloudtest.InMux(tb, open(tb, set))
	})
}

// put puts a body and says what went wrong.
func put(t *testing.T, s muxcore.Store, key, body string) muxcore.PutResult {
	t.Helper()
	return cloudtest.Put(t, s, key, body, muxcore.PutOptions{})
}

func read(t *testing.T, s muxcore.Store, key string, opts muxcore.GetOptions) (string, error) {
	t.Helper()
	o, err := s.Get(t.Context(), key, opts)
	if err != nil {
		return "", err
	}
	defer o.Body.Close()
	body, err := io.ReadAll(o.Body)
	return string(body), err
}

// A wrong endpoint said 201 and had stored nothing.
func TestAWriteThatWasNotDoneIsFoundOutWhereWritesAreVerified(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	z.Void(true)
	set := settings(z, "zone")
	set.VerifyWrites = true
	_, err := open(t, set).Put(t.Context(), "key", strings.NewReader("body"), 4, muxcore.PutOptions{})
	if muxcore.CodeOf(err) != muxcore.CodeUnavailable || !strings.Contains(err.Error(), "main region") {
		t.Errorf("Put answered 201 without storing = %v, want a failure that names the likely cause", err)
	}
	z.Void(false)
	z.Put("zone", "key", "old!")
	z.Void(true)
	if _, err := open(t, set).Put(t.Context(), "key", strings.NewReader("body"), 4, muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeUnavailable {
		t.Errorf("Put answered 201 that left the old object = %v, want a failure", err)
	}
}

// A wrong region was an unexplained 401.
func TestARefusedKeyNamesTheLikelyCauseAndIsNotShown(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	z.Refuse(true)
	s := open(t, settings(z, "zone"))
	_, err := s.Stat(t.Context(), "key", muxcore.Conditions{})
	if muxcore.Classify(t.Context(), err) != muxcore.ClassDenied || !strings.Contains(err.Error(), "region") || strings.Contains(err.Error(), bunnyfake.AccessKey) {
		t.Errorf("Stat = %v, want denied, with the likely cause and without the key", err)
	}
	if err := s.Probe(t.Context()); muxcore.Classify(t.Context(), err) != muxcore.ClassDenied {
		t.Errorf("Probe = %v, want denied", err)
	}
}

func TestAnETagIsTheSameOnEveryBackendThatKnowsTheDigest(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	s := open(t, settings(z, "zone"))
	m, err := muxcore.New(muxcore.Settings{}, muxcore.Backend{Name: "bunny", Store: s})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	res := put(t, m, "key", "body")
	info, err := s.Stat(t.Context(), "key", muxcore.Conditions{})
	if err != nil || info.ETag != res.ETag {
		t.Errorf("the zone's ETag is %s, %v, the mux said %s", info.ETag, err, res.ETag)
	}
}

func TestNoByteOfAnotherVersionIsGivenOut(t *testing.T) {
	for name, row := range map[string]struct {
		times int
		opts  muxcore.GetOptions
	}{"small": {300, muxcore.GetOptions{}}, "large": {100_000, muxcore.GetOptions{}}, "a part": {300, muxcore.GetOptions{Range: muxcore.Range{Offset: 30, Length: 30}}}} {
		t.Run(name, func(t *testing.T) {
			old, fresh := strings.Repeat("old", row.times), strings.Repeat("new", row.times)
			z := bunnyfake.New(t, "zone")
			s := open(t, settings(z, "zone"))
			z.Put("zone", "key", old)
			times := 0
			z.BeforeGet(func(string) {
				if times++; times == 1 {
					z.Put("zone", "key", fresh)
				}
			})
			o, err := s.Get(t.Context(), "key", row.opts)
			if err != nil {
				t.Fatalf("Get while the object is overwritten = %v", err)
			}
			defer o.Body.Close()
			got, err := io.ReadAll(o.Body)
			if err != nil || string(got) != fresh[o.Offset:o.Offset+o.Length] {
				t.Errorf("%d bytes from %d, %.20q, %v, want those of the new version", len(got), o.Offset, got, err)
			}
			if info, err := s.Stat(t.Context(), "key", muxcore.Conditions{}); err != nil || info.ETag != o.ETag {
				t.Errorf("Get says ETag %s, and the version it gave out has %s, %v", o.ETag, info.ETag, err)
			}
		})
	}
}

// rotten makes a zone's answers to GET differ from what was put.
type rotten struct{ http.RoundTripper }

func (r rotten) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err == nil && req.Method == http.MethodGet {
		body, _ := io.ReadAll(resp.Body)
		body[len(body)/2] ^= 1
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	return resp, err
}

func TestABodyThatIsNotWhatItsChecksumSaysEndsInAnError(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	set := settings(z, "zone")
	set.Transport = rotten{http.DefaultTransport}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	s := open(t, set)
	for _, size := range []int{300_000, 300} {
		z.Put("zone", "key", strings.Repeat("x", size))
		if got, err := read(t, s, "key", muxcore.GetOptions{}); !muxcore.Classify(t.Context(), err).MovesOn() || len(got) == size {
			t.Errorf("a rotten body of %d bytes = %d bytes, %v, want an error before its end", size, len(got), err)
		}
	}
}

func TestPartsAreCutOutWhereRangesAreIgnored(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	z.Whole(true)
	z.Put("zone", "key", "0123456789")
	s := open(t, settings(z, "zone"))
	if got, err := read(t, s, "key", muxcore.GetOptions{Range: muxcore.Range{Offset: 4, Length: 3}}); got != "456" || err != nil {
		t.Errorf("a part = %q, %v, want 456", got, err)
	}
}

func TestAFolderIsNoObjectAndIsNeverDeleted(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	s := open(t, settings(z, "zone"))
	put(t, s, "folder/key", "body")
	if _, err := s.Delete(t.Context(), "folder", muxcore.DeleteOptions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
		t.Errorf("Delete of a folder = %v, want %v", err, muxcore.ErrKeyNotFound)
	}
	if _, err := s.Put(t.Context(), "folder", strings.NewReader("x"), 1, muxcore.PutOptions{}); !errors.Is(err, muxcore.ErrKeyConflict) {
		t.Errorf("Put in place of a folder = %v, want %v", err, muxcore.ErrKeyConflict)
	}
	if got, err := read(t, s, "folder/key", muxcore.GetOptions{}); got != "body" || err != nil {
		t.Errorf("what is in the folder = %q, %v", got, err)
	}
	if _, err := s.Delete(t.Context(), "folder/key", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	put(t, s, "folder", "now an object")
	if got, want := z.Paths("zone"), []string{"folder"}; !slices.Equal(got, want) {
		t.Errorf("after an empty folder was replaced there is %q, want %q", got, want)
	}
}

// What no list shows went with the folder that an object was put in place of.
func TestAFolderWithWhatNoKeyNamesIsInTheWay(t *testing.T) {
	for _, path := range []string{"folder/back\\slash", "folder/.storage_mux-lock", "folder/inner/.storage_mux/x"} {
		z := bunnyfake.New(t, "zone")
		s := open(t, settings(z, "zone"))
		z.Put("zone", path, "somebody's")
		_, err := s.Put(t.Context(), "folder", strings.NewReader("x"), 1, muxcore.PutOptions{})
		if !errors.Is(err, muxcore.ErrKeyConflict) || !slices.Contains(z.Paths("zone"), path) {
			t.Errorf("Put in place of a folder with %q = %v, %q are left; want %v", path, err, z.Paths("zone"), muxcore.ErrKeyConflict)
		}
	}
}

func TestABodyWhoseCodingWouldBeLostIsRefused(t *testing.T) {
	s := open(t, settings(bunnyfake.New(t, "zone"), "zone"))
	opts := muxcore.PutOptions{Attributes: muxcore.Attributes{ContentEncoding: "gzip"}}
	if _, err := s.Put(t.Context(), "key", strings.NewReader("x"), 1, opts); !errors.Is(err, muxcore.ErrUnsupported) {
		t.Errorf("Put of a coded body = %v, want %v", err, muxcore.ErrUnsupported)
	}
}

// A zone gives a type to all: what was put without one came back as application/octet-stream, and without one from all other backends of a mux.
func TestWhatHasNoTypeComesBackWithoutOne(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	s := open(t, settings(z, "zone"))
	for _, row := range []struct{ key, put, want string }{
		{"noext", "", ""},
		{"x.unknownext", "", ""},
		{"octets", "application/octet-stream", "application/octet-stream"},
		{"others", "binary/octet-stream", "binary/octet-stream"},
		{"other-type", `application/octet-stream; type="unknown"; x=y`, `application/octet-stream; type="unknown"; x=y`},
		{"broken", "a; b; c", "a; b; c"},
	} {
		put, err := s.Put(t.Context(), row.key, strings.NewReader("x"), 1, muxcore.PutOptions{Attributes: muxcore.Attributes{ContentType: row.put}})
		if err != nil || put.ContentType != row.want {
			t.Errorf("Put(%q) as %q = %+v, %v", row.key, row.put, put, err)
		}
		info, err := s.Stat(t.Context(), row.key, muxcore.Conditions{})
		if err != nil || info.ContentType != row.want {
			t.Errorf("Stat(%q), put as %q, gives %q, %v; want %q", row.key, row.put, info.ContentType, err, row.want)
		}
		for e, err := range s.List(t.Context(), muxcore.ListOptions{Prefix: row.key, Details: true}) {
			if err != nil || e.ContentType != row.want {
				t.Errorf("List gives %+v, %v; want %q", e, err, row.want)
			}
		}
	}
}

func TestURLsArePurged(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	set := published(z, "zone")
	set.Prefix, set.PurgeOnWrite = "site", true
	s := open(t, set)
	put(t, s, "a b*", "body")
	if err := s.Purge(t.Context(), []string{"c"}); err != nil {
		t.Fatalf("Purge = %v", err)
	}
	if _, err := s.Delete(t.Context(), "a b*", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"https://cdn.example/base/site/a%20b%2A", "https://cdn.example/base/site/c", "https://cdn.example/base/site/a%20b%2A"}
	if got := z.Purged(); !slices.Equal(got, want) {
		t.Errorf("purged %q, want %q", got, want)
	}
	z.Refuse(true)
	if err := s.Purge(t.Context(), []string{"c"}); muxcore.CodeOf(err) != muxcore.CodeCredentialExpired || strings.Contains(err.Error(), bunnyfake.APIKey) {
		t.Errorf("Purge with a key that is refused = %v, want %s, without the key", err, muxcore.CodeCredentialExpired)
	}
}

func TestAFailedPurgeIsToldAndIsNotTheWrites(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	set := published(z, "zone")
	var told []string
	set.APIKey, set.PurgeOnWrite, set.OnPurgeError = "another", true, func(key string, _ error) { told = append(told, key) }
	put(t, open(t, set), "key", "body")
	if want := []string{"key"}; !slices.Equal(told, want) {
		t.Errorf("OnPurgeError was told of %q, want %q", told, want)
	}
}

func TestKeysAreSentEncodedOnce(t *testing.T) {
	z := bunnyfake.New(t, "zone")
	s := open(t, settings(z, "zone"))
	for key, want := range map[string]string{"a b": "a%20b", "a+b": "a%2Bb", "a%2Bb": "a%252Bb", "q?x#y&z": "q%3Fx%23y%26z", "é/😀": "%C3%A9/%F0%9F%98%80"} {
		put(t, s, key, key)
		if line := "PUT /zone/" + want; !slices.Contains(z.Lines(), line) {
			t.Errorf("%q was not sent as %s", key, line)
		}
	}
}

func TestSettingsThatCannotWorkAreNamed(t *testing.T) {
	good := bunnystore.Settings{Zone: "zone", Region: "de", AccessKey: "s3cr3t"}
	for want, change := range map[string]func(*bunnystore.Settings){
		"zone":                 func(set *bunnystore.Settings) { set.Zone = "a/b" },
		"access_key":           func(set *bunnystore.Settings) { set.AccessKey = "" },
		"access_key, api_key":  func(set *bunnystore.Settings) { set.AccessKey = "s3cr3t\n" },
		"region: missing":      func(set *bunnystore.Settings) { set.Region = "" },
		"region: must be":      func(set *bunnystore.Settings) { set.Region = "xx" },
		"endpoint":             func(set *bunnystore.Settings) { set.Endpoint = "https://u:s3cr3t@h" },
		"prefix":               func(set *bunnystore.Settings) { set.Prefix = "a//b" },
		"pull_zone: missing":   func(set *bunnystore.Settings) { set.APIKey = "s3cr3t" },
		"pull_zone: must be":   func(set *bunnystore.Settings) { set.PullZone = "cdn.example" },
		"purge_on_write":       func(set *bunnystore.Settings) { set.PurgeOnWrite = true },
		"endpoint: must be ht": func(set *bunnystore.Settings) { set.Endpoint = "https://h:0" },
		"api_endpoint: must b": func(set *bunnystore.Settings) { set.APIEndpoint = "ftp://h" },
	} {
		set := good
		change(&set)
		_, err := bunnystore.New(set)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("New = %v, want an error that begins with %s and shows no secret", err, want)
		}
	}
}
