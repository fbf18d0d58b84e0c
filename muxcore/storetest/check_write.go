package storetest

import (
	"crypto/md5" // what clients declare as Content-MD5
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing/iotest"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var writeChecks = []check{
	{"bodies of known and unknown length are kept", needWrite, checkLengths},
	{"a body is neither closed nor read after Put returns", needWrite, checkBodyManners},
	{"a short or long body changes nothing", needWrite, checkWrongLength},
	{"a body that fails changes nothing", needWrite, checkFailingBody},
	{"a wrong digest changes nothing", needWrite, checkDigests},
	{"an overwrite replaces the whole object", needWrite, checkOverwrite},
	{"a deleted object is gone", needWrite, checkDelete},
}

func digestsOf(body string) muxcore.Digests {
	b := []byte(body)
	m, s2, s5 := md5.Sum(b), sha256.Sum256(b), sha512.Sum512(b)
	return muxcore.Digests{MD5: m[:], SHA256: s2[:], SHA512: s5[:]}
}

func checkLengths(p *probe) {
	for i, reader := range []struct {
		name string
		wrap func(io.Reader) io.Reader
	}{
		{"plain", func(r io.Reader) io.Reader { return r }},
		{"byte by byte", iotest.OneByteReader},
		{"EOF with data", iotest.DataErrReader},
		{"halves", iotest.HalfReader},
		{"idle reads", func(r io.Reader) io.Reader { return &idleReader{r: r} }},
	} {
		for j, size := range []int{0, 1, 5000, 33_000} {
			for k, declared := range []int64{int64(size), -1} {
				if !Thorough && (i+j+k)%2 > 0 {
					continue // each two of them are tried together
				}
				key, body := fmt.Sprintf("length/%d-%d-%d", i, j, k), pattern(size, i+j+k)
				res, err := p.store.Put(p.ctx, key, reader.wrap(strings.NewReader(body)), declared, muxcore.PutOptions{})
				if err != nil {
					p.errorf("Put of %d bytes (%s), declared %d = %v", size, reader.name, declared, err)
					continue
				}
				p.describes("Put", &res.Info, key, body)
				p.holds(key, body)
			}
		}
	}
}

// idleReader returns nothing and no error before each read, as readers may.
type idleReader struct {
	r    io.Reader
	busy bool
}

func (r *idleReader) Read(b []byte) (int, error) {
	if r.busy = !r.busy; r.busy {
		return 0, nil
	}
	return r.r.Read(b)
}

// strictBody notices who reads it late or closes it.
type strictBody struct {
	io.Reader
	returned, late, closed atomic.Bool
}

func (b *strictBody) Read(p []byte) (int, error) {
	if b.returned.Load() {
		b.late.Store(true)
	}
	return b.Reader.Read(p)
}

// Close implements io.Closer.
func (b *strictBody) Close() error {
	b.closed.Store(true)
	return nil
}

func checkBodyManners(p *probe) {
	try := func(name string, body io.Reader, size int64, opts muxcore.PutOptions) {
		b := &strictBody{Reader: body}
		_, _ = p.store.Put(p.ctx, "manners", b, size, opts)
		b.returned.Store(true)
		p.holdsIfAny("manners")
		if b.closed.Load() {
			p.errorf("Put of %s closed the body", name)
		}
		if b.late.Load() {
			p.errorf("Put of %s read the body after it had returned", name)
		}
	}
	try("a body", strings.NewReader("good"), 4, muxcore.PutOptions{})
	try("a body of unknown length", strings.NewReader("good"), -1, muxcore.PutOptions{})
	try("a long body", strings.NewReader(pattern(1<<18, 1)), 4, muxcore.PutOptions{})
	try("a short body", strings.NewReader("short"), 1<<18, muxcore.PutOptions{})
	try("a failing body", io.MultiReader(strings.NewReader("part"), iotest.ErrReader(errBody)), 1<<18, muxcore.PutOptions{})
	try("a body with a wrong digest", strings.NewReader("good"), 4, muxcore.PutOptions{Digests: muxcore.Digests{SHA256: make([]byte, 32)}})
}

// holdsIfAny reads an object that may be there, to give a late reader of a body its time.
func (p *probe) holdsIfAny(key string) {
	if _, _, err := p.get(p.ctx, key, muxcore.GetOptions{}); err != nil {
		p.code("Get", err, muxcore.CodeKeyNotFound)
	}
}

// changesNothing runs a Put that must fail, over nothing and over an object, and gives its errors to judge.
func (p *probe) changesNothing(name string, put func(key string) error, judge func(call string, err error)) {
	call := "Put of " + name
	fresh := "nothing/" + strings.ReplaceAll(name, " ", "-")
	judge(call, put(fresh))
	p.absent(fresh)

	old := "something/" + strings.ReplaceAll(name, " ", "-")
	p.put(old, "the old object", muxcore.PutOptions{})
	before := p.holds(old, "the old object")
	judge(call+" over an object", put(old))
	after := p.holds(old, "the old object")
	p.same("before "+call, &before, "after it", &after)
	if p.caps.List {
		p.wantList(muxcore.ListOptions{Prefix: "nothing/"})
	}
}

