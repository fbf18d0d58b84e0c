package filestore

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func put(tb testing.TB, s muxcore.Store, key, body string, opts muxcore.PutOptions) muxcore.PutResult {
	tb.Helper()
	res, err := s.Put(tb.Context(), key, strings.NewReader(body), int64(len(body)), opts)
	if err != nil {
		tb.Fatalf("Put(%q) = %v", key, err)
	}
	return res
}

func get(tb testing.TB, s muxcore.Store, key string) (string, error) {
	tb.Helper()
	o, err := s.Get(tb.Context(), key, muxcore.GetOptions{})
	if err != nil {
		return "", err
	}
	defer o.Body.Close()
	data, err := io.ReadAll(o.Body)
	return string(data), err
}

func wantBody(tb testing.TB, s muxcore.Store, key, want string) {
	tb.Helper()
	if got, err := get(tb, s, key); got != want || err != nil {
		tb.Errorf("Get(%q) = %q, %v, want %q", key, got, err, want)
	}
}

func wantCode(tb testing.TB, what string, err error, want muxcore.Code) {
	tb.Helper()
	if got := muxcore.CodeOf(err); got != want {
		tb.Errorf("%s = %v (code %q), want %q", what, err, got, want)
	}
}

func stat(tb testing.TB, s muxcore.Store, key string) muxcore.Info {
	tb.Helper()
	info, err := s.Stat(tb.Context(), key, muxcore.Conditions{})
	if err != nil {
		tb.Fatalf("Stat(%q) = %v", key, err)
	}
	return info
}

// write puts a file there as somebody else would.
func write(tb testing.TB, root, name, body string) string {
	tb.Helper()
	path := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// tick waits until the file system's clock has moved on: what is changed after it bears another time than what was changed before.
func tick(tb testing.TB) {
	tb.Helper()
	dir := tb.TempDir()
	at := func() time.Time {
		fi, err := os.Stat(write(tb, dir, "tick", "x"))
		if err != nil {
			tb.Fatal(err)
		}
		return fi.ModTime()
	}
	for before := at(); !at().After(before); {
		<-time.After(time.Millisecond)
	}
}

func keys(tb testing.TB, s muxcore.Store, opts muxcore.ListOptions) string {
	tb.Helper()
	var got []string
	for e, err := range s.List(tb.Context(), opts) {
		if err != nil {
			tb.Errorf("List(%+v) = %v", opts, err)
			break
		}
		got = append(got, e.Key)
	}
	return strings.Join(got, " ")
}

// names are all files below root, whatever they are.
func names(tb testing.TB, root string) []string {
	tb.Helper()
	var got []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(root, path)
			got = append(got, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

// left are the reserved files below root.
func left(tb testing.TB, root string) []string {
	tb.Helper()
	var got []string
	for _, name := range names(tb, root) {
		if strings.Contains(name, muxcore.ReservedPrefix) && name != lockName {
			got = append(got, name)
		}
	}
	return got
}
