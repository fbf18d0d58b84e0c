package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

const oneDirectory = `
	storage_mux {
		writable
		list
		backend d file {$DIR}/d {
			create_root
		}
	}`

// Row 71: a reader sees one whole version or another, never a mixture.
func TestCase071AReaderSeesWholeVersionsOnly(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		size, reads := 8<<20, 40
		if s.name != "file" { // elsewhere each is a request of its own
			size, reads = 1<<20, 15
		}
		readWhileWritten(t, s.Caddy, size, reads)
	})
}

// readWhileWritten reads an object that is replaced again and again.
func readWhileWritten(t *testing.T, c *rig.Caddy, size, reads int) {
	t.Helper()
	versions := [][]byte{bytes.Repeat([]byte("a"), size), bytes.Repeat([]byte("b"), size)}
	wantStatus(t, "PUT", c.Put("/x", string(versions[0])), http.StatusCreated)
	stop := make(chan struct{})
	written := make(chan error, 1)
	go func() {
		for i := 1; ; i++ {
			r, err := c.Try(rig.Request{Method: http.MethodPut, Path: "/x", Body: bytes.NewReader(versions[i%2])})
			if err == nil && r.Status != http.StatusNoContent {
				err = fmt.Errorf("PUT = %d", r.Status)
			}
			select {
			case <-stop:
				written <- err
				return
			default:
			}
			if err != nil {
				written <- err
				return
			}
		}
	}()
	for range reads {
		r := c.Get("/x")
		if r.Status != http.StatusOK || r.Cause() != nil {
			t.Errorf("GET = %d, %v", r.Status, r.Cause())
			continue
		}
		want := versions[0]
		if len(r.Body) > 0 && r.Body[0] == 'b' {
			want = versions[1]
		}
		if err := rig.Same(r.Body, want); err != nil {
			t.Errorf("a mixed version: %v", err)
		}
	}
	close(stop)
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// slowPut starts a PUT that has sent half its body, and returns the rest of it.
func slowPut(t *testing.T, c *rig.Caddy, path string, size int) (body *io.PipeWriter, done chan rig.Response) {
	t.Helper()
	pr, pw := io.Pipe()
	done = make(chan rig.Response, 1)
	go func() {
		r, _ := c.Try(rig.Request{Method: http.MethodPut, Path: path, Body: pr, Length: int64(size)})
		done <- r
	}()
	if _, err := pw.Write(make([]byte, size/2)); err != nil {
		t.Fatalf("sending half a body: %v", err)
	}
	return pw, done
}

// filesBelow lists the regular files below a folder.
func filesBelow(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// keysIn lists the keys of a site.
func keysIn(t *testing.T, c *rig.Caddy, path string) []string {
	t.Helper()
	r := c.Get(path)
	var page listing
	if err := json.Unmarshal(r.Body, &page); r.Status != http.StatusOK || err != nil {
		t.Fatalf("GET %s = %d %q: %v", path, r.Status, r.Body, err)
	}
	return page.keys()
}

// Row 72: the files of an upload under way are nobody's keys.
func TestCase072TemporaryFilesAreInvisible(t *testing.T) {
	t.Parallel()
	// Elsewhere for TMPDIR: a rename across file systems would fail.
	c := rig.Start(t, oneDirectory, rig.Env("TMPDIR", "/dev/shm"))
	wantStatus(t, "PUT", c.Put("/sub/old", "body"), http.StatusCreated)
	pw, done := slowPut(t, c, "/sub/new", 1<<20)
	var temps []string
	c.Eventually(soon, "the temporary file", func() error {
		temps = nil
		for _, name := range filesBelow(t, filepath.Join(c.Dir, "d")) {
			if name != "sub/old" {
				temps = append(temps, name)
			}
		}
		if len(temps) == 0 {
			return fmt.Errorf("only the old object is there")
		}
		return nil
	})
	if got := fmt.Sprint(keysIn(t, c, "/?list")); got != "[sub/old]" {
		t.Errorf("keys during the upload: %s", got)
	}
	for _, name := range temps {
		if r := c.Get("/" + name); r.Status != http.StatusNotFound && r.Status != http.StatusBadRequest {
			t.Errorf("GET of the temporary file %s = %d, want 404 or 400", name, r.Status)
		}
	}
	wantMissing(t, c, "/sub/new")
	if _, err := pw.Write(make([]byte, 1<<19)); err != nil {
		t.Fatal(err)
	}
	pw.Close()
	wantStatus(t, "the slow PUT", <-done, http.StatusCreated)
	if got := fmt.Sprint(keysIn(t, c, "/?list")); got != "[sub/new sub/old]" {
		t.Errorf("keys after the upload: %s", got)
	}
}

func TestAKilledUploadLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, oneDirectory)
	wantStatus(t, "PUT", c.Put("/sub/old", "body"), http.StatusCreated)
	for _, path := range []string{"/sub/new", "/sub/old"} {
		pw, _ := slowPut(t, c, path, 1<<20)
		defer pw.Close()
	}
	<-time.After(100 * time.Millisecond)
	c.Kill()
	again := rig.Start(t, oneDirectory, rig.InDir(c.Dir))
	wantBody(t, "GET of the old object", again.Get("/sub/old"), http.StatusOK, []byte("body"))
	wantMissing(t, again, "/sub/new")
	if got := fmt.Sprint(keysIn(t, again, "/?list")); got != "[sub/old]" {
		t.Errorf("keys after the restart: %s", got)
	}
}

