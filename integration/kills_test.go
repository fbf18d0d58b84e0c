package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

var killsSize = flag.Int("kills.size", 64<<20, "bytes of the download whose backend is killed ten times")

// A download whose backend is killed ten times at random bytes, each time whichever serves, arrives whole. The two come
// back soon, so that mostly the other one is in its cooldown when the next kill comes.
func TestADownloadOutlivesTenKills(t *testing.T) {
	t.Parallel()
	const kills = 10
	obj := newStormObject("/x", *killsSize, 1)
	f1, f2 := origin.New(t), origin.New(t)
	for _, o := range []*origin.Origin{f1, f2} {
		o.Put("/x", origin.Object{Body: obj.body, ETag: obj.etag})
	}
	c := rig.Start(t, `
		storage_mux failover {
			name kills
			backend f1 http {$F1}
			backend f2 http {$F2}
		}`, rig.Env("F1", f1.URL()), rig.Env("F2", f2.URL()))
	ctx, cancel := context.WithTimeout(t.Context(), 5*rig.AnswerWithin)
	defer cancel()
	resp, err := c.Open(ctx, rig.Request{Path: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	points := make([]int, kills)
	for i := range points {
		points[i] = rand.IntN(len(obj.body) * 7 / 10)
	}
	slices.Sort(points)
	var wg sync.WaitGroup
	defer wg.Wait()
	buf, at, killed, pause, longest := make([]byte, 256<<10), 0, 0, time.Duration(0), time.Duration(0)
	for err == nil {
		for killed < kills && at >= points[killed] {
			victim := f1
			if servingOf(t, c, "kills") == "f2" {
				victim = f2
			}
			victim.Refuse()
			wg.Go(func() {
				<-time.After(50 * time.Millisecond)
				victim.Heal()
			})
			killed++
			longest = max(longest, pause)
			pause = 0
		}
		var n int
		begin := time.Now()
		n, err = resp.Body.Read(buf)
		pause = max(pause, time.Since(begin))
		if wrong := rig.Same(buf[:n], obj.body[at:at+n]); wrong != nil {
			t.Fatalf("at %d: %v", at, wrong)
		}
		at += n
	}
	if !errors.Is(err, io.EOF) || at != len(obj.body) || killed != kills {
		t.Errorf("%d of %d bytes after %d kills: %v", at, len(obj.body), killed, err)
	}
	t.Logf("%d bytes, %d kills, the longest pause was %v", at, killed, max(longest, pause))
}

// servingOf is the backend of a tree that has a body open, or "".
func servingOf(t *testing.T, c *rig.Caddy, tree string) string {
	t.Helper()
	_, body := c.Admin(http.MethodGet, "/storage_mux/"+tree, "")
	var stats struct{ Backends []stormBackend }
	if err := json.Unmarshal([]byte(body), &stats); err != nil {
		t.Fatalf("stats: %v", err)
	}
	for _, b := range stats.Backends {
		if b.InFlight > 0 {
			return b.Name
		}
	}
	return ""
}

// Case 98: after thousands of races, hedges, resumes, uploads and clients that leave, nothing is left of them: no goroutine, no
// connection or other descriptor, no file of the spool.
func TestCase098NothingIsLeftOfRacesCancelsResumesAndUploads(t *testing.T) {
	t.Parallel()
	obj := newStormObject("/x", 300_000, 1)
	var origins []*origin.Origin
	for range 3 {
		o := origin.New(t)
		o.Put("/x", origin.Object{Body: obj.body, ETag: obj.etag})
		origins = append(origins, o)
	}
	config := ""
	for i, mode := range []string{"mirror", "round_robin"} {
		config += fmt.Sprintf("http://:{$PORT%d} {\nstorage_mux %s {\ncooldown 10ms 10ms\n%s\nbackend f1 http {$F1}\nbackend f2 http {$F2}\nbackend f3 http {$F3}\n}\n}\n",
			i+1, mode, []string{"", "hedge 1ms 100%"}[i])
	}
	for i, patience := range []string{"1s", "1m"} {
		config += fmt.Sprintf(`http://:{$PORT%d} {
			storage_mux mirror {
				name spooled%d
				journal off
				writable
				timeout %s
				cooldown 1ms 1ms
				backend m memory {
					timeout 1m
				}
				backend deaf http {$DEAF}
			}
		}
		`, 3+i, i, patience)
	}
	c := rig.Start(t, config, rig.Env("F1", origins[0].URL()), rig.Env("F2", origins[1].URL()), rig.Env("F3", origins[2].URL()), rig.Env("DEAF", deaf(t)))
	round := func(n int) {
		for i, f := range []origin.Faults{{ResetAfter: 150_000}, {Delay: 3 * time.Millisecond}, {}} {
			origins[i].Script(f)
		}
		spread(10, n, func(r *rand.Rand) { leaveEarly(c, fmt.Sprint("PORT", 1+r.IntN(2)), r) })
		spread(4, n/100, func(r *rand.Rand) { uploadEarly(c, "PORT3", r) })
		leaveTheSpoolFull(t, c, "PORT4")
		for _, o := range origins {
			o.Refuse() // and with it what Caddy keeps open for the next request
			o.Heal()
		}
		c.CloseIdle()
	}
	round(200)
	var goroutines, descriptors int
	c.Eventually(soon, "the end of what the first requests began", func() error {
		g, d := c.Goroutines(), c.Descriptors("")
		steady := g == goroutines && d == descriptors
		goroutines, descriptors = g, d
		if !steady {
			return errors.New("still changing")
		}
		return nil
	})
	round(4000)
	spool := filepath.Join(c.Word("XDG_DATA_HOME"), "caddy", "storage_mux", ".spool")
	c.Eventually(soon, "the return to where it began", func() error {
		if g, d := c.Goroutines(), c.Descriptors(""); g > goroutines+4 || d > descriptors+4 {
			return fmt.Errorf("%d goroutines and %d descriptors, it began with %d and %d", g, d, goroutines, descriptors)
		}
		if n := c.Descriptors("/.spool/"); n > 0 {
			return fmt.Errorf("%d files of the spool are open", n)
		}
		if left, err := os.ReadDir(spool); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
			return fmt.Errorf("in the spool: %v, %w", left, err)
		}
		return nil
	})
	t.Logf("%d goroutines and %d descriptors, before %d and %d", c.Goroutines(), c.Descriptors(""), goroutines, descriptors)
}

// leaveTheSpoolFull uploads until the spool has taken to the disk, and leaves.
func leaveTheSpoolFull(t *testing.T, c *rig.Caddy, port string) {
	t.Helper()
	body, feed := io.Pipe()
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://127.0.0.1:"+c.Word(port)+"/spooled", body)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := new(http.Client).Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	chunk := make([]byte, 256<<10)
	for sent := 0; c.Descriptors("/.spool/") == 0; sent += len(chunk) {
		if _, err := feed.Write(chunk); err != nil || sent > 256<<20 {
			t.Errorf("no upload went through the spool's files, so that nothing is known of their end: %d bytes, %v", sent, err)
			break
		}
	}
	leave()
	_ = feed.CloseWithError(context.Canceled)
	<-done
}

// spread does something n times, by so many workers.
func spread(workers, n int, do func(r *rand.Rand)) {
	var wg sync.WaitGroup
	for worker := range workers {
		r := rand.New(rand.NewPCG(uint64(n), uint64(worker)))
		wg.Go(func() {
			for range (n + workers - 1) / workers {
				do(r)
			}
		})
	}
	wg.Wait()
}

// uploadEarly uploads more than may wait in memory for a member that takes nothing, and leaves at some point, or not at all.
func uploadEarly(c *rig.Caddy, port string, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), rig.AnswerWithin)
	defer cancel()
	const size = 20 << 20
	leave := r.Int64N(2 * size)
	body := io.MultiReader(&counted{n: min(leave, size)}, readFunc(func() error {
		if leave < size {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		return io.EOF
	}))
	resp, err := c.Open(ctx, rig.Request{Method: http.MethodPut, Path: fmt.Sprint("/up", r.IntN(8)), Body: body, Length: size, Port: port})
	if err == nil {
		resp.Body.Close()
	}
}

// readFunc is a reader of nothing but an error.
type readFunc func() error

func (f readFunc) Read([]byte) (int, error) { return 0, f() }

// leaveEarly asks for /x and leaves at some point, or not at all.
func leaveEarly(c *rig.Caddy, port string, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), rig.AnswerWithin)
	defer cancel()
	if r.IntN(3) == 0 {
		time.AfterFunc(time.Duration(r.IntN(5000))*time.Microsecond, cancel)
	}
	resp, err := c.Open(ctx, rig.Request{Path: "/x", Port: port})
	if err != nil {
		return
	}
	defer resp.Body.Close()
	part := r.Int64N(600_000)
	_, _ = io.CopyN(io.Discard, resp.Body, part)
}
