package wire

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func FuzzContentRange(f *testing.F) {
	for _, v := range []string{"bytes 0-99/1234", "bytes 0-99/*", "bytes */1234", "bytes 0--1/0", "bytes 0-9223372036854775807/*", "lines 1-2/3", "bytes */*", ""} {
		f.Add(v, int64(0), int64(100))
	}
	f.Fuzz(func(t *testing.T, v string, offset, length int64) {
		r, ok := ParseContentRange(v)
		if !ok {
			return
		}
		if r.Has && (r.First < 0 || r.Length() <= 0 || r.Size >= 0 && r.Last >= r.Size) || !r.Has && r.Size < 0 {
			t.Errorf("ParseContentRange(%q) = %+v", v, r)
		}
		want := muxcore.Range{Offset: offset, Length: length}
		if !r.Has || !r.Answers(want) {
			return
		}
		if size := r.SizeFor(want); size >= 0 {
			opts := muxcore.GetOptions{Range: want}
			at, n, err := opts.Resolve(&muxcore.Info{Size: size})
			if want != (muxcore.Range{}) && (err != nil || at != r.First || want.Offset >= 0 && n != r.Length()) {
				t.Errorf("%q is taken for an answer to %+v, which is %d+%d (%v)", v, want, at, n, err)
			}
		}
	})
}

func FuzzETag(f *testing.F) {
	for _, v := range []string{`"a"`, `W/"a"`, "a", "W/a", `"a`, `a,b`, `w/"`, "\x80"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		got := ETag([]string{v})
		if tag, rest, ok := muxcore.CutETag(got); got != "" && (!ok || rest != "" || tag != got) {
			t.Errorf("ETag(%q) = %q, which is no entity tag", v, got)
		}
	})
}
