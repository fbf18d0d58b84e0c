package memstore_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

func put(tb testing.TB, s muxcore.Store, key, body string, size int64) error {
	tb.Helper()
	_, err := s.Put(tb.Context(), key, strings.NewReader(body), size, muxcore.PutOptions{})
	return err
}

func wantBody(tb testing.TB, s muxcore.Store, key, want string) {
	tb.Helper()
	o, err := s.Get(tb.Context(), key, muxcore.GetOptions{})
	if err != nil {
		tb.Errorf("Get(%q) = %v", key, err)
		return
	}
	if got, err := io.ReadAll(o.Body); string(got) != want || err != nil {
		tb.Errorf("Get(%q) = %.20q (%d bytes), %v", key, got, len(got), err)
	}
}

func TestNegativeLimitIsRefused(t *testing.T) {
	if _, err := memstore.New(memstore.Settings{MaxBytes: -1}); err == nil || !strings.Contains(err.Error(), "MaxBytes") {
		t.Errorf("New = %v, want an error that names MaxBytes", err)
	}
}

// A store of n bytes takes them to the last one, whether the length is known or not, and not one more.
func TestTheLimitIsExact(t *testing.T) {
	const limit = 10_000
	for _, known := range []bool{true, false} {
		for _, size := range []int{limit - 2, limit - 1, limit, 3 * limit} { // the key takes a byte
			s := newStore(t, memstore.Settings{MaxBytes: limit})
			body := strings.Repeat("x", size)
			declared := int64(size)
			if !known {
				declared = -1
			}
			err := put(t, s, "k", body, declared)
			if fits := size < limit; fits != (err == nil) || err != nil && muxcore.CodeOf(err) != muxcore.CodeTooLarge {
				t.Errorf("Put of %d bytes (length known: %t) into %d = %v", size, known, limit, err)
			}
			if err == nil {
				wantBody(t, s, "k", body)
				if err := put(t, s, "l", strings.Repeat("y", limit), -1); muxcore.CodeOf(err) != muxcore.CodeTooLarge {
					t.Errorf("Put into a full store = %v", err)
				}
			}
		}
	}
}

func TestWhatDoesNotFitChangesNothing(t *testing.T) {
	s := newStore(t, memstore.Settings{MaxBytes: 1000})
	if err := put(t, s, "k", strings.Repeat("a", 800), 800); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{2000, -1} {
		if err := put(t, s, "k", strings.Repeat("b", 2000), size); muxcore.CodeOf(err) != muxcore.CodeTooLarge {
			t.Errorf("Put over it, too large = %v", err)
		}
		if err := put(t, s, "other", strings.Repeat("b", 300), 300); muxcore.CodeOf(err) != muxcore.CodeTooLarge {
			t.Errorf("Put beside it, too large = %v", err)
		}
		wantBody(t, s, "k", strings.Repeat("a", 800))
	}
	if err := put(t, s, "k", strings.Repeat("c", 990), 990); err != nil {
		t.Errorf("Put over it, within the limit = %v: what goes need not fit beside what comes", err)
	}
	if _, err := s.Delete(t.Context(), "k", muxcore.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := put(t, s, "other", strings.Repeat("b", 990), -1); err != nil {
		t.Errorf("Put after a delete = %v: its room is not given back", err)
	}
}

// Failed uploads give back what they had taken.
func TestRoomIsNotLost(t *testing.T) {
	s := newStore(t, memstore.Settings{MaxBytes: 100_000})
	for range 50 {
		for _, size := range []int64{60_000, -1} {
			_, err := s.Put(t.Context(), "k", io.MultiReader(strings.NewReader(strings.Repeat("x", 50_000)), iotest.ErrReader(io.ErrUnexpectedEOF)), size, muxcore.PutOptions{})
			if err == nil {
				t.Fatal("a failing body is stored")
			}
		}
	}
	if err := put(t, s, "k", strings.Repeat("x", 99_990), -1); err != nil {
		t.Errorf("Put after failed ones = %v", err)
	}
}

func TestAttributesAndKeysCountToo(t *testing.T) {
	s := newStore(t, memstore.Settings{MaxBytes: 10_000})
	n := 0
	for ; n < 10_000; n++ {
		_, err := s.Put(t.Context(), fmt.Sprintf("key/%d", n), strings.NewReader(""), 0, muxcore.PutOptions{
			Attributes: muxcore.Attributes{ContentType: "text/plain", Metadata: map[string]string{"name": strings.Repeat("m", 80)}},
		})
		if err != nil {
			break
		}
	}
	if n > 100 {
		t.Errorf("%d empty objects with metadata fit into 10,000 bytes", n)
	}
}

func TestAFullStoreNeverHoldsMoreThanItsLimit(t *testing.T) {
	const limit = 64_000
	s := newStore(t, memstore.Settings{MaxBytes: limit})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 50 {
				size := int64((i*n*37)%9000 + 1)
				declared := size
				if n%2 > 0 {
					declared = -1
				}
				if err := put(t, s, fmt.Sprintf("k%d", (i+n)%20), strings.Repeat("x", int(size)), declared); err != nil && muxcore.CodeOf(err) != muxcore.CodeTooLarge {
					t.Errorf("Put = %v", err)
				}
			}
		})
	}
	wg.Wait()
	total := int64(0)
	for e, err := range s.List(t.Context(), muxcore.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		total += e.Size + int64(len(e.Key))
	}
	if total > limit {
		t.Errorf("the store holds %d bytes, its limit is %d", total, limit)
	}
}

func TestTheETagIsThatOfTheContent(t *testing.T) {
	tags := map[string]string{}
	for _, body := range []string{"one", "two", "one"} {
		s := newStore(t, memstore.Settings{})
		res, err := s.Put(t.Context(), "k", strings.NewReader(body), -1, muxcore.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(body))
		if !muxcore.IsStrong(res.ETag) || string(res.Digests.SHA256) != string(sum[:]) {
			t.Errorf("Put(%q) gives %+v", body, res.Info)
		}
		if known, ok := tags[body]; ok && known != res.ETag {
			t.Errorf("two stores give %s and %s for the same bytes", known, res.ETag)
		}
		tags[body] = res.ETag
	}
	if tags["one"] == tags["two"] {
		t.Errorf("different bytes share the ETag %s", tags["one"])
	}
}

func TestGetAllocatesOnce(t *testing.T) {
	s := newStore(t, memstore.Settings{})
	if err := put(t, s, "k", strings.Repeat("x", 1024), 1024); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if n := testing.AllocsPerRun(200, func() {
		o, err := s.Get(ctx, "k", muxcore.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = o.Body.(io.WriterTo).WriteTo(io.Discard)
		o.Body.Close()
	}); n > 2 {
		t.Errorf("Get allocates %v times, want at most 2", n)
	}
}
