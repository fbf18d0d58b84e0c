package muxcore

import (
	"bytes"
	"crypto/md5" // what clients declare as Content-MD5
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

func digestsOf(body string) Digests {
	m, s2, s5 := md5.Sum([]byte(body)), sha256.Sum256([]byte(body)), sha512.Sum512([]byte(body))
	return Digests{MD5: m[:], SHA256: s2[:], SHA512: s5[:]}
}

var errGone = errors.New("gone")

// What a store reads is the declared body whole, or it does not see its end.
func TestACheckedBodyEndsOnlyWhenItIsRight(t *testing.T) {
	const body = "the whole body"
	right, wrong := digestsOf(body), digestsOf("another")
	n := int64(len(body))
	for _, row := range []struct {
		name string
		src  func() io.Reader
		size int64
		want Digests
		err  error
	}{
		{"right", nil, n, Digests{}, nil},
		{"right, of unknown length", nil, -1, Digests{}, nil},
		{"right digests", nil, n, right, nil},
		{"right digests, of unknown length", nil, -1, right, nil},
		{"short", nil, n + 1, Digests{}, ErrBodyMismatch},
		{"long", nil, n - 1, Digests{}, ErrBodyMismatch},
		{"not empty", nil, 0, Digests{}, ErrBodyMismatch},
		{"wrong MD5", nil, n, Digests{MD5: wrong.MD5}, ErrBodyMismatch},
		{"wrong SHA-256, of unknown length", nil, -1, Digests{SHA256: wrong.SHA256}, ErrBodyMismatch},
		{"one of three wrong", nil, n, Digests{MD5: right.MD5, SHA256: right.SHA256, SHA512: wrong.SHA512}, ErrBodyMismatch},
		{"a digest of no bytes", nil, n, Digests{SHA512: []byte{}}, ErrBodyMismatch},
		{"failing early", func() io.Reader { return io.MultiReader(strings.NewReader(body[:5]), iotest.ErrReader(errGone)) }, n, right, errGone},
		{"failing early, of unknown length", func() io.Reader { return io.MultiReader(strings.NewReader(body[:5]), iotest.ErrReader(errGone)) }, -1, right, errGone},
		{"failing where the end is due", func() io.Reader { return io.MultiReader(strings.NewReader(body), iotest.ErrReader(errGone)) }, n, right, errGone},
		{"cut off", func() io.Reader {
			return io.MultiReader(strings.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF))
		}, -1, right, io.ErrUnexpectedEOF},
	} {
		if row.src == nil {
			row.src = func() io.Reader { return strings.NewReader(body) }
		}
		for shape, wrap := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "halves": iotest.HalfReader, "its end with data": iotest.DataErrReader,
		} {
			c := CheckBody(wrap(row.src()), row.size, row.want)
			got, err := io.ReadAll(c)
			name := row.name + ", " + shape
			if row.err == nil {
				if err != nil || string(got) != body || !c.Complete() || c.Err() != nil || c.Len() != n {
					t.Errorf("%s: %q, %v, complete %t, Err %v, Len %d", name, got, err, c.Complete(), c.Err(), c.Len())
				}
				continue
			}
			if !errors.Is(err, row.err) || c.Complete() || !errors.Is(c.Err(), row.err) {
				t.Errorf("%s: %v, complete %t, Err %v, want %v", name, err, c.Complete(), c.Err(), row.err)
			}
			if row.size >= 0 && int64(len(got)) == row.size && row.size > 0 {
				t.Errorf("%s: all declared bytes came through, a store could take them for the object", name)
			}
			if n, again := c.Read(make([]byte, 8)); n != 0 || !errors.Is(again, row.err) {
				t.Errorf("%s: reading on gives %d, %v", name, n, again)
			}
		}
	}
}

