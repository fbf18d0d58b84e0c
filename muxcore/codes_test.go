package muxcore_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

// Every code of the mux is reached by something that an operator or a client can do.
func TestEveryCodeIsReached(t *testing.T) {
	ctx := t.Context()
	get := func(m *muxcore.Mux, key string, opts muxcore.GetOptions) error {
		_, err := m.Get(ctx, key, opts)
		return err
	}
	one := func(s muxcore.Store, set muxcore.Settings) *muxcore.Mux {
		return newMux(t, set, muxcore.Backend{Name: "a", Store: s})
	}
	full := memory(t)
	put(t, full, "k", "body")
	making := func(set muxcore.Settings, backends ...muxcore.Backend) error {
		_, err := muxcore.New(set, backends...)
		return err
	}
	chain := muxcore.Store(full)
	for range muxcore.MaxDepth {
		chain = one(chain, muxcore.Settings{})
	}
	reach := map[muxcore.Code]func() error{
		muxcore.CodeAllBackendsDown: func() error { return get(one(broken{}, muxcore.Settings{}), "k", muxcore.GetOptions{}) },
		muxcore.CodeBackendTimeout: func() error {
			return get(one(hook(full, hangs), muxcore.Settings{Timeout: time.Millisecond}), "k", muxcore.GetOptions{})
		},
		muxcore.CodeBackendAborted: func() error {
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_, err := one(hook(full, hangs), muxcore.Settings{}).Get(gone, "k", muxcore.GetOptions{})
			return err
		},
		muxcore.CodeBackendDraining: func() error {
			var cause error
			m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, Observe: func(e muxcore.Event) {
				if e.Kind == muxcore.EventFanoutPartial {
					cause = e.Causes[0]
				}
			}}, muxcore.Backend{Name: "a", Store: full}, muxcore.Backend{Name: "b", Store: memory(t)})
			if err := m.Drain(ctx, "b"); err != nil {
				return err
			}
			put(t, m, "other", "x")
			return cause
		},
		muxcore.CodeHealthcheckFailed: func() error {
			causes := make(chan error, 10)
			ill := probing{hook(full, nil), func(context.Context) error { return errUnavailable }}
			newMux(t, muxcore.Settings{HealthInterval: time.Hour, Observe: func(e muxcore.Event) { causes <- e.Err }},
				muxcore.Backend{Name: "a", Store: ill}, muxcore.Backend{Name: "b", Store: memory(t)})
			return <-causes
		},
		muxcore.CodeWriteFanoutPartial: func() error {
			m := newMux(t, muxcore.Settings{Mode: muxcore.Mirror, FailPartialWrites: true}, muxcore.Backend{Name: "a", Store: memory(t)}, muxcore.Backend{Name: "b", Store: broken{}})
			_, err := m.Put(ctx, "k", strings.NewReader("x"), 1, muxcore.PutOptions{})
			return err
		},
		muxcore.CodeRecursionDepthExceeded: func() error { return making(muxcore.Settings{}, muxcore.Backend{Name: "a", Store: chain}) },
		muxcore.CodeInvalidWeight: func() error {
			return making(muxcore.Settings{}, muxcore.Backend{Name: "a", Store: full, Weight: new(-3)})
		},
		muxcore.CodeWeightedRequiresWeights: func() error {
			return making(muxcore.Settings{Mode: muxcore.Weighted}, muxcore.Backend{Name: "a", Store: full})
		},
		muxcore.CodeBackendNameConflict: func() error {
			return making(muxcore.Settings{}, muxcore.Backend{Name: "a", Store: full}, muxcore.Backend{Name: "a", Store: full})
		},
		muxcore.CodeBackendNotFound:      func() error { return one(full, muxcore.Settings{}).Remove("b") },
		muxcore.CodeMirrorOriginRequired: func() error { return making(muxcore.Settings{Mode: muxcore.Shield}) },
		muxcore.CodeKeyNotFound:          func() error { return get(one(full, muxcore.Settings{}), "none", muxcore.GetOptions{}) },
		muxcore.CodeInvalidKey:           func() error { return get(one(full, muxcore.Settings{}), "a//b", muxcore.GetOptions{}) },
		muxcore.CodeReadOnly: func() error {
			m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: full, ReadOnly: true})
			_, err := m.Delete(ctx, "k", muxcore.DeleteOptions{})
			return err
		},
		muxcore.CodePreconditionFailed: func() error {
			return get(one(full, muxcore.Settings{}), "k", muxcore.GetOptions{Conditions: muxcore.Conditions{IfMatch: `"x"`}})
		},
		muxcore.CodeNotModified: func() error {
			return get(one(full, muxcore.Settings{}), "k", muxcore.GetOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
		},
		muxcore.CodeRangeNotSatisfiable: func() error {
			return get(one(full, muxcore.Settings{}), "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 99}})
		},
		muxcore.CodeBodyMismatch: func() error {
			_, err := one(full, muxcore.Settings{}).Put(ctx, "new", strings.NewReader("x"), 2, muxcore.PutOptions{})
			return err
		},
		muxcore.CodeTooLarge: func() error {
			tiny, err := memstore.New(memstore.Settings{MaxBytes: 10})
			if err != nil {
				return err
			}
			_, err = one(tiny, muxcore.Settings{}).Put(ctx, "new", strings.NewReader(long(1000)), 1000, muxcore.PutOptions{})
			return err
		},
		muxcore.CodeUnsupported: func() error {
			m := one(unconditional{full}, muxcore.Settings{})
			_, err := m.Put(ctx, "new", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
			return err
		},
		muxcore.CodeDenied: func() error { return get(one(broken{fs.ErrPermission}, muxcore.Settings{}), "k", muxcore.GetOptions{}) },
		muxcore.CodeCredentialExpired: func() error {
			return get(one(broken{&muxcore.Error{Code: muxcore.CodeCredentialExpired}}, muxcore.Settings{}), "k", muxcore.GetOptions{})
		},
		muxcore.CodeKeyConflict: func() error {
			_, err := one(broken{&muxcore.Error{Code: muxcore.CodeKeyConflict}}, muxcore.Settings{}).Put(ctx, "a/b", nil, 0, muxcore.PutOptions{})
			return err
		},
	}
	for code, do := range reach {
		if err := do(); muxcore.CodeOf(err) != code {
			t.Errorf("%s: got %v", code, err)
		}
	}
}

// unconditional is a store that cannot write conditionally.
type unconditional struct{ muxcore.Store }

func (unconditional) Capabilities() muxcore.Capabilities {
	return muxcore.Capabilities{Write: true, List: true}
}

func TestNonsenseIsRefusedByName(t *testing.T) {
	ok := muxcore.Backend{Name: "a", Store: memory(t)}
	for want, err := range map[string]error{
		"unknown mode":         muxcore.Check(muxcore.Settings{Mode: "random"}, ok),
		"timeout":              muxcore.Check(muxcore.Settings{Timeout: -1}, ok),
		"deadline":             muxcore.Check(muxcore.Settings{Deadline: -1}, ok),
		"cooldown":             muxcore.Check(muxcore.Settings{Cooldown: 2, MaxCooldown: 1}, ok),
		"retry":                muxcore.Check(muxcore.Settings{Retry: muxcore.Retry{Max: -1}}, ok),
		"write_quorum":         muxcore.Check(muxcore.Settings{WriteQuorum: 2}, ok),
		"health_interval":      muxcore.Check(muxcore.Settings{HealthInterval: -1}, ok),
		"no backend":           muxcore.Check(muxcore.Settings{}),
		"without a name":       muxcore.Check(muxcore.Settings{}, muxcore.Backend{Store: memory(t)}),
		"no store":             muxcore.Check(muxcore.Settings{}, muxcore.Backend{Name: "a"}),
		"health_key":           muxcore.Check(muxcore.Settings{}, muxcore.Backend{Name: "a", Store: memory(t), HealthKey: "a//b"}),
		"hedge: must not":      muxcore.Check(muxcore.Settings{Hedge: muxcore.Hedge{After: -1}}, ok),
		"hedge: the share":     muxcore.Check(muxcore.Settings{Hedge: muxcore.Hedge{Share: 2}}, ok),
		"must be positive":     muxcore.Check(muxcore.Settings{WriteQuorum: muxcore.QuorumAll - 1}, ok),
		"must not be a back":   muxcore.Check(muxcore.Settings{Mode: muxcore.Shield}, muxcore.Backend{Name: "a", Store: memory(t), Backup: true}),
		`"a": timeout`:         muxcore.Check(muxcore.Settings{}, muxcore.Backend{Name: "a", Store: memory(t), Timeout: -1}),
		`weight: must be 0 to`: muxcore.Check(muxcore.Settings{}, muxcore.Backend{Name: "a", Store: memory(t), Weight: new(-3)}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want one that says %q", err, want)
		}
	}
	if err := muxcore.Check(muxcore.Settings{}, ok); err != nil {
		t.Errorf("Check of the smallest mux = %v", err)
	}
	if !errors.Is(&muxcore.Error{Code: muxcore.CodeKeyNotFound}, fs.ErrNotExist) {
		t.Error("an absent key is not fs.ErrNotExist")
	}
}
