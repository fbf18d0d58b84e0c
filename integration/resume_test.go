package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// outcome is what a broken read may come to.
type outcome int

const (
	wholeBody outcome = iota // the client gets every byte, in spite of the fault
	brokenOff                // the client sees a broken connection
	either                   // one or the other, but never a wrong byte
)

// check reads /x and judges the answer: whatever happened, a clean end means
// every byte of the object and no other.
func (o outcome) check(t *testing.T, c *rig.Caddy, body []byte, header ...string) {
	t.Helper()
	r, err := c.Try(rig.Request{Path: "/x", Header: header})
	if rig.Aborted(r, err) {
		if o == wholeBody {
			t.Errorf("the connection broke after %d of %d bytes: %v %v", len(r.Body), len(body), err, r.Cause())
		}
		if len(r.Body) > len(body) || rig.Same(r.Body, body[:len(r.Body)]) != nil {
			t.Errorf("the bytes before the connection broke are wrong")
		}
		return
	}
	if r.Status != http.StatusOK {
		if o == wholeBody {
			t.Errorf("GET = %d %q, want 200", r.Status, r.Body[:min(len(r.Body), 200)])
		}
		if r.Status < 500 {
			t.Errorf("GET = %d", r.Status)
		}
		return
	}
	if err := rig.Same(r.Body, body); err != nil {
		t.Errorf("a clean 200 with a wrong body: %v", err)
	}
	if o == brokenOff {
		t.Errorf("the answer came whole, want a broken connection")
	}
}

// Rows 43, 45, 46 and 48: the first origin dies in mid-body.
func TestCase043And045And048ReadsOutliveTheirOriginOrBreakOff(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	body := someBytes(size)
	otherTime := origin.Epoch.Add(time.Hour)
	for _, tt := range []struct {
		name   string
		first  origin.Faults
		second origin.Faults
		change func(f1, f2 *origin.Origin)
		want   outcome
	}{
		{"reset at byte 1000", origin.Faults{ResetAfter: 1000}, origin.Faults{}, nil, wholeBody},
		{"reset in the middle", origin.Faults{ResetAfter: size / 2}, origin.Faults{}, nil, wholeBody},
		{"reset before the last byte", origin.Faults{ResetAfter: size - 1}, origin.Faults{}, nil, wholeBody},
		{"orderly end in the middle", origin.Faults{CutAfter: size / 2}, origin.Faults{}, nil, wholeBody},
		{"case 48: silence in the middle", origin.Faults{StallAfter: size / 2}, origin.Faults{}, nil, wholeBody},
		{"chunked, reset in the middle", origin.Faults{ResetAfter: size / 2, Chunked: true}, origin.Faults{}, nil, either},
		{"declares more than it sends", origin.Faults{ShortBy: 100}, origin.Faults{}, nil, either},
		{"both die, the second later", origin.Faults{ResetAfter: size / 2}, origin.Faults{ResetAfter: size / 4}, nil, either},
		{"case 45: the second ignores ranges", origin.Faults{ResetAfter: size / 2}, origin.Faults{IgnoreRange: true}, nil, either},
		{"case 45: the second moves the range", origin.Faults{ResetAfter: size / 2}, origin.Faults{Shift: 100}, nil, brokenOff},
		{"the second declares too much", origin.Faults{ResetAfter: size / 2}, origin.Faults{ShortBy: 100}, nil, either},
		{"the second is gone", origin.Faults{ResetAfter: size / 2}, origin.Faults{}, func(_, f2 *origin.Origin) { f2.Refuse() }, brokenOff},
		{"the second lacks the object", origin.Faults{ResetAfter: size / 2}, origin.Faults{}, func(_, f2 *origin.Origin) { f2.Remove("/x") }, brokenOff},
		{"weak tags", origin.Faults{ResetAfter: size / 2, ETag: origin.ETagWeak}, origin.Faults{ETag: origin.ETagWeak}, nil, brokenOff},
		{"no tags", origin.Faults{ResetAfter: size / 2, ETag: origin.ETagNone}, origin.Faults{ETag: origin.ETagNone}, nil, brokenOff},
		{"changing tags", origin.Faults{ResetAfter: size / 2, ETag: origin.ETagChanging}, origin.Faults{ETag: origin.ETagChanging}, nil, brokenOff},
		{"unquoted equal tags", origin.Faults{ResetAfter: size / 2, ETag: origin.ETagUnquoted}, origin.Faults{ETag: origin.ETagUnquoted}, nil, either},
		{"another tag", origin.Faults{ResetAfter: size / 2}, origin.Faults{}, func(_, f2 *origin.Origin) {
			f2.Put("/x", origin.Object{Body: body, ETag: `"other"`})
		}, brokenOff},
		{"another time", origin.Faults{ResetAfter: size / 2}, origin.Faults{}, func(_, f2 *origin.Origin) {
			f2.Put("/x", origin.Object{Body: body, ModTime: otherTime})
		}, brokenOff},
		{"the same tag over another length", origin.Faults{ResetAfter: size / 2}, origin.Faults{}, func(f1, f2 *origin.Origin) {
			f1.Put("/x", origin.Object{Body: body, ETag: `"same"`})
			f2.Put("/x", origin.Object{Body: append(someBytes(size), 'x'), ETag: `"same"`})
		}, brokenOff},
		{"no time on one side", origin.Faults{ResetAfter: size / 2}, origin.Faults{NoLastModified: true}, nil, wholeBody},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, f1, f2 := twoOrigins(t, body, "timeout 3s\ncooldown 1ms 1ms")
			if tt.change != nil {
				tt.change(f1, f2)
			}
			for range 3 {
				f1.Script(tt.first)
				f2.Script(tt.second)
				<-time.After(10 * time.Millisecond) // the first one's cooldown, or the second would answer from the start
				tt.want.check(t, c, body)
			}
		})
	}
}

