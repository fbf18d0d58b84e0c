package swiftstore_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// large makes a cluster with a static and a dynamic large object of two segments each.
func large(t *testing.T) *swiftfake.Cluster {
	t.Helper()
	c := swiftfake.New(t, "box", "parts")
	for name, body := range map[string]string{"s/1": "hello ", "s/2": "world", "d/1": "other ", "d/2": "world"} {
		c.Put("parts", name, body)
	}
	c.Put("parts", "unrelated", "stays")
	c.PutStatic("box", "static", "parts/s/1", "parts/s/2")
	c.PutDynamic("box", "dynamic", "parts/d/")
	return c
}

func TestLargeObjectsAreReadAsOne(t *testing.T) {
	s := open(t, settings(large(t), "box"))
	for key, want := range map[string]string{"static": "hello world", "dynamic": "other world"} {
		o, err := s.Get(t.Context(), key, muxcore.GetOptions{})
		if err != nil {
			t.Fatalf("Get(%q) = %v", key, err)
		}
		got, err := io.ReadAll(o.Body)
		o.Body.Close()
		if string(got) != want || err != nil || o.Size != int64(len(want)) {
			t.Errorf("Get(%q) = %q of %d bytes, %v, want %q", key, got, o.Size, err, want)
		}
		if o.Digests.MD5 != nil || !muxcore.IsStrong(o.ETag) {
			t.Errorf("Get(%q): ETag %s, MD5 %x: a manifest's ETag is no digest", key, o.ETag, o.Digests.MD5)
		}
		part, err := s.Get(t.Context(), key, muxcore.GetOptions{Range: muxcore.Range{Offset: 4, Length: 4}})
		if err != nil {
			t.Fatalf("Get(%q) of a part over two segments = %v", key, err)
		}
		got, _ = io.ReadAll(part.Body)
		part.Body.Close()
		if string(got) != want[4:8] {
			t.Errorf("Get(%q) of a part over two segments = %q, want %q", key, got, want[4:8])
		}
	}
}

// The ETag of a manifest that says in a way of its own where the segments are was taken for the MD5 of what is read.
func TestAManifestThatCannotBeReadIsNoPlainObject(t *testing.T) {
	c := large(t)
	c.PutDynamic("box", "odd", "parts/%zz")
	s := open(t, settings(c, "box"))
	if info, err := s.Stat(t.Context(), "odd", muxcore.Conditions{}); err != nil || info.Digests.MD5 != nil {
		t.Errorf("Stat = MD5 %x, %v, want none", info.Digests.MD5, err)
	}
	before := c.Names("parts")
	if _, err := s.Delete(t.Context(), "odd", muxcore.DeleteOptions{}); err != nil || !slices.Equal(c.Names("parts"), before) {
		t.Errorf("Delete = %v, and %q are left, want %q", err, c.Names("parts"), before)
	}
}

// The cluster's 409 to a large object with a segment missing ended the read, although others had the object whole.
func TestALargeObjectThatHasLostASegmentIsReadElsewhere(t *testing.T) {
	c := large(t)
	if _, err := open(t, settings(c, "parts")).Delete(t.Context(), "s/1", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, settings(c, "box")).Get(t.Context(), "static", muxcore.GetOptions{})
	if class := muxcore.Classify(t.Context(), err); !class.MovesOn() || class.Counts() {
		t.Errorf("Get = %v is %s, want one that moves on and is no fault of the cluster", err, class)
	}
}

func TestLargeObjectsGoWithTheirSegments(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, s muxcore.Store, key string){
		"when deleted": func(t *testing.T, s muxcore.Store, key string) {
			if _, err := s.Delete(t.Context(), key, muxcore.DeleteOptions{}); err != nil {
				t.Errorf("Delete(%q) = %v", key, err)
			}
		},
		"when replaced": func(t *testing.T, s muxcore.Store, key string) {
			if res := put(t, s, key, "new"); !res.Existed {
				t.Errorf("Put(%q) says that there was nothing", key)
			}
			o, err := s.Get(t.Context(), key, muxcore.GetOptions{})
			if err != nil {
				t.Fatalf("Get(%q) = %v", key, err)
			}
			defer o.Body.Close()
			if got, err := io.ReadAll(o.Body); string(got) != "new" || err != nil {
				t.Errorf("Get(%q) = %q, %v, want the new object", key, got, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := large(t)
			s := open(t, settings(c, "box"))
			write(t, s, "static")
			if got, want := c.Names("parts"), []string{"d/1", "d/2", "unrelated"}; !slices.Equal(got, want) {
				t.Errorf("segments after the static one has gone: %q, want %q", got, want)
			}
			write(t, s, "dynamic")
			if got, want := c.Names("parts"), []string{"unrelated"}; !slices.Equal(got, want) {
				t.Errorf("segments after both have gone: %q, want %q", got, want)
			}
		})
	}
}

func TestSegmentsThatMayBeOtherObjectsAreLeftAlone(t *testing.T) {
	c := swiftfake.New(t, "box")
	c.Put("box", "video-1", "segment or object, who knows")
	c.PutDynamic("box", "video", "box/video")
	c.PutDynamic("box", "everything", "box/")
	s := open(t, settings(c, "box"))
	for _, key := range []string{"video", "everything"} {
		if _, err := s.Delete(t.Context(), key, muxcore.DeleteOptions{}); err != nil {
			t.Errorf("Delete(%q) = %v", key, err)
		}
	}
	if got, want := c.Names("box"), []string{"video-1"}; !slices.Equal(got, want) {
		t.Errorf("after the deletes there is %q, want %q", got, want)
	}
}

func TestASegmentThatIsLeftBehindIsAnError(t *testing.T) {
	c := large(t)
	c.Fail(func(r *http.Request) int {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/parts/d/2") {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	s := open(t, settings(c, "box"))
	if _, err := s.Delete(t.Context(), "dynamic", muxcore.DeleteOptions{}); muxcore.CodeOf(err) != muxcore.CodeUnavailable {
		t.Errorf("Delete that leaves a segment behind = %v, want %s", err, muxcore.CodeUnavailable)
	}
}

// A cluster that does not go by the marker sent the same segments for ever, and one that does not go by the prefix had us delete
// whatever it listed.
func TestAListOfSegmentsThatIsNotWhatWasAskedForDeletesNothing(t *testing.T) {
	for _, ignored := range []string{"marker", "prefix"} {
		c := large(t)
		for i := range 1000 {
			c.Put("parts", fmt.Sprintf("d/%04d", i), "x")
		}
		before := c.Names("parts")
		pages := 0
		set := settings(c, "box")
		set.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if q := r.URL.Query(); q.Has("limit") {
				if pages++; pages > 10 {
					return nil, errors.New("asked on and on")
				}
				q.Del(ignored)
				r.URL.RawQuery = q.Encode()
			}
			return http.DefaultTransport.RoundTrip(r)
		})
		s := open(t, set)
		t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
		if _, err := s.Delete(t.Context(), "dynamic", muxcore.DeleteOptions{}); muxcore.CodeOf(err) != muxcore.CodeUnavailable || pages > 2 {
			t.Errorf("Delete where the %s is ignored = %v after %d pages, want %s after two", ignored, err, pages, muxcore.CodeUnavailable)
		}
		if after := c.Names("parts"); !slices.Equal(after, before) || !slices.Contains(c.Names("box"), "dynamic") {
			t.Errorf("where the %s is ignored, %d of %d segments and others are left", ignored, len(after), len(before))
		}
	}
}
