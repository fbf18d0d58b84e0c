package storetest

import (
	"errors"
	"fmt"
	"io"
	"testing/iotest"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var readChecks = []check{
	{"an absent object is not found", 0, func(p *probe) { p.absent("nothing/here") }},
	{"objects of every size are read whole", needObjects, checkSizes},
	{"an empty object is an object", needObjects, checkEmptyObject},
	{"validators and descriptions are stable", needObjects, checkStable},
	{"a failed read carries the contract's error", 0, checkErrorShape},
	{"a probe of a store that is well succeeds", 0, checkProbe},
}

var rangeChecks = []check{
	{"every range opens the bytes that an oracle says", needObjects, checkRanges},
	{"a range past the end is not satisfiable", needObjects, checkPastEnd},
	{"if-range decides between part and whole", needObjects, checkIfRange},
}

func checkSizes(p *probe) {
	for i, size := range []int{1, 2, 511, 4096, 65537, Times(1<<18, 1<<20) + 3} {
		key := fmt.Sprintf("size/%d", size)
		body := pattern(size, i)
		p.put(key, body, muxcore.PutOptions{})
		p.holds(key, body)

		o, err := p.store.Get(p.ctx, key, muxcore.GetOptions{})
		if err != nil {
			p.fatalf("Get(%q) = %v", key, err)
		}
		small, err := io.ReadAll(iotest.HalfReader(io.LimitReader(o.Body, int64(size)+1)))
		o.Body.Close()
		if err != nil || string(small) != body {
			p.errorf("Get(%q) read in small pieces = %s, %v, want %s", key, brief(string(small)), err, brief(body))
		}
	}
}

func checkEmptyObject(p *probe) {
	p.put("empty", "", muxcore.PutOptions{})
	info := p.holds("empty", "")
	if info.Size > 0 {
		p.errorf("Stat of an empty object: Size = %d", info.Size)
	}
	if p.caps.List {
		p.wantList(muxcore.ListOptions{}, "empty")
	}
	for _, r := range []muxcore.Range{{Length: 1}, {Offset: 1}, {Offset: -1}, {Offset: -5, Length: 2}, {Length: 100}} {
		_, got, err := p.get(p.ctx, "empty", muxcore.GetOptions{Range: r})
		if err == nil {
			p.errorf("Get of %+v of an empty object = %q, want RANGE_NOT_SATISFIABLE", r, got)
			continue
		}
		p.code(fmt.Sprintf("Get of %+v of an empty object", r), err, muxcore.CodeRangeNotSatisfiable)
		if info := muxcore.InfoOf(err); info == nil || info.Size != 0 {
			p.errorf("Get of %+v of an empty object: Error.Info = %+v, want one with Size 0", r, info)
		}
	}
}

func checkStable(p *probe) {
	p.put("stable", "the same bytes", muxcore.PutOptions{})
	first := p.holds("stable", "the same bytes")
	for range 3 {
		again := p.holds("stable", "the same bytes")
		p.same("the first Stat", &first, "a later one", &again)
	}
	if first.ETagStored && first.ETag == "" {
		p.errorf("Stat: ETagStored without an ETag")
	}
}

func checkErrorShape(p *probe) {
	_, err := p.store.Stat(p.ctx, "not/there", muxcore.Conditions{})
	if e, ok := errors.AsType[*muxcore.Error](err); !ok {
		p.errorf("Stat of nothing = %T (%v), want an error that wraps *muxcore.Error", err, err)
	} else if e.Error() == "" {
		p.errorf("Stat of nothing: the error says nothing")
	}
	if got := muxcore.Classify(p.ctx, err); got != muxcore.ClassSemantic {
		p.errorf("Classify(%v) = %v, want semantic: the store is well", err, got)
	}
}

func checkProbe(p *probe) {
	if err := muxcore.Probe(p.ctx, p.store, ""); err != nil {
		p.errorf("Probe = %v, want success", err)
	}
	if err := muxcore.Probe(p.ctx, p.store, "absent"); err != nil {
		p.errorf("Probe of an absent key = %v, want success: the store answers", err)
	}
}

// oracle says which bytes of body a range selects, one byte at a time.
func oracle(body string, r muxcore.Range) (part string, satisfiable bool) {
	if r == (muxcore.Range{}) {
		return body, true
	}
	var picked []byte
	for i := range len(body) {
		fromEnd := int64(len(body) - i)
		in := int64(i) >= r.Offset
		if r.Offset < 0 {
			in = fromEnd <= -r.Offset
		}
		if in && (r.Length == 0 || int64(len(picked)) < r.Length) {
			picked = append(picked, body[i])
		}
	}
	return string(picked), len(picked) > 0
}

func checkRanges(p *probe) {
	const body = "01234"
	p.put("digits", body, muxcore.PutOptions{})
	for offset := int64(-7); offset <= 7; offset++ {
		for length := int64(0); length <= 7; length++ {
			p.wantRange("digits", body, muxcore.Range{Offset: offset, Length: length})
		}
	}
	long := pattern(100_000, 7)
	p.put("long", long, muxcore.PutOptions{})
	for _, r := range []muxcore.Range{
		{},
		{Offset: 1},
		{Offset: 99_999},
		{Offset: 4095, Length: 4098},
		{Offset: 65_536, Length: 1},
		{Length: 65_537},
		{Offset: -1},
		{Offset: -70_000, Length: 3},
		{Offset: -100_000},
		{Offset: -100_001},
		{Offset: 50_000, Length: 1 << 40},
		{Offset: -1 << 62},
	} {
		p.wantRange("long", long, r)
	}
}

func (p *probe) wantRange(key, body string, r muxcore.Range) {
	want, ok := oracle(body, r)
	o, got, err := p.get(p.ctx, key, muxcore.GetOptions{Range: r})
	if !ok {
		p.code(fmt.Sprintf("Get(%q) of %+v", key, r), err, muxcore.CodeRangeNotSatisfiable)
		return
	}
	if err != nil || got != want {
		p.errorf("Get(%q) of %+v = %s, %v, want %s", key, r, brief(got), err, brief(want))
		return
	}
	offset := r.Offset
	if offset < 0 {
		offset = max(0, int64(len(body))+offset)
	}
	if o.Offset != offset {
		p.errorf("Get(%q) of %+v: Offset = %d, want %d", key, r, o.Offset, offset)
	}
	if o.Size != -1 && o.Size != int64(len(body)) {
		p.errorf("Get(%q) of %+v: Size = %d, want that of the whole object, %d", key, r, o.Size, len(body))
	}
}

func checkPastEnd(p *probe) {
	p.put("ten", "0123456789", muxcore.PutOptions{})
	for _, r := range []muxcore.Range{{Offset: 10}, {Offset: 10, Length: 1}, {Offset: 11}, {Offset: 1 << 40, Length: 5}, {Offset: 1<<63 - 1}} {
		_, got, err := p.get(p.ctx, "ten", muxcore.GetOptions{Range: r})
		if err == nil {
			p.errorf("Get of %+v of ten bytes = %q, want RANGE_NOT_SATISFIABLE", r, got)
			continue
		}
		p.code(fmt.Sprintf("Get of %+v of ten bytes", r), err, muxcore.CodeRangeNotSatisfiable)
		if info := muxcore.InfoOf(err); info == nil || info.Size != 10 {
			p.errorf("Get of %+v of ten bytes: Error.Info = %+v, want one with Size 10", r, info)
		}
	}
}

func checkIfRange(p *probe) {
	const body = "0123456789"
	p.put("ten", body, muxcore.PutOptions{})
	info := p.holds("ten", body)
	part := muxcore.Range{Offset: 3, Length: 4}
	want := func(ifRange, want string) {
		_, got, err := p.get(p.ctx, "ten", muxcore.GetOptions{Range: part, IfRange: ifRange})
		if err != nil || got != want {
			p.errorf("Get with If-Range %s = %q, %v, want %q (ETag %s, ModTime %v)", ifRange, got, err, want, info.ETag, info.ModTime)
		}
	}
	want("", body[3:7])
	want(`"another"`, body)
	want(`W/"another"`, body)
	want("nonsense", body)
	if muxcore.IsStrong(info.ETag) {
		want(info.ETag, body[3:7])
		want("W/"+info.ETag, body)
	}
	if !info.ModTime.IsZero() {
		want(httpDate(info.ModTime, 0), body[3:7])
		want(httpDate(info.ModTime, -3600), body)
		want(httpDate(info.ModTime, 3600), body)
	}
	_, got, err := p.get(p.ctx, "ten", muxcore.GetOptions{Range: muxcore.Range{Offset: 99}, IfRange: `"another"`})
	if err != nil || got != body {
		p.errorf("Get of a range past the end that If-Range rules out = %q, %v, want the whole", got, err)
	}
}