func TestASingleOriginThatDiesBreaksTheConnection(t *testing.T) {
	t.Parallel()
	body := someBytes(1 << 20)
	for name, f := range map[string]origin.Faults{
		"reset":             {ResetAfter: 500_000},
		"orderly end":       {CutAfter: 500_000},
		"silence":           {StallAfter: 500_000},
		"chunked reset":     {ResetAfter: 500_000, Chunked: true},
		"chunked orderly":   {CutAfter: 500_000, Chunked: true},
		"chunked silence":   {StallAfter: 500_000, Chunked: true},
		"declares too much": {ShortBy: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f1 := origin.New(t)
			f1.Put("/x", origin.Object{Body: body})
			f1.Script(f)
			c := rig.Start(t, `
				storage_mux {
					timeout 5s
					backend f1 http {$F1}
				}`, rig.Env("F1", f1.URL()))
			brokenOff.check(t, c, body)
		})
	}
}

func TestASlowButSteadyOriginIsNoFailure(t *testing.T) {
	t.Parallel()
	body := someBytes(100_000)
	c, f1, f2 := twoOrigins(t, body, "timeout 5s")
	// The whole takes about three times the timeout, with progress all along.
	f1.Script(origin.Faults{Drip: 2000, DripEvery: 300 * time.Millisecond})
	wholeBody.check(t, c, body)
	if f2.Hits() != 0 {
		t.Error("the second origin was asked")
	}
}

func TestRangesAreResumedAtTheRightOffset(t *testing.T) {
	t.Parallel()
	body := someBytes(1 << 20)
	c, f1, f2 := twoOrigins(t, body, "timeout 3s\ncooldown 1ms 1ms")
	for _, tt := range []struct {
		header   string
		from, to int
	}{
		{"bytes=1000-900000", 1000, 900_001},
		{"bytes=500000-", 500_000, 1 << 20},
		{"bytes=-600000", 1<<20 - 600_000, 1 << 20},
	} {
		f1.Script(origin.Faults{ResetAfter: 200_000})
		f2.Script(origin.Faults{})
		r, err := c.Try(rig.Request{Path: "/x", Header: []string{"Range", tt.header}})
		if rig.Aborted(r, err) {
			t.Errorf("%s broke off: %v %v", tt.header, err, r.Cause())
			continue
		}
		wantBody(t, tt.header, r, http.StatusPartialContent, body[tt.from:tt.to])
	}
}