func checkWrongLength(p *probe) {
	large := Times(3<<17, 1<<20)
	for _, try := range []struct {
		name     string
		size     int
		declared int
	}{
		{"one byte less than declared", 99, 100},
		{"no byte of those declared", 0, 100},
		{"half of a large body", large / 2, large},
		{"one byte more than declared", 101, 100},
		{"a byte where none is declared", 1, 0},
		{"much more than declared", large, large / 2},
	} {
		body := pattern(try.size, 1)
		p.changesNothing(try.name, func(key string) error {
			_, err := p.store.Put(p.ctx, key, strings.NewReader(body), int64(try.declared), muxcore.PutOptions{})
			return err
		}, func(call string, err error) { p.code(call, err, muxcore.CodeBodyMismatch) })
	}
}

var errBody = errors.New("the uploader hung up")

func checkFailingBody(p *probe) {
	for i, failure := range []error{errBody, io.ErrUnexpectedEOF, fmt.Errorf("wrapped: %w", io.EOF)} {
		for j, declared := range []int64{-1, 1 << 20} {
			for k, size := range []int{0, 10, 1 << 18} {
				if errors.Is(failure, io.EOF) && declared < 0 {
					continue // whether a wrapped io.EOF ends a body of unknown length is the reader's fault
				}
				if !Thorough && !errors.Is(failure, io.EOF) && (i+j+k)%2 > 0 {
					continue // each two of them are tried together
				}
				name := fmt.Sprintf("%d bytes of %d, then %v", size, declared, failure)
				p.changesNothing(name, func(key string) error {
					body := io.MultiReader(strings.NewReader(pattern(size, 1)), iotest.ErrReader(failure))
					_, err := p.store.Put(p.ctx, key, body, declared, muxcore.PutOptions{})
					return err
				}, func(call string, err error) {
					if err == nil {
						p.errorf("%s succeeds", call)
					} else if !errors.Is(err, failure) && muxcore.CodeOf(err) != muxcore.CodeBodyMismatch {
						p.errorf("%s = %v, want an error that wraps %v", call, err, failure)
					}
				})
			}
		}
	}
}

func checkDigests(p *probe) {
	const body = "digested"
	right := digestsOf(body)
	p.put("right/all", body, muxcore.PutOptions{Digests: right})
	p.holds("right/all", body)
	for name, d := range map[string]muxcore.Digests{
		"MD5":    {MD5: right.MD5},
		"SHA256": {SHA256: right.SHA256},
		"SHA512": {SHA512: right.SHA512},
	} {
		p.put("right/"+name, body, muxcore.PutOptions{Digests: d})
		p.holds("right/"+name, body)
	}
	wrong := digestsOf("something else")
	for name, d := range map[string]muxcore.Digests{
		"a wrong MD5":                    {MD5: wrong.MD5},
		"a wrong SHA256":                 {SHA256: wrong.SHA256},
		"a wrong SHA512":                 {SHA512: wrong.SHA512},
		"a right MD5 and a wrong SHA512": {MD5: right.MD5, SHA512: wrong.SHA512},
		"a truncated SHA256":             {SHA256: right.SHA256[:16]},
	} {
		for _, size := range []int64{int64(len(body)), -1} {
			p.changesNothing(fmt.Sprintf("a body with %s, declared %d", name, size), func(key string) error {
				_, err := p.store.Put(p.ctx, key, strings.NewReader(body), size, muxcore.PutOptions{Digests: d})
				return err
			}, func(call string, err error) { p.code(call, err, muxcore.CodeBodyMismatch) })
		}
	}
}

func checkOverwrite(p *probe) {
	bodies := []string{pattern(1000, 1), "short", "SHORT", "", pattern(70_000, 2), "x"}
	var last muxcore.Info
	for i, body := range bodies {
		res := p.put("again", body, muxcore.PutOptions{})
		if res.Existed != (i > 0) {
			p.errorf("Put number %d: Existed = %t", i+1, res.Existed)
		}
		info := p.holds("again", body)
		if res.ETag != "" && info.ETag != res.ETag {
			p.errorf("Put says ETag %s, Stat says %s", res.ETag, info.ETag)
		}
		if i > 0 && muxcore.IsStrong(info.ETag) && info.ETag == last.ETag {
			p.errorf("two versions with different bytes share the strong ETag %s", info.ETag)
		}
		last = info
	}
}

func checkDelete(p *probe) {
	_, err := p.store.Delete(p.ctx, "never", muxcore.DeleteOptions{})
	p.code("Delete of nothing", err, muxcore.CodeKeyNotFound)
	for _, key := range []string{"flat", "deep/er/still", "deep/sibling"} {
		p.put(key, key, muxcore.PutOptions{})
	}
	p.remove("flat")
	p.absent("flat")
	p.remove("deep/er/still")
	p.absent("deep/er/still")
	p.absent("deep/er")
	p.holds("deep/sibling", "deep/sibling")
	_, err = p.store.Delete(p.ctx, "flat", muxcore.DeleteOptions{})
	p.code("Delete of what is deleted", err, muxcore.CodeKeyNotFound)
	_, err = p.store.Delete(p.ctx, "deep", muxcore.DeleteOptions{})
	p.code("Delete of the beginning of keys", err, muxcore.CodeKeyNotFound)
	res := p.put("flat", "again", muxcore.PutOptions{})
	if res.Existed {
		p.errorf("Put over what is deleted: Existed = true")
	}
	p.holds("flat", "again")
	if p.caps.List {
		p.wantList(muxcore.ListOptions{}, "deep/sibling", "flat")
	}
}

// aWhileAgo is a time that no clock gives by chance.
var aWhileAgo = time.Date(2001, 2, 3, 4, 5, 6, 789_000_000, time.UTC)
