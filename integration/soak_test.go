package integration_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/internal/svgplot"
)

var (
	soakDuration = flag.Duration("soak.duration", 20*time.Second, "how long Caddy is under load, faults and reloads")
	soakReport   = flag.String("soak.report", "", "the folder to write a report with plots to")
)

const (
	soakClients = 12
	soakWriters = 3
	soakWarm    = 5 * time.Second // before it is measured where things begin
	soakSamples = 200

	// Go keeps what belonged to an HTTP/2 connection for another minute once a reload has ended it, with any handler: a
	// soak that is too short to wait for that is without HTTP/2.
	forgetful = time.Minute
)

// soakSites are those of the storm, and a mirror of three folders that is written to, of which one comes and goes.
var soakSites = stormSites + "http://:{$PORT8} {\n" + mirrorOfFolders + "\n}\n"

// sample is how much Caddy uses at a moment.
type sample struct {
	at                     time.Duration
	heap, rss              float64 // MiB
	goroutines, files      int
	journal, spool         float64 // KiB on disk
	requests, failed, lost int
}

// soak is a storm that lasts, with uploads and reloads.
type soak struct {
	*storm
	begin   time.Time
	samples []sample
	reloads int

	writing sync.WaitGroup
	uploads int // guarded by storm.mu
}

// Whatever a Caddy goes through for hours, at the end it has no more in memory, open and on disk than when it was warm.
func TestSoakLeavesNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	t.Parallel()
	s := &soak{storm: newStorm(t, soakClients), begin: time.Now()}
	s.http1 = *soakDuration < forgetful
	t.Logf("-storm.seed %d -soak.duration %v", s.seed, *soakDuration)
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.c = rig.Start(t, soakSites, append(s.options(), rig.InDir(dir), rig.Level("INFO"))...)
	s.rage(soakWarm, 0, 0)
	before := s.rest(sample{})
	s.profile("heap-warm.pprof")
	s.rage(*soakDuration, 20, 2)
	after := s.rest(before)
	s.profile("heap-end.pprof")
	s.judge(20) // a reload closes connections on which somebody waits
	t.Logf("%d uploads, %d reloads; %+v, began with %+v", s.uploads, s.reloads, after, before)
	for _, name := range []string{"b", "c"} {
		if err := alike(filepath.Join(dir, "a"), filepath.Join(dir, name)); err != nil {
			t.Errorf("the mirror has come apart: %v", err)
		}
	}
	s.report(before, after)
}

// rage is load, faults, uploads and reloads for some time, and until there were enough of them.
func (s *soak) rage(span time.Duration, uploads, reloads int) {
	s.blows()
	for i := range soakWriters {
		s.writing.Go(func() { s.write(i, rand.New(rand.NewPCG(s.seed, uint64(1000+i)))) })
	}
	every := max(span/soakSamples, 250*time.Millisecond)
	enough := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.uploads >= uploads && s.reloads >= reloads
	}
	for end, n := time.Now().Add(span), 0; (time.Now().Before(end) || !enough()) && !s.t.Failed(); n++ {
		s.samples = append(s.samples, s.take())
		switch n % 8 {
		case 1:
			unmount(s.t, s.c, "b")
		case 3:
			mount(s.t, s.c, "b")
		case 5, 7:
			s.reloads++
			if msg := s.c.Load(strings.ReplaceAll(soakSites, "timeout 15s", fmt.Sprintf("timeout %dms", 15_000+s.reloads%5))); msg != "" {
				s.t.Errorf("reloading: %s", msg)
			}
		}
		<-time.After(every)
	}
	if _, err := os.Stat(filepath.Join(s.c.Dir, "b.away")); err == nil {
		mount(s.t, s.c, "b")
	}
	s.calm()
	s.writing.Wait()
}

// write puts, reads and deletes objects of its own, until it is calm: what it has put is what it reads.
func (s *soak) write(who int, r *rand.Rand) {
	site := s.c.On("PORT8")
	for n := 0; s.pause(20 * time.Millisecond); n++ {
		path := fmt.Sprintf("/w%d/k%d", who, r.IntN(10))
		body := newStormObject(path, r.IntN(300_000), n).body
		put, err := site.Try(rig.Request{Method: http.MethodPut, Path: path, Body: bytes.NewReader(body)})
		if err != nil || put.Status >= http.StatusInternalServerError {
			continue // in mid-reload, or with a folder that goes this very moment: nobody was told that it is there
		}
		if put.Status/100 != 2 {
			s.t.Errorf("PUT %s = %d %s", path, put.Status, put.Body)
			return
		}
		s.mu.Lock()
		s.uploads++
		s.mu.Unlock()
		got, err := site.Try(rig.Request{Path: path})
		if err != nil || got.Status >= http.StatusInternalServerError || got.Cause() != nil {
			continue
		}
		if got.Status != http.StatusOK || rig.Same(got.Body, body) != nil {
			s.t.Errorf("GET %s = %d, %v", path, got.Status, rig.Same(got.Body, body))
			return
		}
		if r.IntN(4) == 0 {
			_, _ = site.Try(rig.Request{Method: http.MethodDelete, Path: path})
		}
	}
}

