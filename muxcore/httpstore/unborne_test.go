package httpstore_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

// A bare 416 to a range that lies within the object was taken for the truth, and reached the client.
func TestA416ThatNothingBearsOutIsLookedInto(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		_, _ = w.Write([]byte("0123456789"))
	}))
	defer srv.Close()
	s, err := httpstore.New(httpstore.Settings{BaseURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		rng  muxcore.Range
		want string
	}{{muxcore.Range{Offset: 2, Length: 3}, "234"}, {muxcore.Range{Offset: -3}, "789"}, {muxcore.Range{Offset: 9}, "9"}} {
		if _, got, err := read(t, s, "k", muxcore.GetOptions{Range: row.rng}); err != nil || got != row.want {
			t.Errorf("Get %+v = %q, %v, want %q", row.rng, got, err, row.want)
		}
	}
	_, _, err = read(t, s, "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 10}})
	if e, ok := errors.AsType[*muxcore.Error](err); !ok || e.Code != muxcore.CodeRangeNotSatisfiable || e.Info == nil || e.Info.Size != 10 {
		t.Errorf("Get past the end = %v, want 416 with the size", err)
	}
}

// A 416 without validators, as nginx has it, does not say whether the conditions hold: they come first.
func TestA416WithoutValidatorsLeavesConditionsOpen(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			w.Header().Set("Content-Range", "bytes */0")
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Last-Modified", at.Format(http.TimeFormat))
	}))})
	for want, conds := range map[muxcore.Code][]muxcore.Conditions{
		muxcore.CodeNotModified:         {{IfModifiedSince: at}, {IfNoneMatch: `"e"`}, {IfNoneMatch: "*"}},
		muxcore.CodePreconditionFailed:  {{IfMatch: `"other"`}, {IfUnmodifiedSince: at.Add(-time.Hour)}},
		muxcore.CodeRangeNotSatisfiable: {{}, {IfMatch: `"e"`}, {IfModifiedSince: at.Add(-time.Hour)}, {IfNoneMatch: `"other"`}},
	} {
		for _, cond := range conds {
			_, _, err := read(t, s, "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 2, Length: 4}, Conditions: cond})
			if muxcore.CodeOf(err) != want {
				t.Errorf("Get under %+v = %v, want %s", cond, err, want)
			}
		}
	}
}
