package storetest

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var concurrentChecks = []check{
	{"readers beside writers read one whole version", needWrite, checkWholeVersions},
	{"an open body outlives an overwrite and a delete", needWrite, checkOpenBody},
	{"neighbours come and go without harm", needWrite, checkNeighbours},
	{"lists beside writers stay sorted", needWrite | needList, checkListBesideWriters},
}

// pace holds up the nth look beside writers, who would else get little of the processor if the store answers at once.
func (p *probe) pace(n int) {
	if n < Times(20, 1000) {
		return
	}
	select {
	case <-time.After(time.Millisecond):
	case <-p.ctx.Done():
	}
}

// version is a body that shows by every byte which one it is.
func version(i int) string { return strings.Repeat(string(rune('a'+i%26)), 40_000+i%26) }

// wholeVersion tells whether got is such a body, or a part of one.
func wholeVersion(got string, part bool) bool {
	if got == "" {
		return false
	}
	return strings.Count(got, got[:1]) == len(got) && (part || got == version(int(got[0]-'a')))
}

func checkWholeVersions(p *probe) {
	const writing, reading = 3, 4
	rounds := Times(4, 12)
	p.put("hot", version(0), muxcore.PutOptions{})
	var left atomic.Int32
	left.Store(writing)
	p.parallel(writing+reading, func(i int) {
		if i < writing {
			defer left.Add(-1)
			for n := range rounds {
				body := version(i*rounds + n)
				if _, err := p.store.Put(p.ctx, "hot", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
					p.errorf("Put beside others = %v", err)
					return
				}
			}
			return
		}
		for n, done := 0, false; !done; n++ {
			done = left.Load() == 0 // once more after the last write
			p.pace(n)
			p.readVersion(i%2 == 0)
		}
	})
}

func (p *probe) readVersion(part bool) {
	var opts muxcore.GetOptions
	if part {
		opts.Range = muxcore.Range{Offset: 100, Length: 30_000}
	}
	o, got, err := p.get(p.ctx, "hot", opts)
	for gaps := 0; p.h.Gaps && gaps < 3 && muxcore.CodeOf(err) == muxcore.CodeKeyNotFound; gaps++ {
		o, got, err = p.get(p.ctx, "hot", opts)
	}
	switch {
	case err != nil:
		p.errorf("Get beside writers = %v", err)
	case !wholeVersion(got, part):
		p.errorf("Get beside writers mixes versions, or is cut: %s", brief(got))
	case !part && o.Size >= 0 && o.Size != int64(len(got)):
		p.errorf("Get beside writers: Size = %d with a body of %d bytes", o.Size, len(got))
	}
}

func checkOpenBody(p *probe) {
	for name, change := range map[string]func(key string){
		"an overwrite": func(key string) { p.put(key, pattern(90_000, 9), muxcore.PutOptions{}) },
		"a delete":     func(key string) { p.remove(key) },
	} {
		key := "open/" + strings.ReplaceAll(name, " ", "-")
		body := pattern(200_000, 8)
		p.put(key, body, muxcore.PutOptions{})
		o, err := p.store.Get(p.ctx, key, muxcore.GetOptions{})
		if err != nil {
			p.fatalf("Get = %v", err)
		}
		first := make([]byte, 1000)
		if _, err := io.ReadFull(o.Body, first); err != nil {
			p.errorf("reading the beginning: %v", err)
		}
		change(key)
		rest, err := io.ReadAll(o.Body)
		o.Body.Close()
		got := string(first) + string(rest)
		if got != body[:min(len(got), len(body))] || err == nil && len(got) != len(body) {
			p.errorf("a body across %s yields %s, %v: neither its version whole nor an error", name, brief(got), err)
		}
	}
}

// checkNeighbours lets objects of one folder come and go: a store that makes and removes folders must not lose any.
func checkNeighbours(p *probe) {
	const houses = 8
	key := func(n, i int) string { return fmt.Sprintf("street/%d/house/%d", n%2, i) }
	put := func(n, i int) {
		body := key(n, i)
		if _, err := p.store.Put(p.ctx, body, strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
			p.errorf("Put(%q) beside neighbours = %v", body, err)
		}
	}
	look := func(n, i int) {
		if _, got, err := p.get(p.ctx, key(n, i), muxcore.GetOptions{}); err != nil || got != key(n, i) {
			p.errorf("Get(%q) beside neighbours = %q, %v", key(n, i), got, err)
		}
	}
	leave := func(n, i int) {
		if _, err := p.store.Delete(p.ctx, key(n, i), muxcore.DeleteOptions{}); err != nil {
			p.errorf("Delete(%q) beside neighbours = %v", key(n, i), err)
		}
	}
	p.parallel(houses, func(i int) { // each as it likes
		for n := range Times(2, 4) {
			put(n, i)
			look(n, i)
			leave(n, i)
		}
	})
	p.parallel(houses, func(i int) { put(0, i) })
	p.parallel(houses, func(i int) { // half of them move, the others stay
		if i%2 > 0 {
			leave(0, i)
		}
		look(0, i/2*2)
	})
	for i := 0; i < houses; i += 2 {
		look(0, i)
		leave(0, i)
	}
	if p.caps.List {
		p.wantList(muxcore.ListOptions{})
	}
}

func checkListBesideWriters(p *probe) {
	for i := range 20 {
		p.put(fmt.Sprintf("stay/%02d", i), "x", muxcore.PutOptions{})
	}
	var left atomic.Int32
	left.Store(2)
	p.parallel(4, func(i int) {
		if i < 2 {
			defer left.Add(-1)
			for n := range Times(5, 15) {
				key := fmt.Sprintf("stay/%02d-%d/%d", n, i, n)
				if i == 0 {
					key = fmt.Sprintf("stay/%02d-flat", n)
				}
				if _, err := p.store.Put(p.ctx, key, strings.NewReader("y"), 1, muxcore.PutOptions{}); err != nil {
					p.errorf("Put beside lists = %v", err)
				}
				if _, err := p.store.Delete(p.ctx, key, muxcore.DeleteOptions{}); err != nil {
					p.errorf("Delete beside lists = %v", err)
				}
			}
			return
		}
		for n, done := 0, false; !done; n++ {
			done = left.Load() == 0 // once more after the last write
			p.pace(n)
			stay := 0
			for _, e := range p.list(muxcore.ListOptions{Prefix: "stay/"}) {
				if len(e.Key) == len("stay/00") {
					stay++
				}
			}
			if stay != 20 {
				p.errorf("a list beside writers shows %d of 20 objects that nobody touches", stay)
			}
		}
	})
}
