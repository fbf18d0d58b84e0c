package integration_test

import (
	"net/http"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// Row 52: without an ETag on some backends, downloads could not be resumed. Each type has one that stays the same, for GET
// and HEAD, and by which a part is given.
func TestCase052EveryBackendHasAValidatorThatStays(t *testing.T) {
	t.Parallel()
	body := someBytes(100_000)
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		if r := s.Put("/v", string(body)); r.Status != http.StatusCreated {
			t.Fatalf("PUT = %d", r.Status)
		}
		tag := s.Get("/v").Header.Get("ETag")
		if len(tag) < 3 || tag[0] != '"' {
			t.Fatalf("ETag = %q, want a strong one", tag)
		}
		for range 2 {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				if r := s.Do(rig.Request{Method: method, Path: "/v"}); r.Header.Get("ETag") != tag || r.Header.Get("Accept-Ranges") != "bytes" {
					t.Errorf("%s: ETag %q, Accept-Ranges %q, want %s and bytes", method, r.Header.Get("ETag"), r.Header.Get("Accept-Ranges"), tag)
				}
			}
			wantBody(t, "the rest", s.Get("/v", "Range", "bytes=50000-", "If-Range", tag), http.StatusPartialContent, body[50_000:])
			wantBody(t, "the rest of another", s.Get("/v", "Range", "bytes=50000-", "If-Range", `"another"`), http.StatusOK, body)
			wantStatus(t, "what the client has", s.Get("/v", "If-None-Match", tag), http.StatusNotModified)
		}
		if r := s.Put("/v", string(body[1:])); r.Status != http.StatusNoContent {
			t.Fatalf("PUT = %d", r.Status)
		}
		if again := s.Get("/v").Header.Get("ETag"); again == tag {
			t.Errorf("the ETag of another version is %s as well", again)
		}
	})
}

// Where an origin gives no strong ETag, none is made up, and what a client has of before is never added to.
func TestCase052WithoutAValidatorPartsAreNeverPutTogether(t *testing.T) {
	t.Parallel()
	body := someBytes(100_000)
	for name, mode := range map[string]origin.ETagMode{"none": origin.ETagNone, "weak": origin.ETagWeak, "another each time": origin.ETagChanging} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, f1, _ := twoOrigins(t, body, "")
			f1.Script(origin.Faults{ETag: mode, NoLastModified: true})
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				tag := c.Do(rig.Request{Method: method, Path: "/x"}).Header.Get("ETag")
				if (mode == origin.ETagNone) != (tag == "") {
					t.Errorf("%s: ETag %q", method, tag)
				}
				if tag == "" {
					tag = origin.Tag(body)
				}
				wantBody(t, "the rest", c.Get("/x", "Range", "bytes=50000-", "If-Range", tag), http.StatusOK, body)
			}
		})
	}
}
