package swiftstore_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

func TestWhatAStatusMeans(t *testing.T) {
	c := swiftfake.New(t, "box")
	s := open(t, settings(c, "box"))
	put(t, s, "key", "body")
	for _, row := range []struct {
		status int
		get    muxcore.Class
		put    muxcore.Class
	}{
		{http.StatusForbidden, muxcore.ClassDenied, muxcore.ClassDenied},
		{http.StatusRequestTimeout, muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusRequestEntityTooLarge, muxcore.ClassSemantic, muxcore.ClassSemantic},
		{http.StatusUnprocessableEntity, muxcore.ClassSemantic, muxcore.ClassTransient},
		{http.StatusTooManyRequests, muxcore.ClassTransient, muxcore.ClassTransient},
		{498, muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusServiceUnavailable, muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusInsufficientStorage, muxcore.ClassTransient, muxcore.ClassTransient},
		{http.StatusFound, muxcore.ClassTransient, muxcore.ClassTransient},
	} {
		c.Fail(func(r *http.Request) int {
			if r.Method == http.MethodHead {
				return 0
			}
			return row.status
		})
		_, err := s.Get(t.Context(), "key", muxcore.GetOptions{})
		if got := muxcore.Classify(t.Context(), err); got != row.get {
			t.Errorf("Get answered %d is %s (%v), want %s", row.status, got, err, row.get)
		}
		_, err = s.Put(t.Context(), "key", strings.NewReader("x"), 1, muxcore.PutOptions{})
		if got := muxcore.Classify(t.Context(), err); got != row.put {
			t.Errorf("Put answered %d is %s (%v), want %s", row.status, got, err, row.put)
		}
	}
}

func TestAContainerThatIsNotThereIsAFailureAndNoMiss(t *testing.T) {
	c := swiftfake.New(t)
	s := open(t, settings(c, "nowhere"))
	calls := cloudtest.Calls(t, s, "key")
	calls["Probe"] = func() error { return s.Probe(t.Context()) }
	for name, call := range calls {
		err := call()
		if muxcore.Classify(t.Context(), err) != muxcore.ClassTransient || !strings.Contains(fmt.Sprint(err), `"nowhere"`) {
			t.Errorf("%s = %v, want a failure that names the container", name, err)
		}
	}
}

func TestKeysAreSentEncodedOnce(t *testing.T) {
	c := swiftfake.New(t, "a box")
	set := settings(c, "a box")
	set.Prefix = "p"
	s := open(t, set)
	for key, want := range map[string]string{
		"a b": "a%20b", "a+b": "a%2Bb", "a%2Bb": "a%252Bb", "q?x#y&z": "q%3Fx%23y%26z", "é/😀": "%C3%A9/%F0%9F%98%80",
	} {
		put(t, s, key, key)
		if line := "PUT /v1/" + swiftfake.Account + "/a%20box/p/" + want; !slices.Contains(c.Lines(), line) {
			t.Errorf("%q was not sent as %s", key, line)
		}
	}
	var keys []string
	for e, err := range s.List(t.Context(), muxcore.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, e.Key)
	}
	if want := []string{"a b", "a%2Bb", "a+b", "q?x#y&z", "é/😀"}; !slices.Equal(keys, want) {
		t.Errorf("List = %q, want %q", keys, want)
	}
}

