package storetest

import (
	"bytes"
	"errors"
	"io"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var bodyChecks = []check{
	{"a file behind the body stands at the right byte", needObjects, checkFileBody},
	{"a body that writes itself writes what it would read", needObjects, checkWriterTo},
	{"a body that seeks stays within what was opened", needObjects, checkSeeker},
	{"a body may be closed twice and is then over", needObjects, checkCloseTwice},
	{"a body may be closed while it is read", needObjects, checkCloseMeanwhile},
	{"a read of nothing takes nothing", needObjects, checkEmptyRead},
}

// parts are the ranges of a long object for which zero-copy must agree with reading.
var parts = []muxcore.Range{{}, {Offset: 10}, {Offset: 5000, Length: 40_000}, {Offset: -3}, {Length: 1}}

const longSize = 70_000

// eachPart opens parts of an object, and hands on the body and what it must yield.
func (p *probe) eachPart(f func(r muxcore.Range, o *muxcore.Object, want string)) {
	body := pattern(longSize, 3)
	p.put("zero/copy", body, muxcore.PutOptions{})
	for _, r := range parts {
		want, _ := oracle(body, r)
		o, err := p.store.Get(p.ctx, "zero/copy", muxcore.GetOptions{Range: r})
		if err != nil {
			p.fatalf("Get of %+v = %v", r, err)
		}
		f(r, o, want)
		o.Body.Close()
	}
}

func checkFileBody(p *probe) {
	p.eachPart(func(r muxcore.Range, o *muxcore.Object, want string) {
		f := muxcore.BodyFile(o.Body)
		if f == nil {
			return
		}
		got := make([]byte, o.Length)
		if _, err := io.ReadFull(f, got); err != nil || string(got) != want {
			p.errorf("BodyFile of %+v yields %s, %v, want %s", r, brief(string(got)), err, brief(want))
		}
	})
}

func checkWriterTo(p *probe) {
	p.eachPart(func(r muxcore.Range, o *muxcore.Object, want string) {
		w, ok := o.Body.(io.WriterTo)
		if !ok {
			return
		}
		first := make([]byte, 1)
		if _, err := io.ReadFull(o.Body, first); err != nil {
			p.errorf("reading a byte of %+v: %v", r, err)
			return
		}
		got := bytes.NewBuffer(first)
		n, err := w.WriteTo(got)
		if err != nil || got.String() != want || n != int64(len(want)-1) {
			p.errorf("WriteTo of %+v after a byte wrote %d bytes, in all %s, %v, want %s", r, n, brief(got.String()), err, brief(want))
		}
		if n, err := o.Body.Read(make([]byte, 8)); n != 0 || err != io.EOF {
			p.errorf("Read after WriteTo of %+v = %d, %v, want 0, EOF", r, n, err)
		}
	})
}

func checkSeeker(p *probe) {
	p.eachPart(func(r muxcore.Range, o *muxcore.Object, want string) {
		s, ok := o.Body.(io.Seeker)
		if !ok {
			return
		}
		if end, err := s.Seek(0, io.SeekEnd); err != nil || end != int64(len(want)) {
			p.errorf("Seek to the end of %+v = %d, %v, want %d", r, end, err, len(want))
		}
		if n, err := o.Body.Read(make([]byte, 8)); n != 0 || err != io.EOF {
			p.errorf("Read at the end of %+v = %d, %v, want 0, EOF", r, n, err)
		}
		if _, err := s.Seek(-1, io.SeekStart); err == nil {
			p.errorf("Seek before the beginning of %+v succeeds", r)
		}
		at, err := s.Seek(int64(len(want)/2), io.SeekStart)
		if err != nil || at != int64(len(want)/2) {
			p.errorf("Seek to the middle of %+v = %d, %v", r, at, err)
		}
		got, err := io.ReadAll(o.Body)
		if err != nil || string(got) != want[len(want)/2:] {
			p.errorf("reading %+v from its middle = %s, %v, want %s", r, brief(string(got)), err, brief(want[len(want)/2:]))
		}
		if at, err := s.Seek(-1, io.SeekCurrent); err != nil || at != int64(len(want)-1) {
			p.errorf("Seek one back from the end of %+v = %d, %v, want %d", r, at, err, len(want)-1)
		}
	})
}

func checkCloseTwice(p *probe) {
	p.put("closed", pattern(longSize, 4), muxcore.PutOptions{})
	o, err := p.store.Get(p.ctx, "closed", muxcore.GetOptions{})
	if err != nil {
		p.fatalf("Get = %v", err)
	}
	if _, err := io.ReadFull(o.Body, make([]byte, 100)); err != nil {
		p.errorf("reading: %v", err)
	}
	if err := o.Body.Close(); err != nil {
		p.errorf("Close of a body read in part = %v", err)
	}
	_ = o.Body.Close() // may say that it is closed, must not panic
	if n, err := o.Body.Read(make([]byte, 8)); n != 0 || err == nil || err == io.EOF {
		p.errorf("Read of a closed body = %d, %v, want an error other than EOF", n, err)
	}
}

func checkCloseMeanwhile(p *probe) {
	body := pattern(Times(1<<18, 1<<20), 5)
	p.put("closed", body, muxcore.PutOptions{})
	for round := range Times(4, 8) {
		o, err := p.store.Get(p.ctx, "closed", muxcore.GetOptions{})
		if err != nil {
			p.fatalf("Get = %v", err)
		}
		begun, closed := make(chan struct{}), make(chan struct{})
		p.parallel(2, func(i int) {
			if i > 0 {
				<-begun
				o.Body.Close()
				close(closed)
				return
			}
			got := make([]byte, 1000, len(body)+1)
			n, err := io.ReadFull(o.Body, got)
			got = got[:n]
			close(begun)
			if round%2 > 0 {
				<-closed // in the other rounds, reading and closing race
			}
			for err == nil {
				n, err = o.Body.Read(got[len(got):min(len(got)+1000, cap(got))])
				got = got[:len(got)+n]
			}
			if string(got) != body[:len(got)] || errors.Is(err, io.EOF) && len(got) != len(body) {
				p.errorf("a body closed while it is read yields %d of %d bytes, then %v", len(got), len(body), err)
			}
		})
	}
}

func checkEmptyRead(p *probe) {
	p.put("three", "abc", muxcore.PutOptions{})
	o, err := p.store.Get(p.ctx, "three", muxcore.GetOptions{})
	if err != nil {
		p.fatalf("Get = %v", err)
	}
	defer o.Body.Close()
	if n, err := o.Body.Read(nil); n != 0 || err != nil {
		p.errorf("Read of no bytes = %d, %v, want 0, nil", n, err)
	}
	if got, err := io.ReadAll(o.Body); err != nil || string(got) != "abc" {
		p.errorf("reading after a read of no bytes = %q, %v", got, err)
	}
}