// rest waits until Caddy has come to rest, no higher than before, and tells how it is then.
func (s *soak) rest(before sample) (now sample) {
	s.c.Eventually(soon, "the end of all calls", func() error {
		n := 0
		for _, tree := range stormTrees {
			for _, b := range s.stats(tree).Backends {
				n += b.asked()
			}
		}
		if n > 0 {
			return fmt.Errorf("%d are under way", n)
		}
		return nil
	})
	for _, o := range s.origins {
		o.Refuse() // and with it what Caddy keeps open for the next request
		o.Heal()
	}
	s.c.CloseIdle()
	last, patience := sample{}, 2*soon
	if !s.http1 {
		patience += 2 * forgetful
	}
	s.c.Eventually(patience, "the return to rest", func() error {
		now = s.take()
		steady := now.goroutines == last.goroutines && now.files == last.files
		last = now
		pending := 0
		for _, b := range statsOf(s.t, s.c) {
			pending += b.PendingRepairs
		}
		switch {
		case pending > 0:
			return fmt.Errorf("%d repairs are pending", pending)
		case !steady:
			return errors.New("still changing")
		case now.spool > 0:
			return fmt.Errorf("%.0f KiB are left in the spool", now.spool)
		case now.journal > 2048:
			return fmt.Errorf("the journal has %.0f KiB", now.journal)
		case before.at == 0:
			return nil
		case now.goroutines > before.goroutines+10 || now.files > before.files+10:
			return fmt.Errorf("%d goroutines and %d descriptors, it began with %d and %d", now.goroutines, now.files, before.goroutines, before.files)
		case now.heap > before.heap*1.25+4:
			return fmt.Errorf("%.1f MiB on the heap, it began with %.1f", now.heap, before.heap)
		}
		return nil
	})
	return now
}

// take looks at how much Caddy uses, after a collection.
func (s *soak) take() sample {
	at := time.Since(s.begin)
	now := sample{at: at, goroutines: s.c.Goroutines(), files: s.c.Descriptors("")}
	_, profile := s.c.Admin(http.MethodGet, "/debug/pprof/heap?gc=1&debug=1", "")
	if _, line, ok := strings.Cut(profile, "# HeapAlloc = "); ok {
		_, _ = fmt.Sscan(line, &now.heap)
		now.heap /= 1 << 20
	}
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.c.Pid())); err == nil {
		_, line, _ := strings.Cut(string(text), "VmRSS:")
		_, _ = fmt.Sscan(line, &now.rss)
		now.rss /= 1 << 10
	}
	now.journal = kibOf(filepath.Join(s.c.Dir, "j"))
	now.spool = kibOf(filepath.Join(s.c.Word("XDG_DATA_HOME"), "caddy", "storage_mux", ".spool"))
	s.mu.Lock()
	defer s.mu.Unlock()
	now.requests = s.requests + s.uploads
	for _, n := range s.broken {
		now.failed += n
	}
	now.lost = len(s.wrong)
	return now
}

// profile keeps what the heap is made of, for whoever wonders: go tool pprof -top -diff_base heap-warm.pprof heap-end.pprof.
func (s *soak) profile(name string) {
	if *soakReport == "" {
		return
	}
	_, profile := s.c.Admin(http.MethodGet, "/debug/pprof/heap?gc=1", "")
	if err := errors.Join(os.MkdirAll(*soakReport, 0o755), os.WriteFile(filepath.Join(*soakReport, name), []byte(profile), 0o600)); err != nil {
		s.t.Error(err)
	}
}

// kibOf is the size of the files in a folder.
func kibOf(dir string) (kib float64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // what has gone has no size
		}
		if info, err := e.Info(); err == nil {
			kib += float64(info.Size()) / 1024
		}
		return nil
	})
	return kib
}

// report writes what was seen as a page with plots.
func (s *soak) report(before, after sample) {
	if *soakReport == "" {
		return
	}
	span := s.samples[len(s.samples)-1].at - s.samples[0].at
	step := span.Seconds() / float64(max(1, len(s.samples)-1))
	series := func(name string, of func(sample) float64) svgplot.Series {
		line := svgplot.Series{Name: name}
		for _, one := range s.samples {
			line.Values = append(line.Values, of(one))
		}
		return line
	}
	plots := []struct {
		file string
		svgplot.Plot
	}{
		{"memory.svg", svgplot.Plot{Title: "Memory of Caddy under load, faults and reloads", Y: "MiB", Lines: []svgplot.Series{
			series("resident", func(one sample) float64 { return one.rss }), series("heap after collection", func(one sample) float64 { return one.heap }),
		}}},
		{"counts.svg", svgplot.Plot{Title: "Goroutines and descriptors", Lines: []svgplot.Series{
			series("goroutines", func(one sample) float64 { return float64(one.goroutines) }), series("descriptors", func(one sample) float64 { return float64(one.files) }),
		}}},
		{"disk.svg", svgplot.Plot{Title: "Journal and spool", Y: "KiB", Lines: []svgplot.Series{
			series("journal", func(one sample) float64 { return one.journal }), series("spool", func(one sample) float64 { return one.spool }),
		}}},
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, "# A soak of %v\n\n%d requests, %d uploads and %d reloads; %d answers were not whole, %d were wrong. Seed %d.\n\n",
		*soakDuration, after.requests, s.uploads, s.reloads, after.failed, after.lost, s.seed)
	fmt.Fprintf(&page, "| at rest | heap, MiB | goroutines | descriptors | journal, KiB | spool, KiB |\n|---|---|---|---|---|---|\n")
	for _, row := range []struct {
		name string
		sample
	}{{"warm", before}, {"at the end", after}} {
		fmt.Fprintf(&page, "| %s | %.1f | %d | %d | %.1f | %.1f |\n", row.name, row.heap, row.goroutines, row.files, row.journal, row.spool)
	}
	err := os.MkdirAll(*soakReport, 0o755)
	for i := range plots {
		p := &plots[i]
		p.X, p.Step = "seconds", step
		fmt.Fprintf(&page, "\n![%s](%s)\n", p.Title, p.file)
		err = errors.Join(err, os.WriteFile(filepath.Join(*soakReport, p.file), p.SVG(), 0o600))
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(*soakReport, "soak.md"), page.Bytes(), 0o600)); err != nil {
		s.t.Error(err)
	}
}