// Replicas that each had an ETag of their own made a client's resume and If-Match fail: whoever answers, it is the one of the upload.
func TestCase046EveryReplicaHasTheSameValidators(t *testing.T) {
	t.Parallel()
	config := strings.Replace(mirrorOfFolders, "storage_mux", "header >X-Backend {http.storage_mux.backend}\nstorage_mux", 1)
	c := startFolders(t, config)
	body := someBytes(100_000)
	up := c.Put("/x", string(body))
	wantStatus(t, "PUT", up, http.StatusCreated)
	tag, changed := up.Header.Get("ETag"), up.Header.Get("Last-Modified")
	for _, name := range []string{"a", "b", "c"} {
		for _, other := range []string{"a", "b", "c"} {
			if other != name {
				unmount(t, c, other)
			}
		}
		c.Eventually(soon, name+" to answer alone", func() error {
			if r := c.Get("/x"); r.Header.Get("X-Backend") != name {
				return fmt.Errorf("%d by %q", r.Status, r.Header.Get("X-Backend"))
			}
			return nil
		})
		resumed := c.Get("/x", "Range", "bytes=50000-", "If-Range", tag)
		wantBody(t, "the resumed GET from "+name, resumed, http.StatusPartialContent, body[50_000:])
		wantBody(t, "the GET of that version from "+name, c.Get("/x", "If-Match", tag), http.StatusOK, body)
		wantStatus(t, "the GET of another one from "+name, c.Get("/x", "If-None-Match", tag), http.StatusNotModified)
		if h := resumed.Header; h.Get("ETag") != tag || h.Get("Last-Modified") != changed {
			t.Errorf("%s says ETag %s, Last-Modified %s; the upload %s, %s", name, h.Get("ETag"), h.Get("Last-Modified"), tag, changed)
		}
		for _, other := range []string{"a", "b", "c"} {
			if other != name {
				mount(t, c, other)
			}
		}
	}
}

// A client that resumes by itself, with If-Range, never mixes two versions.
func TestCase046AClientsResumeNeverMixesVersions(t *testing.T) {
	t.Parallel()
	body := someBytes(100_000)
	c, f1, f2 := twoOrigins(t, body, "cooldown 1ms 1ms")
	f2.Put("/x", origin.Object{Body: body, ETag: `"replica"`})
	tag := c.Get("/x").Header.Get("ETag")
	if tag != origin.Tag(body) {
		t.Fatalf("ETag = %s", tag)
	}
	f1.Refuse()
	r := c.Get("/x", "Range", "bytes=50000-", "If-Range", tag)
	switch r.Status {
	case http.StatusOK:
		wantBody(t, "the resumed GET", r, http.StatusOK, body)
	case http.StatusPartialContent:
		wantBody(t, "the resumed GET", r, http.StatusPartialContent, body[50_000:])
		if got := r.Header.Get("Content-Range"); got != fmt.Sprintf("bytes 50000-99999/%d", len(body)) {
			t.Errorf("Content-Range = %q", got)
		}
	default:
		t.Errorf("the resumed GET = %d", r.Status)
	}
}

// What a client reads after an abort must not depend on the connection it was on.
func TestABrokenReadLeavesTheNextOneAlone(t *testing.T) {
	t.Parallel()
	body := someBytes(200_000)
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: body})
	c := rig.Start(t, `
		storage_mux {
			cooldown 1ms 1ms
			timeout 20s
			backend f1 http {$F1}
		}`, rig.Env("F1", f1.URL()))
	for range 10 {
		f1.Script(origin.Faults{ResetAfter: 100_000})
		brokenOff.check(t, c, body)
		f1.Heal()
		c.Eventually(soon, "the origin's return", func() error {
			if r := c.Get("/x"); r.Status != http.StatusOK || rig.Same(r.Body, body) != nil {
				return fmt.Errorf("%d with %d bytes", r.Status, len(r.Body))
			}
			return nil
		})
	}
}
