package muxcore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// says lets a store answer a read with an error.
func says(e muxcore.Error) func(context.Context, muxcore.Op) error {
	return func(context.Context, muxcore.Op) error { return &e }
}

// noes are answers of a backend that is well and does not have what was asked for.
var noes = map[string]muxcore.Error{
	"400":          {Code: muxcore.CodeUnavailable, Status: http.StatusBadRequest},
	"404":          {Code: muxcore.CodeKeyNotFound, Status: http.StatusNotFound},
	"410":          {Code: muxcore.CodeKeyNotFound, Status: http.StatusGone},
	"451":          {Code: muxcore.CodeUnavailable, Status: http.StatusUnavailableForLegalReasons},
	"an odd key":   {Code: muxcore.CodeInvalidKey},
	"401":          {Code: muxcore.CodeDenied, Status: http.StatusUnauthorized},
	"no such part": {Code: muxcore.CodeUnsupported},
}

// A second read makes an answer faster and never another one: what a later backend says no to counts once the earlier have failed.
func TestASecondReadDoesNotChangeTheAnswer(t *testing.T) {
	later := slow(300 * time.Millisecond)
	thenFails := func(ctx context.Context, op muxcore.Op) error { return errors.Join(later(ctx, op), fails(ctx, op)) }
	for name, no := range noes {
		for _, mode := range []muxcore.Mode{muxcore.Failover, muxcore.Shield} {
			for _, well := range []bool{true, false} {
				t.Run(fmt.Sprint(mode, ", ", name, ", the first is well: ", well), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						read := func(hedge muxcore.Hedge) (muxcore.Code, muxcore.Code) {
							backends, hooks := crowd(t, 1, 1)
							m := newMux(t, muxcore.Settings{Mode: mode, Hedge: hedge}, backends...)
							hooks[0].set(map[bool]func(context.Context, muxcore.Op) error{true: later, false: thenFails}[well])
							hooks[1].set(says(no))
							_, err := m.Stat(t.Context(), "k", muxcore.Conditions{})
							o, gerr := m.Get(t.Context(), "k", muxcore.GetOptions{})
							if gerr == nil {
								o.Body.Close()
							}
							return muxcore.CodeOf(err), muxcore.CodeOf(gerr)
						}
						stat, get := read(muxcore.Hedge{})
						hedgedStat, hedgedGet := read(muxcore.Hedge{After: 50 * time.Millisecond, Share: 1})
						if hedgedStat != stat || hedgedGet != get {
							t.Errorf("Stat = %s, Get = %s, want %s, %s as without hedging", hedgedStat, hedgedGet, stat, get)
						}
						if well && get != "" {
							t.Errorf("Get = %s, although one is well", get)
						}
					})
				})
			}
		}
	}
}

// Where others are asked after one that does not have a key, they are asked after any other no as well; with nobody else to have it, it is
// the answer, and if somebody could not be asked, that is.
func TestANoOfOneBackendEndsNoReadThatAnotherCanAnswer(t *testing.T) {
	for name, no := range noes {
		for mode, set := range map[string]muxcore.Settings{"failover": {Mode: muxcore.Failover, OnMissNext: true}, "mirror": {Mode: muxcore.Mirror}} {
			t.Run(mode+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					backends, hooks := crowd(t, 1, 1)
					m := newMux(t, set, backends...)
					hooks[0].set(says(no))
					hooks[1].set(slow(time.Second))
					wantBody(t, m, "k", "body", "b1")
					hooks[1].set(says(muxcore.Error{Code: muxcore.CodeKeyNotFound}))
					_, err := m.Stat(t.Context(), "k", muxcore.Conditions{})
					var want muxcore.Code
					switch no.Code {
					case muxcore.CodeDenied: // it could not be asked
						want = muxcore.CodeAllBackendsDown
					case muxcore.CodeInvalidKey: // no news of the key itself
						want = muxcore.CodeKeyNotFound
					default:
						want = no.Code
					}
					if muxcore.CodeOf(err) != want {
						t.Errorf("Stat without another = %v, want %s", err, want)
					}
					hooks[1].set(fails)
					if _, err = m.Stat(t.Context(), "k", muxcore.Conditions{}); no.Code != muxcore.CodeUnsupported && muxcore.CodeOf(err) != muxcore.CodeAllBackendsDown {
						t.Errorf("Stat with the other down = %v, want %s", err, muxcore.CodeAllBackendsDown)
					}
				})
			})
		}
	}
}