// idle reads nothing, and says nothing.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// A large body is summed beside what its reader does, who may use the buffer for something else at once.
func TestALargeBodyIsSummedAsItWas(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 1<<16)
	right, wrong := digestsOf(body), digestsOf("another")
	for _, size := range []int64{int64(len(body)), -1} {
		for _, most := range []int{1 << 10, besideSize, largeSize, 3 * largeSize} {
			for _, want := range []Digests{right, {SHA256: wrong.SHA256}} {
				c := CheckBody(strings.NewReader(body), size, want)
				var got bytes.Buffer
				buf := make([]byte, most)
				var err error
				for err == nil {
					var n int
					n, err = c.Read(buf)
					got.Write(buf[:n])
					clear(buf)
				}
				if fine := bytes.Equal(want.SHA256, right.SHA256); fine != c.Complete() || fine && got.String() != body || !fine && (!errors.Is(err, ErrBodyMismatch) || size >= 0 && got.Len() == len(body)) {
					t.Errorf("%d bytes at a time of %d, rightly declared: %v: read %d, %v", most, size, fine, got.Len(), err)
				}
			}
		}
	}
}

func TestABodyThatNeitherGoesOnNorEndsIsGivenUp(t *testing.T) {
	c := CheckBody(io.MultiReader(strings.NewReader("body"), idle{}), 4, Digests{})
	if got, err := io.ReadAll(c); !errors.Is(err, io.ErrNoProgress) || c.Complete() || len(got) > 3 {
		t.Errorf("reading = %q, %v, complete %t, want %v", got, err, c.Complete(), io.ErrNoProgress)
	}
}

func TestAnEmptyBodyIsRightAsWell(t *testing.T) {
	for _, size := range []int64{0, -1} {
		c := CheckBody(strings.NewReader(""), size, digestsOf(""))
		if got, err := io.ReadAll(c); len(got) != 0 || err != nil || !c.Complete() {
			t.Errorf("size %d: %q, %v, complete %t", size, got, err, c.Complete())
		}
	}
}

func TestACheckedBodyIsNotCheckedTwice(t *testing.T) {
	c := CheckBody(strings.NewReader("x"), 1, Digests{})
	if CheckBody(c, 5, Digests{}) != c {
		t.Error("CheckBody of a CheckedBody is another one")
	}
}

func TestACheckedBodyReadsNoMoreThanOnePastItsEnd(t *testing.T) {
	src := strings.NewReader(strings.Repeat("x", 1000))
	if _, err := io.ReadAll(CheckBody(src, 10, Digests{})); !errors.Is(err, ErrBodyMismatch) || src.Len() != 989 {
		t.Errorf("a long body: %v, %d bytes left unread, want 989", err, src.Len())
	}
}

func TestAnyWayOfReadingGivesTheSameBody(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		body := make([]byte, rnd.IntN(5000))
		for i := range body {
			body[i] = byte(rnd.Uint32())
		}
		size := int64(len(body))
		if rnd.IntN(2) == 0 {
			size = -1
		}
		c := CheckBody(bytes.NewReader(body), size, digestsOf(string(body)))
		var got []byte
		for {
			p := make([]byte, rnd.IntN(700))
			n, err := c.Read(p)
			got = append(got, p[:n]...)
			if err == nil {
				continue
			}
			if !errors.Is(err, io.EOF) || !bytes.Equal(got, body) || !c.Complete() {
				t.Fatalf("%d bytes, declared %d: got %d, %v", len(body), size, len(got), err)
			}
			break
		}
	}
}

func FuzzCheckedBody(f *testing.F) {
	f.Add([]byte("body"), int64(4), true, byte(3))
	f.Add([]byte("body"), int64(5), false, byte(1))
	f.Add([]byte(""), int64(0), true, byte(0))
	f.Add([]byte("body"), int64(-1), true, byte(2))
	f.Fuzz(func(t *testing.T, body []byte, size int64, right bool, step byte) {
		want := digestsOf(string(body))
		if !right {
			want.SHA256[0] ^= 1
		}
		c := CheckBody(iotest.DataErrReader(bytes.NewReader(body)), size, want)
		var got []byte
		var err error
		for err == nil {
			p := make([]byte, int(step)+1)
			var n int
			n, err = c.Read(p)
			got = append(got, p[:n]...)
		}
		whole := right && (size < 0 || size == int64(len(body)))
		if whole != errors.Is(err, io.EOF) || whole != c.Complete() || whole && !bytes.Equal(got, body) {
			t.Fatalf("%d bytes, declared %d, digests right %t: got %d, %v, complete %t", len(body), size, right, len(got), err, c.Complete())
		}
		if !whole && CodeOf(err) != CodeBodyMismatch {
			t.Fatalf("%d bytes, declared %d, digests right %t: %v", len(body), size, right, err)
		}
	})
}
