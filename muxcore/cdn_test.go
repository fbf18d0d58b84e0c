package muxcore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// published is a store with a network in front of it.
type published struct {
	muxcore.Store
	host string
	err  error

	mu     sync.Mutex
	purged []string
}

func newPublished(tb testing.TB, host string) *published {
	tb.Helper()
	return &published{Store: memory(tb), host: host}
}

func (p *published) Capabilities() muxcore.Capabilities {
	c := muxcore.CapabilitiesOf(p.Store)
	c.Purge = p.host != ""
	return c
}

func (p *published) PublicURL(_ context.Context, key string) (string, error) {
	return "https://" + p.host + "/" + key, p.err
}

func (p *published) Purge(_ context.Context, keys []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.purged = append(p.purged, keys...)
	return p.err
}

func TestAPurgeReachesEveryNetworkInATree(t *testing.T) {
	a, b, silent := newPublished(t, "a.example"), newPublished(t, "b.example"), newPublished(t, "")
	inner := newMux(t, muxcore.Settings{Mode: muxcore.Shield}, muxcore.Backend{Name: "plain", Store: memory(t)}, muxcore.Backend{Name: "b", Store: b})
	m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror},
		muxcore.Backend{Name: "silent", Store: silent}, muxcore.Backend{Name: "eu", Store: inner}, muxcore.Backend{Name: "a", Store: a, ReadOnly: true})
	if !m.Capabilities().Purge {
		t.Error("the mux says that it cannot purge")
	}
	all, err := m.PurgeEach(t.Context(), []string{"x", "y/z"})
	if want := []muxcore.Purged{{Backend: "a"}, {Backend: "eu.b"}}; err != nil || !slices.Equal(all, want) {
		t.Errorf("PurgeEach = %v, %v, want %v", all, err, want)
	}
	for _, p := range []*published{a, b} {
		if want := []string{"x", "y/z"}; !slices.Equal(p.purged, want) {
			t.Errorf("%s was asked to purge %q, want %q", p.host, p.purged, want)
		}
	}
	if silent.purged != nil {
		t.Errorf("one that cannot purge was asked to: %q", silent.purged)
	}
	if at, err := m.PublicURL(t.Context(), "k"); at != "https://b.example/k" || err != nil {
		t.Errorf("PublicURL = %q, %v, want that of the first network, which is inside of eu", at, err)
	}
}

func TestAPurgeThatFailsNamesTheBackend(t *testing.T) {
	a, b := newPublished(t, "a.example"), newPublished(t, "b.example")
	b.err = &muxcore.Error{Code: muxcore.CodeCredentialExpired}
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: a}, muxcore.Backend{Name: "b", Store: b})
	err := m.Purge(t.Context(), []string{"x"})
	if muxcore.CodeOf(err) != muxcore.CodeCredentialExpired || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("Purge = %v, want %s of backend b", err, muxcore.CodeCredentialExpired)
	}
	if want := []string{"x"}; !slices.Equal(a.purged, want) {
		t.Errorf("the other network was asked to purge %q, want %q", a.purged, want)
	}
}

func TestAPurgeWithoutANetworkOrOfABadKeyAsksNobody(t *testing.T) {
	a := newPublished(t, "a.example")
	plain := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "plain", Store: memory(t)})
	if _, err := plain.PurgeEach(t.Context(), []string{"x"}); !errors.Is(err, muxcore.ErrUnsupported) {
		t.Errorf("PurgeEach without a network = %v, want %v", err, muxcore.ErrUnsupported)
	}
	if _, err := plain.PublicURL(t.Context(), "x"); !errors.Is(err, muxcore.ErrUnsupported) {
		t.Errorf("PublicURL without a network = %v, want %v", err, muxcore.ErrUnsupported)
	}
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: a})
	if _, err := m.PurgeEach(t.Context(), []string{"x", "../y"}); !errors.Is(err, muxcore.ErrInvalidKey) || a.purged != nil {
		t.Errorf("PurgeEach of a bad key = %v, and purged %q, want %v and nothing", err, a.purged, muxcore.ErrInvalidKey)
	}
}
