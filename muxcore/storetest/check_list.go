package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var listChecks = []check{
	{"an empty store lists nothing", needList, checkListNothing},
	{"every list is what an oracle says", needObjects | needList, checkListOracle},
	{"pages give each entry once", needObjects | needList, checkPages},
	{"a list may be broken off and run again", needObjects | needList, checkBreak},
	{"what an entry says is true", needObjects | needList, checkEntries},
	{"a prefix that no key can have lists nothing", needObjects | needList, checkBadPrefix},
	{"a long list is complete", needObjects | needList, checkLongList},
}

// list collects a list, and checks what holds for every one.
func (p *probe) list(opts muxcore.ListOptions) []muxcore.Entry {
	var entries []muxcore.Entry
	for e, err := range p.store.List(p.ctx, opts) {
		if err != nil {
			p.errorf("List(%+v) = %v", opts, err)
			return entries
		}
		if n := len(entries); n > 0 && entries[n-1].Key >= e.Key {
			p.errorf("List(%+v) yields %q after %q", opts, e.Key, entries[n-1].Key)
		}
		entries = append(entries, e)
		if opts.Limit > 0 && len(entries) > opts.Limit {
			p.errorf("List(%+v) yields more than its limit", opts)
			return entries
		}
		if len(entries) > 10_000 {
			p.fatalf("List(%+v) does not end", opts)
		}
	}
	return entries
}

func keysOf(entries []muxcore.Entry) []string {
	keys := []string{}
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}

// wantList demands exactly these keys and rolled-up prefixes.
func (p *probe) wantList(opts muxcore.ListOptions, want ...string) {
	entries := p.list(opts)
	if got := keysOf(entries); !slices.Equal(got, slices.Concat([]string{}, want)) {
		p.errorf("List(%s) = %q, want %q", showList(opts), got, want)
	}
	for _, e := range entries {
		rolled := opts.Delimiter != "" && strings.Contains(strings.TrimPrefix(e.Key, opts.Prefix), opts.Delimiter)
		if e.IsPrefix != rolled {
			p.errorf("List(%s): %q has IsPrefix = %t", showList(opts), e.Key, e.IsPrefix)
		}
	}
}

func showList(o muxcore.ListOptions) string {
	return fmt.Sprintf("prefix %q, delimiter %q, after %q, limit %d", o.Prefix, o.Delimiter, o.After, o.Limit)
}

func checkListNothing(p *probe) {
	p.wantList(muxcore.ListOptions{})
	p.wantList(muxcore.ListOptions{Prefix: "some/where"})
	p.wantList(muxcore.ListOptions{Prefix: "some/", Delimiter: "/", Limit: 10})
}

// listed are keys whose order as strings is not the order of folders and names.
var listed = []string{
	"a-b", "a.txt", "a/1", "a/2", "a/b-c/x", "a/b/x", "a/b/y", "a/b0", "a0", "b", "ba/n", "c d/e f", "c/d/e/f/g", "c/d/e-f", "c/d0",
	"photos/2024/01.jpg", "photos/2024/02.jpg", "photos/2025/01.jpg", "photos-old/x", "photos.txt", "z", "z-/y", "é/ü", "日本/語", "😀",
}

// oracleList is the list by the contract's words, by brute force.
func oracleList(keys []string, o muxcore.ListOptions) []string {
	var entries []string
	for _, key := range keys {
		if !strings.HasPrefix(key, o.Prefix) {
			continue
		}
		entry := key
		if o.Delimiter != "" {
			if before, _, ok := strings.Cut(key[len(o.Prefix):], o.Delimiter); ok {
				entry = o.Prefix + before + o.Delimiter
			}
		}
		if entry > o.After {
			entries = append(entries, entry)
		}
	}
	slices.Sort(entries)
	entries = slices.Compact(entries)
	if o.Limit > 0 && len(entries) > o.Limit {
		entries = entries[:o.Limit]
	}
	return entries
}

func checkListOracle(p *probe) {
	for _, key := range listed {
		p.put(key, key, muxcore.PutOptions{})
	}
	for _, o := range listOptions(Thorough) {
		p.wantList(o, oracleList(listed, o)...)
	}
}

// What the options of lists may be.
var (
	listPrefixes   = []string{"", "a", "a/", "a/b", "a/b/", "c", "photos", "photos/", "photos/2024/", "z", "é", "none", "none/", "b", "b/", "a/b/x", "."}
	listDelimiters = []string{"", "/", "-", "/2", "o"}
	listAfters     = []string{"", "a", "a/", "a/b", "a/b-c/x", "a/b/x", "a0", "photos/2024/01.jpg", "photos/2024/", "photos/2024/\xff", "zz", "~"}
	listLimits     = []int{0, 2}
)

// listOptions is every combination of them, or as few as try each two options together.
func listOptions(every bool) []muxcore.ListOptions {
	var all []muxcore.ListOptions
	for i, prefix := range listPrefixes {
		for j, after := range listAfters {
			for k, delimiter := range listDelimiters {
				for l, limit := range listLimits {
					if every || k == (i+j)%len(listDelimiters) && l == (i+j)%len(listLimits) {
						all = append(all, muxcore.ListOptions{Prefix: prefix, Delimiter: delimiter, After: after, Limit: limit})
					}
				}
			}
		}
	}
	return all
}