// Only the first thousand entries ever showed.
func TestAListOfManyPagesGivesEachKeyOnce(t *testing.T) {
	c := swiftfake.New(t, "box")
	const n = 2500
	for i := range n {
		c.Put("box", fmt.Sprintf("k/%04d", i), "x")
	}
	c.Put("box", "not//a key", "x")
	s := open(t, settings(c, "box"))
	i := 0
	for e, err := range s.List(t.Context(), muxcore.ListOptions{}) {
		if want := fmt.Sprintf("k/%04d", i); err != nil || e.Key != want {
			t.Fatalf("entry %d is %q, %v, want %q", i, e.Key, err, want)
		}
		i++
	}
	if i != n {
		t.Errorf("%d entries, want %d", i, n)
	}
	before := len(c.Lines())
	for _, err := range s.List(t.Context(), muxcore.ListOptions{Delimiter: "k"}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := len(c.Lines()) - before; got != 2 {
		t.Errorf("%d requests for a list of one rolled-up entry, want 2", got)
	}
}

func TestAForeignObjectKeepsItsOwnValidators(t *testing.T) {
	c := swiftfake.New(t, "box")
	c.Put("box", "theirs", "body")
	s := open(t, settings(c, "box"))
	info, err := s.Stat(t.Context(), "theirs", muxcore.Conditions{})
	if err != nil || info.ETag != `"841a2d689ad86bd1611447453c22c6fc"` || info.ETagStored || info.Digests.MD5 == nil {
		t.Errorf("Stat = %+v, %v, want the MD5 as a foreign ETag", info, err)
	}
	_, err = s.Get(t.Context(), "theirs", muxcore.GetOptions{Conditions: muxcore.Conditions{IfNoneMatch: info.ETag}})
	if !errors.Is(err, muxcore.ErrNotModified) {
		t.Errorf("Get with If-None-Match of it = %v, want %v", err, muxcore.ErrNotModified)
	}
}

func TestConditionalWritesAreRefused(t *testing.T) {
	c := swiftfake.New(t, "box")
	s := open(t, settings(c, "box"))
	cond := muxcore.Conditions{IfNoneMatch: "*"}
	if _, err := s.Put(t.Context(), "key", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: cond}); !errors.Is(err, muxcore.ErrUnsupported) {
		t.Errorf("Put with If-None-Match = %v, want %v", err, muxcore.ErrUnsupported)
	}
	if _, err := s.Delete(t.Context(), "key", muxcore.DeleteOptions{Conditions: cond}); !errors.Is(err, muxcore.ErrUnsupported) {
		t.Errorf("Delete with If-None-Match = %v, want %v", err, muxcore.ErrUnsupported)
	}
	if lines := c.Lines(); len(lines) > 0 {
		t.Errorf("the cluster was asked all the same: %q", lines)
	}
}

func TestSettingsThatCannotWorkAreNamed(t *testing.T) {
	good := swiftstore.Settings{Container: "box", AuthURL: "https://identity.example/v3", User: "u", Key: "s3cr3t"}
	for want, change := range map[string]func(*swiftstore.Settings){
		"container":      func(set *swiftstore.Settings) { set.Container = "a/b" },
		"user":           func(set *swiftstore.Settings) { set.User = "" },
		"key":            func(set *swiftstore.Settings) { set.Key = "" },
		"auth_url":       func(set *swiftstore.Settings) { set.AuthURL = "https://u:s3cr3t@h/v3" },
		"auth_url: ":     func(set *swiftstore.Settings) { set.AuthURL = "https://identity.example:99999/v3" },
		"auth_url: must": func(set *swiftstore.Settings) { set.AuthURL = "https://identity.example/v3?q" },
		"auth_url: has":  func(set *swiftstore.Settings) { set.AuthURL = "https://identity.example/" },
		"prefix":         func(set *swiftstore.Settings) { set.Prefix = "a//b" },
		"domain":         func(set *swiftstore.Settings) { set.AuthURL, set.Domain = "https://h/v2.0", "d" },
		"tenant, region": func(set *swiftstore.Settings) { set.AuthURL, set.Region = "https://h/auth/v1.0", "r" },
		"cdn":            func(set *swiftstore.Settings) { set.CDN = true },
		"purge_on_write": func(set *swiftstore.Settings) { set.PurgeOnWrite = true },
	} {
		set := good
		change(&set)
		_, err := swiftstore.New(set)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("New = %v, want an error that begins with %s and shows no secret", err, want)
		}
	}
}
