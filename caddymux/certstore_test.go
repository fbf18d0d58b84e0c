package caddymux

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// A private key that is to go must not stay because what is below it cannot be listed.
func TestADeleteTakesTheKeyWhereNothingCanBeListed(t *testing.T) {
	f := scripted(t, "unlisted")
	s := newCertStorage(t, "storage_mux {\n name unlisted\n journal off\n backend f scripted unlisted\n}")
	if err := s.Store(t.Context(), "a.key", nil); err != nil {
		t.Fatal(err)
	}
	f.From(muxcore.OpList, 1, storetest.Fail(&muxcore.Error{Code: muxcore.CodeUnavailable}))
	if err := s.Delete(t.Context(), "a.key"); !errors.Is(err, &muxcore.Error{Code: muxcore.CodeUnavailable}) {
		t.Errorf("Delete = %v, want the error of the list", err)
	}
	if _, err := f.Stat(t.Context(), certKey("a.key"), muxcore.Conditions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key is there still: %v", err)
	}
}

func TestADeleteTakesWhatCanBeListed(t *testing.T) {
	f := scripted(t, "half-listed")
	s := newCertStorage(t, "storage_mux sticky_by_key {\n name half\n on_miss next\n journal off\n backend f scripted half-listed\n backend m memory\n}")
	for i := range 16 {
		if err := s.Store(t.Context(), fmt.Sprintf("a/%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	f.From(muxcore.OpList, 1, storetest.Fail(&muxcore.Error{Code: muxcore.CodeUnavailable}))
	if err := s.Delete(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), `backend "f" could not be listed`) {
		t.Errorf("Delete = %v", err)
	}
	f.Mend()
	var left []string
	for e, err := range f.List(t.Context(), muxcore.ListOptions{Prefix: muxcore.InternalPrefix}) {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, e.Key)
	}
	want := f.Keys(muxcore.OpPut)
	slices.Sort(want)
	if diff := cmp.Diff(want, left); diff != "" || len(want) == 0 || len(want) == 16 {
		t.Errorf("left in f (-want +got):\n%s", diff)
	}
	for e, err := range s.list(t.Context(), s.tree, muxcore.ListOptions{Prefix: muxcore.InternalPrefix}) {
		if err == nil && !slices.Contains(want, e.Key) {
			t.Errorf("%s is left", e.Key)
		}
	}
}

// `caddy storage export` asks about each folder of a list, and is wanted most while a backend is away.
func TestAFolderIsKnownWhileABackendIsAway(t *testing.T) {
	f := scripted(t, "away")
	s := newCertStorage(t, "storage_mux mirror {\n name away\n journal off\n backend f scripted away\n backend m memory\n}")
	if err := s.Store(t.Context(), "certificates/local/a.crt", []byte("a")); err != nil {
		t.Fatal(err)
	}
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	for key, terminal := range map[string]bool{"certificates": false, "certificates/local": false, "certificates/local/a.crt": true} {
		if info, err := s.Stat(t.Context(), key); err != nil || info.IsTerminal != terminal || info.Key != key {
			t.Errorf("Stat(%q) = %+v, %v", key, info, err)
		}
	}
	if _, err := s.Stat(t.Context(), "missing"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of what may be on the backend that is away = %v, want the outage", err)
	}
}

// A backend that is not what it should be could have had any amount of memory by one certificate.
func TestAValueIsLoadedUpToALimit(t *testing.T) {
	for name, row := range map[string]struct {
		size  int64
		bytes int
		whole bool
	}{
		"known, and it fits":         {10, 10, true},
		"unknown, and it fits":       {-1, 10, true},
		"known, and too large":       {11, 11, false},
		"unknown, and without end":   {-1, 1 << 20, false},
		"known, and a lie besides":   {5, 1 << 20, false},
		"empty, of unknown length":   {-1, 0, true},
		"one byte more than it fits": {-1, 11, false},
	} {
		body := strings.NewReader(strings.Repeat("x", row.bytes))
		value, err := readValue(&muxcore.Object{Info: muxcore.Info{Size: row.size}, Body: io.NopCloser(body)}, 10)
		if (err == nil) != row.whole || row.whole && len(value) != row.bytes || row.bytes-body.Len() > 11 {
			t.Errorf("%s: %d bytes, %v, after %d were read", name, len(value), err, row.bytes-body.Len())
		}
	}
}