func checkPages(p *probe) {
	for _, key := range listed {
		p.put(key, key, muxcore.PutOptions{})
	}
	for i, limit := range []int{1, 3, 7, 100} {
		for j, delimiter := range []string{"", "/", "-"} {
			if !Thorough && (i+j)%2 > 0 {
				continue // each of them is tried, if not with each other
			}
			whole := muxcore.ListOptions{Delimiter: delimiter}
			page := muxcore.ListOptions{Delimiter: delimiter, Limit: limit}
			var got []string
			for range len(listed) + 2 {
				entries := p.list(page)
				if len(entries) == 0 {
					break
				}
				got = append(got, keysOf(entries)...)
				page.After = entries[len(entries)-1].Key
			}
			if want := oracleList(listed, whole); !slices.Equal(got, want) {
				p.errorf("pages of %d with delimiter %q give %q, want %q", limit, delimiter, got, want)
			}
		}
	}
}

func checkBreak(p *probe) {
	for _, key := range listed {
		p.put(key, key, muxcore.PutOptions{})
	}
	seq := p.store.List(p.ctx, muxcore.ListOptions{})
	for n := 0; n < len(listed); n += Times(5, 1) {
		i := 0
		for e, err := range seq {
			if want := oracleList(listed, muxcore.ListOptions{})[i]; err != nil || e.Key != want {
				p.errorf("entry %d of a list run for the %dth time = %q, %v, want %q", i, n+1, e.Key, err, want)
			}
			if i++; i > n {
				break
			}
		}
	}
	if !p.caps.Write {
		return
	}
	p.put("b", "changed meanwhile", muxcore.PutOptions{})
	for _, err := range p.store.List(p.ctx, muxcore.ListOptions{}) {
		if err != nil {
			p.errorf("List = %v", err)
		}
		p.put("z", "changed inside of the loop", muxcore.PutOptions{})
		break
	}
	p.holds("z", "changed inside of the loop")
}

func checkEntries(p *probe) {
	for i, key := range listed {
		p.put(key, pattern(i, i), muxcore.PutOptions{})
	}
	for _, details := range []bool{false, true} {
		for _, e := range p.list(muxcore.ListOptions{Delimiter: "/", Details: details}) {
			if !e.IsPrefix {
				p.entry(e, details)
			} else if e.Size > 0 || e.ETag != "" || !e.ModTime.IsZero() {
				p.errorf("the rolled-up entry %q says more than its key: %+v", e.Key, e.Info)
			}
		}
	}
}

// entry compares an entry of a list with what Stat says. Without details it may say less.
func (p *probe) entry(e muxcore.Entry, details bool) {
	info, err := p.store.Stat(p.ctx, e.Key, muxcore.Conditions{})
	if err != nil {
		p.errorf("Stat(%q) of a listed key = %v", e.Key, err)
		return
	}
	if (details || e.Size >= 0) && e.Size != info.Size {
		p.errorf("List (details: %v) says %q has %d bytes, Stat says %d", details, e.Key, e.Size, info.Size)
	}
	if e.ETag != "" && e.ETag != info.ETag {
		p.errorf("List says %q has the ETag %s, Stat says %s", e.Key, e.ETag, info.ETag)
	}
	if d := e.ModTime.Sub(info.ModTime).Abs(); !e.ModTime.IsZero() && d > max(p.h.TimeResolution, 0) {
		p.errorf("List says %q was modified %v, Stat says %v", e.Key, e.ModTime, info.ModTime)
	}
}

func checkBadPrefix(p *probe) {
	p.put("a/b", "x", muxcore.PutOptions{})
	for _, prefix := range []string{"/", "//", "a//", "a/../", "../", "./", "a/./b", "a\\", "\x00", "\xff", "a/.storage_mux", ".storage_mux/other/"} {
		for e, err := range p.store.List(p.ctx, muxcore.ListOptions{Prefix: prefix}) {
			if err == nil {
				p.errorf("List(prefix %q) yields %q", prefix, e.Key)
				continue
			}
			p.code(fmt.Sprintf("List(prefix %q)", prefix), err, muxcore.CodeInvalidKey)
		}
	}
}

func checkLongList(p *probe) {
	n := cmp.Or(p.h.LongList, 100)
	if p.caps.Write {
		n = Times(n, 600) // to seed may cost as much as what is there already
	}
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("long/%04d", i))
	}
	if p.caps.Write {
		p.parallel(8, func(w int) {
			for i := w; i < n; i += 8 {
				if _, err := p.store.Put(p.ctx, want[i], strings.NewReader("x"), 1, muxcore.PutOptions{}); err != nil {
					p.errorf("Put(%q) = %v", want[i], err)
				}
			}
		})
	} else {
		for _, key := range want {
			p.put(key, "x", muxcore.PutOptions{})
		}
	}
	p.wantList(muxcore.ListOptions{}, want...)
	p.wantList(muxcore.ListOptions{Prefix: "long/", Limit: 10}, want[:10]...)
	p.wantList(muxcore.ListOptions{After: want[n/2]}, want[n/2+1:]...)
	p.wantList(muxcore.ListOptions{Delimiter: "/"}, "long/")
}
