package integration_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// long tells whether tests may take minutes: MUX_LONG=1.
func long() bool { return os.Getenv("MUX_LONG") == "1" }

// mirrorOfThree is a mirror of two directories and an origin.
const mirrorOfThree = `
	storage_mux mirror {
		writable
		list
		timeout 2s
		backend a file {$DIR}/a {
			create_root
		}
		backend b file {$DIR}/b {
			create_root
		}
		backend c http {$C}
	}`

// deaf is a server that takes connections and the beginning of what is sent to it, and nothing more.
func deaf(t *testing.T) (url string) {
	t.Helper()
	return accepting(t, func(conn net.Conn) {
		t.Cleanup(func() { _ = conn.Close() })
		go func() { _, _ = io.CopyN(io.Discard, conn, 4<<10) }()
	})
}

// accepting is a server that does with each connection what a test says, until that ends.
func accepting(t *testing.T, take func(conn net.Conn)) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			take(conn)
		}
	}()
	return "http://" + ln.Addr().String()
}

// counted is a body of n bytes of which no two places are alike, made as it is read.
type counted struct{ at, n int64 }

func (c *counted) Read(p []byte) (int, error) {
	if c.at == c.n {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), c.n-c.at)]
	var word [8]byte
	for i := 0; i < len(p); {
		at := c.at + int64(i)
		binary.BigEndian.PutUint64(word[:], uint64(at/8)*0x9E3779B97F4A7C15)
		i += copy(p[i:], word[at%8:])
	}
	c.at += int64(len(p))
	return len(p), nil
}

// memory reads a number of the process's memory, in bytes. ok is false where that cannot be done, or says nothing.
func memory(t *testing.T, c *rig.Caddy, name string) (n int64, ok bool) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getenv("XCADDY_RACE_DETECTOR") == "1" {
		return 0, false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name+":" {
			if n, err = strconv.ParseInt(f[1], 10, 64); err != nil {
				t.Fatal(err)
			}
			return n << 10, true
		}
	}
	t.Fatalf("no %s in %q", name, status)
	return 0, false
}

// wantMemory fails the test if the process has ever taken more than that beside what it took when it was idle.
func wantMemory(t *testing.T, c *rig.Caddy, idle, more int64) {
	t.Helper()
	if peak, ok := memory(t, c, "VmHWM"); ok {
		t.Logf("memory: idle %d MiB, at most %d MiB", idle>>20, peak>>20)
		if peak > idle+more {
			t.Errorf("Caddy took up to %d MiB more than the %d MiB when idle, want at most %d", (peak-idle)>>20, idle>>20, more>>20)
		}
	}
}

// sumOf is the SHA-256 of a file.
func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

func TestAHugeUploadWithOneMirrorHanging(t *testing.T) {
	size := int64(64 << 20)
	if long() {
		size = 400 << 20
	}
	c := rig.Start(t, mirrorOfThree, rig.Env("C", deaf(t)))
	wantStatus(t, "the first PUT", c.Put("/small", "x"), http.StatusCreated)
	idle, _ := memory(t, c, "VmRSS")
	for i, length := range []int64{size, -1} {
		path := fmt.Sprintf("/x%d", i)
		r := c.Do(rig.Request{Method: http.MethodPut, Path: path, Body: &counted{n: size}, Length: length})
		wantStatus(t, "PUT", r, http.StatusCreated)
		if got := r.Header.Get("Storage-Mux-Partial"); got != "c" {
			t.Errorf("missed by %q, want c", got)
		}
		want := sha256.New()
		_, _ = io.Copy(want, &counted{n: size})
		for _, dir := range []string{"a", "b"} {
			if got := sumOf(t, filepath.Join(c.Dir, dir, path)); got != fmt.Sprintf("%x", want.Sum(nil)) {
				t.Errorf("%s holds another body under %s", dir, path)
			}
		}
	}
	wantMemory(t, c, idle, 96<<20)
}

// Row 61: many uploads with a mirror that hangs do not fill the memory, and leave nothing.
func TestCase061ManyUploadsWithOneMirrorHanging(t *testing.T) {
	uploads, size := 40, 4<<20
	if long() {
		uploads, size = 200, 20<<20
	}
	c := rig.Start(t, mirrorOfThree, rig.Env("C", deaf(t)))
	wantStatus(t, "the first PUT", c.Put("/small", "x"), http.StatusCreated)
	idle, _ := memory(t, c, "VmRSS")
	todo := make(chan int, uploads)
	for i := range uploads {
		todo <- i
	}
	close(todo)
	body := someBytes(size)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range todo {
				r, err := c.Try(rig.Request{Method: http.MethodPut, Path: fmt.Sprintf("/x%d", i%10), Body: bytes.NewReader(body)})
				if err != nil || r.Status != http.StatusCreated && r.Status != http.StatusNoContent {
					t.Errorf("PUT = %d, %v", r.Status, err)
				}
			}
		})
	}
	wg.Wait()
	more := int64(96 << 20) // of 160 MiB that were sent
	if raced {
		more *= 2 // it remembers who touched each byte, in as many again
	}
	wantMemory(t, c, idle, more)
	for _, dir := range []string{"a", "b"} {
		for _, name := range filesBelow(t, filepath.Join(c.Dir, dir)) {
			if name != "small" && !strings.HasPrefix(name, "x") {
				t.Errorf("%s holds %s", dir, name)
			}
		}
	}
	spool := filepath.Join(c.Word("XDG_DATA_HOME"), "caddy", "storage_mux", ".spool")
	if fi, err := os.Stat(spool); err == nil {
		if fi.Mode().Perm() != 0o700 {
			t.Errorf("the spool's folder is open to others: %v", fi.Mode())
		}
		if names := filesBelow(t, spool); len(names) > 0 {
			t.Errorf("the spool still has %v", names)
		}
	}
}

// Row 59: an origin that breaks off in the middle of an upload is replaced by the next, which gets the whole body.
func TestCase059ALargeUploadGoesOnElsewhereFromItsFirstByte(t *testing.T) {
	t.Parallel()
	breaking := accepting(t, func(conn net.Conn) {
		verb := make([]byte, 4)
		if _, _ = io.ReadFull(conn, verb); string(verb) == "PUT " {
			_, _ = io.CopyN(io.Discard, conn, 1<<20)
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset
		_ = conn.Close()
	})
	for _, second := range []string{"memory", "file {$DIR}/d {\ncreate_root\n}"} {
		c := rig.Start(t, `
			storage_mux {
				writable
				backend f1 http {$F1}
				backend f2 `+second+`
			}`, rig.Env("F1", breaking))
		for i, length := range []int64{5 << 20, -1} {
			path := fmt.Sprintf("/x%d", i)
			body := someBytes(5 << 20)
			r := c.Do(rig.Request{Method: http.MethodPut, Path: path, Body: bytes.NewReader(body), Length: length})
			wantStatus(t, "PUT", r, http.StatusCreated)
			wantBody(t, "GET", c.Get(path), http.StatusOK, body)
		}
	}
}
