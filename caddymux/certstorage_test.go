package caddymux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"
	"github.com/google/go-cmp/cmp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// certStorage makes the storage of a Caddyfile option, outside any server.
func certStorage(t testing.TB, ctx caddy.Context, option string) (*certStore, error) {
	t.Helper()
	s := new(CertStorage)
	if err := s.UnmarshalCaddyfile(caddyfile.NewTestDispenser(option)); err != nil {
		return nil, err
	}
	config, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	loaded, err := ctx.LoadModuleByID("caddy.storage.storage_mux", config)
	if err != nil {
		return nil, err
	}
	storage, err := loaded.(caddy.StorageConverter).CertMagicStorage()
	return storage.(*certStore), err
}

func newCertStorage(t testing.TB, option string) *certStore {
	t.Helper()
	s, err := certStorage(t, testContext(t), option)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// trace is what a storage answers to a series of calls, as text.
func trace(ctx context.Context, s certmagic.Storage) []string {
	var lines []string
	say := func(call string, value any, err error) {
		outcome := "ok"
		switch {
		case errors.Is(err, fs.ErrNotExist):
			outcome = "not there"
		case err != nil:
			outcome = "error"
		}
		lines = append(lines, fmt.Sprintf("%s: %v, %s", call, value, outcome))
	}
	stat := func(key string) {
		info, err := s.Stat(ctx, key)
		if !info.IsTerminal {
			info.Size = 0 // that of a folder means nothing
		}
		say("stat "+key, []any{info.Key, info.Size, info.IsTerminal, info.IsTerminal && time.Since(info.Modified) < time.Hour}, err)
	}
	list := func(dir string, recursive bool) {
		keys, err := s.List(ctx, dir, recursive)
		slices.Sort(keys)
		say(fmt.Sprintf("list %q %t", dir, recursive), keys, err)
	}
	load := func(key string) {
		value, err := s.Load(ctx, key)
		say("load "+key, string(value), err)
	}
	say("mkroot", "", s.Store(ctx, "first", nil))
	for _, key := range []string{"a/b/c.crt", "a/b/c.key", "a/d", "ab/c", "z", "a/b/wildcard_.x@y.json", "locks2/x"} {
		say("store "+key, "", s.Store(ctx, key, []byte("value of "+key)))
	}
	say("overwrite", "", s.Store(ctx, "z", []byte("other")))
	for _, key := range []string{"a/b/c.crt", "a/b", "a", "z", "missing", "a/missing", "first", "z/below"} {
		load2 := key != "a/b" && key != "a" && key != "z/below" // the oracle says of these what its file system says
		if load2 {
			load(key)
			stat(key)
		}
		say("exists "+key, s.Exists(ctx, key) && key != "z/below", nil)
	}
	stat("a/b")
	stat("a")
	for _, dir := range []string{"", "a", "a/b", "a/", "ab", "missing", "a/missing", "z"} {
		list(dir, true)
		list(dir, false)
	}
	for _, key := range []string{"a/b", "a/b", "missing", "z", "a/d"} {
		say("delete "+key, "", s.Delete(ctx, key))
		say("exists "+key, s.Exists(ctx, key), nil)
	}
	load("a/b/c.crt")
	load("z")
	say("exists ab", s.Exists(ctx, "ab"), nil)
	return lines
}

// Certmagic's own storage is the oracle for its contract.
func TestTheStorageAnswersAsCertmagicsOwn(t *testing.T) {
	want := trace(t.Context(), &certmagic.FileStorage{Path: t.TempDir()})
	for name, option := range map[string]string{
		"memory":   "storage_mux {\n name cm-%d\n backend m memory\n}",
		"file":     "storage_mux {\n name cf-%d\n backend f file {{dir}}\n}",
		"failover": "storage_mux failover {{dir}} memory: {\n name co-%d\n}",
		"mirror":   "storage_mux mirror {{dir}} memory: {\n name ci-%d\n}",
		"shield":   "storage_mux shield memory: {{dir}} {\n name cs-%d\n}",
		"sticky":   "storage_mux sticky_by_key memory: {{dir}} {\n name cy-%d\n on_miss next\n}",
		"nested":   "storage_mux mirror {\n name cn-%d\n backend a mux failover memory:\n backend b file {{dir}}\n}",
	} {
		t.Run(name, func(t *testing.T) {
			s := newCertStorage(t, strings.NewReplacer("{{dir}}", t.TempDir(), "-%d", "").Replace(option))
			got := trace(t.Context(), s)
			// In an object store folders go with what is in them; certmagic's own leaves "a" behind, empty.
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("the storage:\n%s\ncertmagic's own:\n%s", got[i], want[i])
				}
			}
		})
	}
}