// A client that hangs up in the middle of its upload.
func TestCase062AClientThatHangsUpPublishesNothing(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("h", 500_000))
		conn.Close()
		<-time.After(200 * time.Millisecond)
		wantMissing(t, s.Caddy, "/x")
		wantStatus(t, "PUT afterwards", s.Put("/x", "whole"), http.StatusCreated)
	})
}

func TestMetadataOutlivesARestart(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, oneDirectory)
	c.Put("/x", "body", "Content-Type", "image/x-odd", "X-Meta-Owner", "somebody")
	before := c.Head("/x")
	c.Stop()
	again := rig.Start(t, oneDirectory, rig.InDir(c.Dir))
	after := again.Head("/x")
	for _, name := range []string{"ETag", "Last-Modified", "Content-Type", "Content-Length", "X-Meta-Owner"} {
		if b, a := before.Header.Get(name), after.Header.Get(name); b != a || b == "" {
			t.Errorf("%s = %q before the restart and %q after it", name, b, a)
		}
	}
	// A file that is changed behind the store's back has another identity.
	writeFile(t, again.Dir, "d/x", []byte("another body"))
	r := again.Get("/x")
	wantBody(t, "GET of the changed file", r, http.StatusOK, []byte("another body"))
	if r.Header.Get("ETag") == before.Header.Get("ETag") {
		t.Error("the changed file has the entity tag of the old object")
	}
}

func TestManyWritersOfOneKeyWithIfNoneMatchAdmitOne(t *testing.T) {
	t.Parallel()
	eachStore(t, conditional(stores(t, "")), func(t *testing.T, s store) {
		if s.origin != nil {
			t.Skip("what many writers of an HTTP origin may do is the origin's word")
		}
		statuses := make(chan int, 24)
		for i := range cap(statuses) {
			go func() {
				r, _ := s.Try(rig.Request{
					Method: http.MethodPut, Path: "/x", Header: []string{"If-None-Match", "*"},
					Body: strings.NewReader(fmt.Sprint("writer ", i)),
				})
				statuses <- r.Status
			}()
		}
		count := make(map[int]int)
		for range cap(statuses) {
			count[<-statuses]++
		}
		if count[201] != 1 || count[412] != cap(statuses)-1 {
			t.Errorf("statuses of 24 writers: %v, want one 201 and 23 times 412", count)
		}
	})
}

// Row 70: copies had lost their type and caching fields. Each member of a mirror gets them with the body.
func TestCase070EveryMemberGetsTheFieldsOfTheObject(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"mirror", "shield"} {
		g := newGroup(t, mode, map[string]string{"mirror": "write_quorum all"}[mode], nil)
		if r := g.Put("/new", "body", fields...); r.Status != http.StatusCreated || r.Header.Get("Storage-Mux-Partial") != "" {
			t.Fatalf("%s: PUT = %d, missed by %q", mode, r.Status, r.Header.Get("Storage-Mux-Partial"))
		}
		for i, o := range g.origins {
			for _, r := range o.Log() {
				if r.Method != http.MethodPut {
					continue
				}
				for f := 0; f < len(fields); f += 2 {
					if got := r.Header.Get(fields[f]); got != fields[f+1] {
						t.Errorf("%s: member %d got %s: %q, want %q", mode, i+1, fields[f], got, fields[f+1])
					}
				}
			}
			if o.Hits(http.MethodPut) != 1 {
				t.Errorf("%s: member %d got %d uploads, want 1", mode, i+1, o.Hits(http.MethodPut))
			}
		}
	}
}
