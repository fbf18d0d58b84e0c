package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var contextChecks = []check{
	{"no operation starts after its context has ended", 0, checkEndedContext},
	{"a body whose context ends yields right bytes or that error", needObjects, checkContextInBody},
	{"a put whose context ends is whole or not at all", needWrite, checkContextInPut},
	{"a list whose context ends is whole or ends in that error", needWrite | needList, checkContextInList},
}

func checkEndedContext(p *probe) {
	if p.caps.Write {
		p.put("kept", "kept", muxcore.PutOptions{})
	}
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	ended := func(call string, err error) {
		if !errors.Is(err, context.Canceled) {
			p.errorf("%s with an ended context = %v, want an error that wraps context.Canceled", call, err)
		} else if _, ok := errors.AsType[*muxcore.Error](err); !ok {
			p.errorf("%s with an ended context = %T, want an error that wraps *muxcore.Error", call, err)
		} else if got := muxcore.Classify(ctx, err); got != muxcore.ClassAbort {
			p.errorf("%s with an ended context: Classify = %v, want abort", call, got)
		}
	}
	_, _, err := p.get(ctx, "kept", muxcore.GetOptions{})
	ended("Get", err)
	_, err = p.store.Stat(ctx, "kept", muxcore.Conditions{})
	ended("Stat", err)
	if p.caps.Write {
		_, err = p.store.Put(ctx, "kept", strings.NewReader("new"), 3, muxcore.PutOptions{})
		ended("Put", err)
		_, err = p.store.Delete(ctx, "kept", muxcore.DeleteOptions{})
		ended("Delete", err)
		p.holds("kept", "kept")
	}
	if p.caps.List {
		err = nil
		for _, e := range p.store.List(ctx, muxcore.ListOptions{}) {
			err = e
		}
		ended("List", err)
	}
}

func checkContextInBody(p *probe) {
	body := pattern(Times(1<<19, 3<<20), 2)
	p.put("large", body, muxcore.PutOptions{})
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	o, err := p.store.Get(ctx, "large", muxcore.GetOptions{})
	if err != nil {
		p.fatalf("Get = %v", err)
	}
	defer o.Body.Close()
	first := make([]byte, 1000)
	if _, err := io.ReadFull(o.Body, first); err != nil {
		p.errorf("reading the beginning: %v", err)
	}
	cancel()
	rest, err := io.ReadAll(o.Body)
	got := string(first) + string(rest)
	switch {
	case got != body[:min(len(got), len(body))] || len(got) > len(body):
		p.errorf("a body whose context ended yields wrong bytes")
	case err == nil && len(got) != len(body):
		p.errorf("a body whose context ended is cut at %d of %d bytes and ends in io.EOF", len(got), len(body))
	case err != nil && !errors.Is(err, context.Canceled):
		p.errorf("a body whose context ended = %v, want an error that wraps context.Canceled", err)
	}
}

// cancellingBody ends the context when half of it is read, and goes on or fails.
type cancellingBody struct {
	io.Reader
	cancel context.CancelFunc
	then   error
	left   int
}

func (b *cancellingBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		b.cancel()
		if b.then != nil {
			return 0, b.then
		}
	}
	n, err := b.Reader.Read(p[:min(len(p), 1000)])
	b.left -= n
	return n, err
}

func checkContextInPut(p *probe) {
	old, body := "old", pattern(100_000, 6)
	for _, then := range []error{nil, context.Canceled} {
		for _, size := range []int64{int64(len(body)), -1} {
			p.put("put", old, muxcore.PutOptions{})
			ctx, cancel := context.WithCancel(p.ctx)
			b := &cancellingBody{Reader: strings.NewReader(body), cancel: cancel, then: then, left: len(body) / 2}
			_, err := p.store.Put(ctx, "put", b, size, muxcore.PutOptions{})
			cancel()
			switch {
			case err == nil && then != nil:
				p.errorf("Put with a body that failed succeeds")
			case err == nil:
				p.holds("put", body)
			default:
				if !errors.Is(err, context.Canceled) {
					p.errorf("Put whose context ended = %v, want an error that wraps context.Canceled", err)
				}
				_, got, err := p.get(p.ctx, "put", muxcore.GetOptions{})
				if err != nil || got != old && (then != nil || got != body) {
					p.errorf("after a Put whose context ended: Get = %s, %v, want one version whole", brief(got), err)
				}
			}
		}
	}
}

func checkContextInList(p *probe) {
	const n = 30
	for i := range n {
		p.put(fmt.Sprintf("l/%02d/x", i), "x", muxcore.PutOptions{})
	}
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	seen := 0
	for e, err := range p.store.List(ctx, muxcore.ListOptions{}) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				p.errorf("List whose context ended = %v, want an error that wraps context.Canceled", err)
			}
			return
		}
		if want := fmt.Sprintf("l/%02d/x", seen); e.Key != want {
			p.errorf("entry %d of a list whose context ends = %q, want %q", seen, e.Key, want)
		}
		if seen++; seen == 3 {
			cancel()
		}
	}
	if seen != n {
		p.errorf("a list whose context ended yields %d of %d entries and no error", seen, n)
	}
}
