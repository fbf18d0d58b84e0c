package integration_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

const twoMirrors = `
	storage_mux mirror {
		writable
		list
		backend a file {$DIR}/a {
			create_root
		}
		backend b file {$DIR}/b {
			create_root
		}
	}`

// version is the body that a writer puts in its nth turn: of any size, and itself in every word.
func version(writer, n int) []byte {
	r := rand.New(rand.NewPCG(uint64(writer), uint64(n)))
	size := r.IntN(3000)
	if n%2 == 0 {
		size = r.IntN(3 << 20)
	}
	body := make([]byte, 8+size)
	for i := 0; i+8 <= len(body); i += 8 {
		binary.BigEndian.PutUint64(body[i:], uint64(n))
	}
	return body
}

// writer puts versions of its own key until Caddy is gone.
type writer struct {
	id    int
	tried int // the newest version that was sent
	acked int // the newest that Caddy has said to hold
}

func (w *writer) key() string { return fmt.Sprintf("dir/w%d", w.id) }

func (w *writer) run(c *rig.Caddy) error {
	for c.Running() {
		w.tried++
		r, err := c.Try(rig.Request{Method: http.MethodPut, Path: "/" + w.key(), Body: bytes.NewReader(version(w.id, w.tried))})
		if err != nil {
			return nil //nolint:nilerr // the process was killed, as it should be
		}
		if r.Status != http.StatusCreated && r.Status != http.StatusNoContent {
			return fmt.Errorf("PUT %d of %s = %d %s", w.tried, w.key(), r.Status, r.Body)
		}
		if missed := r.Header.Get("Storage-Mux-Partial"); missed != "" {
			return fmt.Errorf("PUT %d of %s was missed by %s", w.tried, w.key(), missed)
		}
		w.acked = w.tried
	}
	return nil
}

// check reads what a directory holds: a whole version, none older than the newest that was acknowledged.
func (w *writer) check(dir string) error {
	got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(w.key())))
	if errors.Is(err, fs.ErrNotExist) && w.acked == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if len(got) < 8 {
		return fmt.Errorf("%s is torn: %d bytes", w.key(), len(got))
	}
	n := int(binary.BigEndian.Uint64(got))
	if n < w.acked || n > w.tried {
		return fmt.Errorf("%s is version %d, acknowledged was %d of %d", w.key(), n, w.acked, w.tried)
	}
	if err := rig.Same(got, version(w.id, n)); err != nil {
		return fmt.Errorf("%s, version %d, is torn: %w", w.key(), n, err)
	}
	return nil
}

// Whatever moment a process dies at, no object is torn, no write that was acknowledged is lost on any mirror, and no
// temporary file shows. MUX_LONG=1 does it 200 times.
func TestKilledAtAnyMomentUnderFourWriters(t *testing.T) {
	kills := 10
	if long() {
		kills = 200
	}
	dir := t.TempDir()
	writers := make([]*writer, 4)
	for i := range writers {
		writers[i] = &writer{id: i}
	}
	for kill := range kills {
		c := rig.Start(t, twoMirrors, rig.InDir(dir))
		var wg sync.WaitGroup
		for _, w := range writers {
			wg.Go(func() {
				if err := w.run(c); err != nil {
					t.Error(err)
				}
			})
		}
		<-time.After(time.Duration(rand.IntN(400)) * time.Millisecond)
		c.Kill()
		wg.Wait()
		for _, root := range []string{"a", "b"} {
			for _, w := range writers {
				if err := w.check(filepath.Join(dir, root)); err != nil {
					t.Errorf("kill %d: on %s: %v", kill, root, err)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	c := rig.Start(t, twoMirrors, rig.InDir(dir))
	want := make([]string, 0, len(writers))
	for _, w := range writers {
		want = append(want, w.key())
	}
	if got := keysIn(t, c, "/?list"); !slices.Equal(got, want) {
		t.Errorf("keys after %d kills: %v, want %v", kills, got, want)
	}
	// What the dead left is removed once somebody writes.
	wantStatus(t, "PUT", c.Put("/last", "x"), http.StatusCreated)
	c.Eventually(soon, "nothing left of the dead", func() error {
		for _, root := range []string{"a", "b"} {
			for _, name := range filesBelow(t, filepath.Join(dir, root)) {
				if strings.Contains(name, ".storage_mux-tmp-") {
					return fmt.Errorf("%s holds %s", root, name)
				}
			}
		}
		return nil
	})
	total := 0
	for _, w := range writers {
		total += w.acked
	}
	if total == 0 {
		t.Error("no write was acknowledged")
	}
	t.Logf("%d kills, %d writes acknowledged", kills, total)
}
