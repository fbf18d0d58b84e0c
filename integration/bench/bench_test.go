package main

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asBench makes the test binary the bench itself.
const asBench = "BENCH_OF_A_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asBench) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// One that is interrupted, as it takes long, left its folder, of a million names, and a Caddy.
func TestAnInterruptedBenchLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	temp, fake, started := filepath.Join(dir, "tmp"), filepath.Join(dir, "caddy"), filepath.Join(dir, "started")
	if err := errors.Join(os.Mkdir(temp, 0o700), os.WriteFile(fake, []byte("#!/bin/sh\necho $$ > "+started+".new\nmv "+started+".new "+started+"\nexec sleep 600\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	bench := exec.Command(os.Args[0])
	bench.Env = append(os.Environ(), asBench+"=1", "TMPDIR="+temp, "CADDY_BIN="+fake)
	if err := bench.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for deadline := time.Now().Add(time.Minute); pid == 0; <-time.After(10 * time.Millisecond) {
		text, _ := os.ReadFile(started)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		if time.Now().After(deadline) {
			_ = bench.Process.Kill()
			t.Fatal("no Caddy was started")
		}
	}
	if err := bench.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := bench.Wait(); err == nil {
		t.Error("an interrupted bench ended as if all was well")
	}
	if left, err := os.ReadDir(temp); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if syscall.Kill(pid, 0) == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Error("Caddy is still there")
	}
}

func TestTheMedianIsTheMiddle(t *testing.T) {
	rate := func(m measurement) float64 { return m.perSecond }
	for want, values := range map[float64][]measurement{
		2:   {{perSecond: 9}, {perSecond: 1}, {perSecond: 2}},
		2.5: {{perSecond: 9}, {perSecond: 1}, {perSecond: 2}, {perSecond: 3}},
	} {
		if got := median(values, rate); got != want {
			t.Errorf("median(%v) = %v, want %v", values, got, want)
		}
	}
}

func TestTheLoadCountsAnswersAndNoticesWrongOnes(t *testing.T) {
	objects, err := objectsOf([]string{"1KiB"})
	if err != nil {
		t.Fatal(err)
	}
	body := objects[0].body
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	defer srv.Close()
	l := load{addr: srv.Listener.Addr().String(), object: objects[0], conns: 2, span: 50 * time.Millisecond}
	if n, _, err := l.run(); err != nil || n < 2 {
		t.Errorf("run() = %d, %v", n, err)
	}
	l.object.body, l.object.size = []byte("another"), 7
	if _, _, err := l.run(); err == nil {
		t.Error("a wrong body went unnoticed")
	}
}

func TestTheOriginServesItsObjects(t *testing.T) {
	objects, err := objectsOf([]string{"1KiB", "100KiB"})
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, object{name: "zeros", size: 100_000})
	o, err := newOrigin(objects)
	if err != nil {
		t.Fatal(err)
	}
	defer o.stop()
	for _, one := range objects {
		l := load{addr: o.addr(), object: one, conns: 2, span: time.Millisecond}
		if _, _, err := l.run(); err != nil {
			t.Errorf("%s: %v", one.name, err)
		}
	}
	resp, err := http.Get("http://" + o.addr() + "/absent")
	if err == nil {
		resp.Body.Close()
		t.Errorf("what is not there was answered with %s", resp.Status)
	}
}

func TestThePacedLoadTakesTheTimeOfEachAnswer(t *testing.T) {
	objects, err := objectsOf([]string{"1KiB"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(objects[0].body) }))
	defer srv.Close()
	l := load{addr: srv.Listener.Addr().String(), object: objects[0], conns: 2, span: 100 * time.Millisecond}
	times, err := l.paced(200)
	if len(times) != 20 || err != nil || slices.Min(times) <= 0 {
		t.Errorf("%d answers, want 20 (%v): %v", len(times), err, times)
	}
	slices.Sort(times)
	if got := at(times, 0.99); got != times[19] {
		t.Errorf("the 99th percentile is %v, want %v", got, times[19])
	}
}

func TestObjectsShareAFewFiles(t *testing.T) {
	dir := t.TempDir()
	paths, err := fill(dir, object{size: 3}, 2000)
	if len(paths) != 1000 || err != nil {
		t.Fatalf("%d paths, %v", len(paths), err)
	}
	for _, path := range []string{paths[0], paths[999]} {
		if fi, err := os.Stat(filepath.Join(dir, path)); err != nil || fi.Size() != 3 {
			t.Errorf("%s: %v, %v", path, fi, err)
		}
	}
}

func TestNumbersAreShort(t *testing.T) {
	for n, want := range map[int]string{0: "0", 512: "512", 1000: "1k", 1 << 10: "1Ki", 1_000_000: "1M", 1 << 30: "1024Mi"} {
		if got := short(n); got != want {
			t.Errorf("short(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestReadHeaderRefusesWhatItCannotMeasure(t *testing.T) {
	for text, ok := range map[string]bool{
		"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n":          true,
		"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n":   false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n": false,
		"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n":       false,
		"HTTP/1.1 200 OK\r\n":                                   false,
	} {
		if _, err := readHeader(bufio.NewReader(strings.NewReader(text))); (err == nil) != ok {
			t.Errorf("readHeader(%q): %v", text, err)
		}
	}
}

func TestTheTableComparesASiteWithItsPeer(t *testing.T) {
	tab := newTable(object{name: "1KiB"})
	tab.add("file_server", measurement{perSecond: 100, allocs: 10})
	tab.add("storage_mux file", measurement{perSecond: 90, allocs: 12})
	var out strings.Builder
	tab.print(&out)
	if !strings.Contains(out.String(), "0.90 of file_server") || !strings.Contains(out.String(), "12.0") {
		t.Errorf("table:\n%s", out.String())
	}
}

func TestUnknownSizesAreRefused(t *testing.T) {
	if _, err := objectsOf([]string{"2KiB"}); err == nil {
		t.Error("an unknown size was taken")
	}
	if _, err := net.ResolveTCPAddr("tcp", (&caddy{ports: make([]int, 6)}).addr(allSites()[5])); err != nil {
		t.Error(err)
	}
}
