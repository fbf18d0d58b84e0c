package muxcore_test

import (
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// What a Put would be refused for is known before its body is read, from the backend that decides; what cannot be known
// is left to the Put.
func TestCheckPutForeseesTheDecidersWord(t *testing.T) {
	held, lacking := muxcore.Conditions{IfNoneMatch: "*"}, muxcore.Conditions{IfMatch: "*"}
	for _, mode := range muxcore.Modes() {
		first, second := memory(t), memory(t)
		put(t, first, "held", "x") // the second backend has nothing: its word must not count
		m := newMux(t, muxcore.Settings{Mode: mode}, muxcore.Backend{Name: "a", Store: first}, muxcore.Backend{Name: "b", Store: second, Weight: new(int)})
		known := muxcore.CodePreconditionFailed
		if mode == muxcore.StickyByKey {
			known = "" // the key's own backend decides, and that is not looked for
		}
		for _, tc := range []struct {
			name, key string
			cond      muxcore.Conditions
			want      muxcore.Code
		}{
			{"an object that must not be there", "held", held, known},
			{"an object that must be there and is", "held", lacking, ""},
			{"an object that must be there and is not", "none", lacking, known},
			{"no condition", "held", muxcore.Conditions{}, ""},
			{"a bad key", "a//b", muxcore.Conditions{}, muxcore.CodeInvalidKey},
		} {
			if err := m.CheckPut(t.Context(), tc.key, muxcore.PutOptions{Conditions: tc.cond}); muxcore.CodeOf(err) != tc.want {
				t.Errorf("%s: %s: CheckPut = %v, want %q", mode, tc.name, err, tc.want)
			}
		}
	}
}

func TestCheckPutLeavesToThePutWhatItCannotKnow(t *testing.T) {
	m := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: broken{}})
	cond := muxcore.Conditions{IfMatch: "*"}
	if err := m.CheckPut(t.Context(), "k", muxcore.PutOptions{Conditions: cond}); err != nil {
		t.Errorf("CheckPut = %v of a backend that does not answer", err)
	}
	plain := newMux(t, muxcore.Settings{}, muxcore.Backend{Name: "a", Store: memory(t), ReadOnly: true})
	if err := plain.CheckPut(t.Context(), "k", muxcore.PutOptions{}); muxcore.CodeOf(err) != muxcore.CodeReadOnly {
		t.Errorf("CheckPut = %v of a backend that takes no writes, want read only", err)
	}
}
