package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// An origin that ignores ranges, and cannot skip to a part, ended the read although another backend could give the part.
func TestWhoCannotReadAPartLeavesItToOthers(t *testing.T) {
	unable := broken{&muxcore.Error{Code: muxcore.CodeUnsupported, Err: errBroken}}
	part := muxcore.GetOptions{Range: muxcore.Range{Offset: 2, Length: 3}}
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Shield, muxcore.Mirror} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			good := memory(t)
			put(t, good, "k", "0123456789")
			m := newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "unable", Store: unable}, muxcore.Backend{Name: "good", Store: good})
			for range 3 {
				if got, obj, err := read(t.Context(), m, "k", part); err != nil || got != "234" || obj.Via.Backend != "good" {
					t.Fatalf("Get of a part = %q, %v, want %q from good", got, err, "234")
				}
			}
			if b := m.Stats().Backends[0]; b.Status != muxcore.StatusUp {
				t.Errorf("status of who was not able = %v, want up", b.Status)
			}
			outer := newMux(t, muxcore.Settings{Mode: mode},
				muxcore.Backend{Name: "in", Store: newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "unable", Store: unable})},
				muxcore.Backend{Name: "down", Store: broken{}})
			_, _, err := read(t.Context(), outer, "k", part)
			if !errors.Is(err, muxcore.ErrUnsupported) || backendOf(err) != "in.unable" {
				t.Errorf("Get where nobody else answers = %v, want %s of in.unable", err, muxcore.CodeUnsupported)
			}
		})
	}
}

// blunt is a store that finds out only when it is asked that it cannot decide conditions.
type blunt struct {
	muxcore.Store
	knows atomic.Bool
	asked atomic.Int64
}

func (b *blunt) Capabilities() muxcore.Capabilities {
	c := muxcore.CapabilitiesOf(b.Store)
	c.ConditionalWrite = !b.knows.Load()
	return c
}

func (b *blunt) refuse(cond *muxcore.Conditions) error {
	if cond.Empty() {
		return nil
	}
	b.asked.Add(1)
	b.knows.Store(true)
	return &muxcore.Error{Code: muxcore.CodeUnsupported, Err: errBroken}
}

func (b *blunt) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	if err := b.refuse(&opts.Conditions); err != nil {
		return muxcore.PutResult{}, err
	}
	return b.Store.Put(ctx, key, body, size, opts)
}

func (b *blunt) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	if err := b.refuse(&opts.Conditions); err != nil {
		return muxcore.DeleteResult{}, err
	}
	return b.Store.Delete(ctx, key, opts)
}

// putNew puts a body where nothing is.
func putNew(ctx context.Context, s muxcore.Store, key, body string) (muxcore.PutResult, error) {
	opts := muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}}
	return s.Put(ctx, key, strings.NewReader(body), int64(len(body)), opts)
}

// An S3 endpoint that turned out not to honour conditions ended the write with 501, although another backend could decide it.
func TestWhoCannotDecideConditionsLeavesItToOthers(t *testing.T) {
	large := strings.Repeat("0123456789", 10_000) // beyond what is read before anybody is asked
	for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.RoundRobin, muxcore.Mirror} {
		for name, body := range map[string]string{"small": "body", "large": large} {
			t.Run(fmt.Sprint(mode)+"/"+name, func(t *testing.T) {
				unable, good := &blunt{Store: memory(t)}, memory(t)
				m := newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "unable", Store: unable}, muxcore.Backend{Name: "good", Store: good})
				_, err := putNew(t.Context(), m, "k", body)
				if name == "large" && mode == muxcore.Mirror && errors.Is(err, muxcore.ErrUnsupported) {
					_, err = putNew(t.Context(), m, "k", body) // of the first one something had been read ahead
				}
				if err != nil {
					t.Fatalf("Put = %v, want it decided by good", err)
				}
				wantBody(t, good, "k", body, "")
				if _, err := putNew(t.Context(), m, "k", "second"); !errors.Is(err, muxcore.ErrPreconditionFailed) || backendOf(err) != "good" {
					t.Errorf("Put over it = %v, want %s of good", err, muxcore.CodePreconditionFailed)
				}
				if _, err := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: "*"}}); err != nil {
					t.Errorf("Delete = %v", err)
				}
				if n := unable.asked.Load(); n > 1 {
					t.Errorf("who has said that it cannot decide was asked %d times", n)
				}
				if b := m.Stats().Backends[0]; b.Status != muxcore.StatusUp {
					t.Errorf("status of who was not able = %v, want up", b.Status)
				}
			})
		}
	}
}

func TestNobodyDecidesInPlaceOfAnOriginThatCannot(t *testing.T) {
	origin, other := &blunt{Store: memory(t)}, memory(t)
	for _, set := range []struct {
		mode     muxcore.Mode
		backends []muxcore.Backend
	}{
		{muxcore.Shield, []muxcore.Backend{{Name: "origin", Store: origin}, {Name: "other", Store: other}}},
		{muxcore.Failover, []muxcore.Backend{{Name: "origin", Store: origin}}},
		{muxcore.Mirror, []muxcore.Backend{{Name: "origin", Store: origin}}},
	} {
		m := newMux(t, muxcore.Settings{Mode: set.mode}, set.backends...)
		origin.knows.Store(false)
		_, err := putNew(t.Context(), m, "k", "body")
		origin.knows.Store(false)
		_, delErr := m.Delete(t.Context(), "k", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: "*"}})
		for op, err := range map[string]error{"Put": err, "Delete": delErr} {
			if !errors.Is(err, muxcore.ErrUnsupported) || backendOf(err) != "origin" {
				t.Errorf("%s in %s = %v, want %s of origin", op, set.mode, err, muxcore.CodeUnsupported)
			}
		}
		for _, s := range []muxcore.Store{origin, other} {
			if _, err := s.Stat(t.Context(), "k", muxcore.Conditions{}); !errors.Is(err, muxcore.ErrKeyNotFound) {
				t.Errorf("Stat in %s = %v, want nothing written", set.mode, err)
			}
		}
	}
}