func TestEveryKeyOfCertmagicCanBeKept(t *testing.T) {
	dir := t.TempDir()
	s := newCertStorage(t, "storage_mux mirror {\n name odd-keys\n backend f file "+dir+"\n backend m memory\n}")
	long := strings.Repeat("long.", 60)
	keys := []string{
		"*.example.com", "certificates/*.example.com/*.key", ".storage_mux/x", "nul.example/aux", "locks/x.lock", "locks/deep/x", "per%cent", "bücher.example", "a b", "back\\slash", "x~1", "end.",
		"deep/" + long + "/" + long + ".key", "\x00", "c:x",
	}
	for _, key := range keys {
		if err := s.Store(t.Context(), key, []byte(key)); err != nil {
			t.Errorf("Store(%q) = %v", key, err)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if value, err := s.Load(t.Context(), key); string(value) != key || err != nil {
			t.Errorf("Load(%q) = %q, %v", key, value, err)
		}
		if info, err := s.Stat(t.Context(), key); err != nil || info.Key != key || info.Size != int64(len(key)) || !info.IsTerminal {
			t.Errorf("Stat(%q) = %+v, %v", key, info, err)
		}
		dir, file := filepath.Split(key)
		if got, err := s.List(t.Context(), dir, false); err != nil || !slices.Contains(got, dir+file) {
			t.Errorf("List(%q) = %q, %v lacks %q", dir, got, err, file)
		}
	}
	// Locks are not among the keys.
	if err := s.Lock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	all, err := s.List(t.Context(), "", true)
	var files []string
	for _, key := range all {
		if info, err := s.Stat(t.Context(), key); err != nil {
			t.Errorf("Stat(%q) = %v", key, err)
		} else if info.IsTerminal {
			files = append(files, key)
		}
	}
	slices.Sort(files)
	if diff := cmp.Diff(keys, files); diff != "" || err != nil {
		t.Errorf("all keys, %v (-want +got):\n%s", err, diff)
	}
	if err := s.Delete(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if all, err := s.List(t.Context(), "", true); len(all) > 0 || err != nil {
		t.Errorf("after deleting everything there is %q, %v", all, err)
	}
	if err := s.Unlock(t.Context(), "x"); err != nil {
		t.Errorf("the lock went with the keys: %v", err)
	}
	if err := s.Store(t.Context(), strings.Repeat("x", 2000), nil); !errors.Is(err, muxcore.ErrInvalidKey) {
		t.Errorf("a key of 2000 bytes: %v", err)
	}
	if _, err := s.Load(t.Context(), strings.Repeat("x", 2000)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key that can never be there: %v", err)
	}
}

func TestKeysAndFoldersAreForTheOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	s := newCertStorage(t, "storage_mux {\n name modes\n backend f file "+dir+" {\n  mode 0644\n }\n}")
	if err := s.Store(t.Context(), "certificates/x/x.key", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	if err := s.Lock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := filepath.WalkDir(filepath.Join(dir, ".storage_mux"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		seen++
		return err
	})
	if err != nil || seen < 6 {
		t.Errorf("%d files and folders, %v", seen, err)
	}
	if err := s.Unlock(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}

func TestLoadGivesTheLastStoreAfterAPartialWrite(t *testing.T) {
	f := scripted(t, "cert-partial")
	s := newCertStorage(t, "storage_mux mirror {\n name cert-partial\n cooldown 1ms\n backend f scripted cert-partial\n backend m memory\n}")
	for _, value := range []string{"old", "new"} {
		if err := s.Store(t.Context(), "x", []byte(value)); err != nil {
			t.Fatal(err)
		}
		if err := s.Store(t.Context(), "gone", []byte(value)); err != nil {
			t.Fatal(err)
		}
		f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	}
	if err := s.Delete(t.Context(), "gone"); err != nil {
		t.Error(err)
	}
	f.Mend()
	for range 20 {
		if value, err := s.Load(t.Context(), "x"); string(value) != "new" || err != nil {
			t.Fatalf("Load = %q, %v", value, err)
		}
		if s.Exists(t.Context(), "gone") {
			t.Fatal("what was deleted is back")
		}
		if keys, err := s.List(t.Context(), "", true); !slices.Equal(keys, []string{"x"}) || err != nil {
			t.Fatalf("List = %q, %v", keys, err)
		}
	}
}

func TestAListThatLacksWhatNobodyElseHasIsAnError(t *testing.T) {
	for mode, tolerant := range map[string]bool{"mirror": true, "sticky_by_key": false} {
		script := "cert-list-" + mode
		f := scripted(t, script)
		s := newCertStorage(t, "storage_mux "+mode+" {\n name "+script+"\n on_miss next\n backend f scripted "+script+"\n backend m memory\n}")
		for i := range 8 {
			if err := s.Store(t.Context(), fmt.Sprintf("k%d", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
		keys, err := s.List(t.Context(), "", true)
		if tolerant != (err == nil) || tolerant && len(keys) != 8 {
			t.Errorf("%s: List = %q, %v", mode, keys, err)
		}
		if err != nil && !strings.Contains(err.Error(), `backend "f"`) {
			t.Errorf("%s: the error does not name the backend: %v", mode, err)
		}
	}
}

func TestAnOutageIsNoMissingCertificate(t *testing.T) {
	f := scripted(t, "cert-outage")
	s := newCertStorage(t, "storage_mux {\n name cert-outage\n backend f scripted cert-outage\n}")
	f.Break(&muxcore.Error{Code: muxcore.CodeUnavailable})
	_, load := s.Load(t.Context(), "x")
	_, stat := s.Stat(t.Context(), "x")
	_, list := s.List(t.Context(), "x", true)
	for what, err := range map[string]error{
		"Store": s.Store(t.Context(), "x", nil), "Load": load, "Stat": stat, "List": list, "Delete": s.Delete(t.Context(), "x"),
	} {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s = %v", what, err)
		}
	}
}

func TestALockOutlivesTheConfigThatTookIt(t *testing.T) {
	ctx, cancel := caddy.NewContext(testContext(t))
	s, err := certStorage(t, ctx, "storage_mux {\n name outlives\n backend m memory\n}")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Lock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.TryLock(t.Context(), "x"); ok || err != nil {
		t.Errorf("TryLock = %t, %v", ok, err)
	}
	if err := s.RenewLockLease(t.Context(), "x", time.Hour); err != nil {
		t.Errorf("RenewLockLease = %v", err)
	}
	cancel()
	if err := s.Store(t.Context(), "x", nil); err != nil {
		t.Errorf("Store of the one with the lock, after the end = %v", err)
	}
	if err := s.Unlock(t.Context(), "x"); err != nil {
		t.Errorf("Unlock after the end = %v", err)
	}
	if err := s.Store(t.Context(), "x", nil); !errors.Is(err, errUnloaded) {
		t.Errorf("Store after all = %v", err)
	}
	for what, err := range map[string]error{"Unlock": s.Unlock(t.Context(), "x"), "RenewLockLease": s.RenewLockLease(t.Context(), "x", time.Hour)} {
		if err == nil || !strings.Contains(err.Error(), "not held") {
			t.Errorf("%s of what is not held = %v", what, err)
		}
	}
	if newest("outlives") != nil {
		t.Error("the tree is still there")
	}
}

func TestLocksLiveOnOneBackend(t *testing.T) {
	for _, test := range []struct{ name, option, want string }{
		{"the first that can", "storage_mux mirror {\n name lk1\n backend a scripted {{script}}\n backend b memory {\n  read_only\n }\n backend c memory\n backend d memory\n}", "c"},
		{"the one with the option", "storage_mux mirror {\n name lk2\n backend a memory\n backend b memory {\n  locks\n }\n}", "b"},
		{"inside a nested mux", "storage_mux mirror {\n name lk3\n backend a mux failover {\n  backend x scripted {{script}}\n  backend y memory\n }\n backend b memory\n}", "a.y"},
	} {
		t.Run(test.name, func(t *testing.T) {
			script := strings.ReplaceAll(test.name, " ", "-")
			f := scripted(t, script)
			f.SetCapabilities(muxcore.Capabilities{Write: true, List: true, ConditionalWrite: true, Metadata: true, Range: true})
			s := newCertStorage(t, strings.ReplaceAll(test.option, "{{script}}", script))
			if got := s.tree.locks.place.name; got != test.want {
				t.Errorf("locks live on %q, want %q", got, test.want)
			}
			if err := s.tree.checkRemoval(test.want); err == nil {
				t.Error("it can be removed")
			}
			if outer, _, nested := strings.Cut(test.want, "."); nested {
				if err := s.tree.checkRemoval(outer); err == nil {
					t.Error("what it is in can be removed")
				}
			}
			if err := s.tree.checkRemoval("d"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheCertificateStorageRefusesWhatCannotWork(t *testing.T) {
	scripted(t, "cert-refused").SetCapabilities(muxcore.Capabilities{Write: true, ConditionalWrite: true})
	cdn := `backend z bunny zone {
  region de
  access_key k
  pull_zone https://h
  api_key k
 }`
	for _, test := range []struct{ option, want string }{
		{"storage_mux {\n backend a scripted cert-refused\n}", "no backend can keep the locks"},
		{"storage_mux {\n backend a memory {\n  read_only\n }\n}", "no backend can keep the locks"},
		{"storage_mux {\n backend a memory {\n  locks\n }\n backend b memory {\n  locks\n }\n}", `locks: two backends, "a" and "b"`},
		{"storage_mux {\n backend a scripted cert-refused {\n  locks\n }\n}", `locks: backend "a" is of type scripted`},
		{"storage_mux {\n backend a memory {\n  locks\n  read_only\n }\n}", `locks: backend "a" is read_only`},
		{"storage_mux {\n backend m memory\n " + cdn + "\n}", `backend "z": the content delivery network`},
		{"storage_mux {\n backend m memory\n " + strings.Replace(cdn, "api_key k", "", 1) + "\n}", `backend "z": the content delivery network`},
		{"storage_mux missing", `unknown storage tree "missing": declare it by the global option`},
		{"storage_mux {\n backend a mux {\n  locks\n  backend m memory\n }\n}", `unknown option "locks"`},
		{"storage_mux {\n backend a use x {\n  locks\n }\n}", `unknown option "locks"`},
		{"storage_mux {\n backend a memory {\n  locks maybe\n }\n}", "locks"},
	} {
		_, err := certStorage(t, testContext(t), test.option)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\ngives %v, want %q", test.option, err, test.want)
		}
	}
	if n := treesAlive(); n != 0 {
		t.Errorf("%d trees are alive after loads that failed", n)
	}
}

// Nor can what is in front of a backend make keys public that is added at run time.
func TestNoPublicBackendIsAddedToACertificateStorage(t *testing.T) {
	s, err := certStorage(t, testContext(t), "storage_mux {\n backend m memory\n}")
	if err != nil {
		t.Fatal(err)
	}
	public := json.RawMessage(`{"name":"z","type":"bunny","zone":"zone","region":"de","access_key":"k","pull_zone":"https://h"}`)
	if one, err := makeMember(public, s.tree, "", nil); err == nil || !strings.Contains(err.Error(), "private keys") {
		t.Errorf("makeMember = %v, %v", one, err)
	}
	one, err := makeMember(json.RawMessage(`{"name":"n","type":"memory"}`), s.tree, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.close(); err != nil {
		t.Error(err)
	}
}

// `caddy storage` loads the storage alone.
func TestAStorageWithoutItsConfigNeedsATreeInPlace(t *testing.T) {
	for option, want := range map[string]string{
		"storage_mux site":                                       "write the tree in place",
		"storage_mux {\n backend a use site\n}":                  "write the tree in place",
		"storage_mux failover {{dir}}":                           "",
		"storage_mux {\n name alone\n backend f file {{dir}}\n}": "",
	} {
		dir := t.TempDir()
		ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
		s, err := certStorage(t, ctx, strings.ReplaceAll(option, "{{dir}}", dir))
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s gives %v, want %q", option, err, want)
			}
			cancel()
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", option, err)
		}
		if err := s.Store(ctx, "x", []byte("x")); err != nil {
			t.Error(err)
		}
		cancel()
		if _, err := os.Stat(filepath.Join(dir, ".storage_mux", "storage", "x")); err != nil {
			t.Error(err)
		}
	}
	if n := treesAlive(); n != 0 {
		t.Errorf("%d trees are alive", n)
	}
}

func TestCallersOfTheStorageDoNotDisturbEachOther(t *testing.T) {
	s := newCertStorage(t, "storage_mux mirror "+t.TempDir()+" memory: {\n name busy\n}")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 10 {
				text := strings.Repeat(fmt.Sprint(i), 1000+n)
				if err := s.Store(t.Context(), "shared", []byte(text)); err != nil {
					t.Error(err)
				}
				value, err := s.Load(t.Context(), "shared")
				if err != nil || strings.Trim(string(value), string(value[:1])) != "" {
					t.Errorf("Load gives bytes of two versions, or %v", err)
				}
				if _, err := s.List(t.Context(), "", true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := fmt.Sprint(s); got != "storage_mux:busy" {
		t.Errorf("in a log it is %q", got)
	}
}
