package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var keyChecks = []check{
	{"keys are bytes and come back as they were", needWrite, checkOddKeys},
	{"keys that look alike are different objects", needWrite, checkLookalikes},
	{"a store refuses a key it cannot hold and changes nothing", needWrite, checkNarrowKeys},
	{"keys that no store may hold are refused by every operation", 0, checkRefusedKeys},
	{"a key below an object is held or is a conflict", needWrite, checkKeyConflict},
	{"the internal prefix holds objects", needWrite, checkInternal},
}

// plainKeys must be held by every store.
var plainKeys = []string{
	"a", "plain.txt", "dir/file", "n/e/s/t/e/d", "UPPER/lower", "with space", "dir with space/file name.txt",
	"a+b", "percent%41", "100%", "%2e%2e/x", "q?uery=1&x=2", "frag#ment", "amp&ersand", "semi;colon,comma", "equal=sign",
	"at@sign", "dollar$", "paren(1)[2]{3}", "quote'single", "tilde~end", "excl!amation", "caret^", "back`tick", "emoji-😀/🎉.png",
	"Grüße/日本語/файл", "caf\u00e9", "-dash", "_under", ".hidden", ".well-known/x", "..two", "a..b", "x/.y/..z",
	"index.html", "a%2Fb", "a%252Fb", "\u200bzero-width", "\u202eoverride", "null", "0", "true", ".storage", ".storage-mux",
	"storage_mux/x", strings.Repeat("long/", 203) + "longest99", strings.Repeat("x", 200),
}

// oddKeys may be refused by a store whose key rule is narrower.
var oddKeys = []string{
	"dot.", "...", "dir./file", "space ", "dir /file", " leading", "x.txt::$DATA", "c:colon", "CON", "con.txt", "aux/x", "PROGRA~1", "LPT1.log",
	`quote"double`, "star*", "pipe|", "less<more>", strings.Repeat("y", 255), strings.Repeat("z", muxcore.MaxKeyLength),
	strings.Repeat("é", 150), "a:b",
}

func checkOddKeys(p *probe) {
	for i, key := range plainKeys {
		if len(key) > muxcore.MaxKeyLength {
			p.fatalf("the suite's own key is too long: %d", len(key))
		}
		if err := muxcore.CheckKeyOf(p.store, key); err != nil {
			p.errorf("CheckKeyOf(%.60q) = %v: every store must hold it", key, err)
		}
		p.attempt(func() { p.put(key, fmt.Sprintf("%d %s", i, key), muxcore.PutOptions{}) })
	}
	for i, key := range plainKeys {
		p.holds(key, fmt.Sprintf("%d %s", i, key))
	}
}

// attempt goes on with the check after a fatal problem in f.
func (p *probe) attempt(f func()) {
	defer func() {
		if r := recover(); r != nil && r != (stop{}) {
			panic(r)
		}
	}()
	f()
}

// lookalikes are groups of keys that careless code takes for one.
var lookalikes = [][]string{
	{"p+q", "p q", "p%2Bq", "p%20q"},
	{"up/%41", "up/A1", "up/%2541"},
	{"x.html", "x.htm", "x.html~"},
	{"d/e", "d%2Fe", "d%2fe"},
	{"s/k", "s.k", "s_k", "s-k"},
	{"p/a.b", "p/a.b~", "p/a_b"},
}

// folded are those that some file systems cannot tell apart.
var folded = [][]string{
	{"Case", "case", "CASE"},
	{"nf/caf\u00e9", "nf/cafe\u0301"},
	{"nf/\u212b", "nf/\u00c5", "nf/A\u030a"},
}

func checkLookalikes(p *probe) {
	groups := slices.Clone(lookalikes)
	if !p.h.FoldsNames {
		groups = append(groups, folded...)
	}
	for _, group := range groups {
		for _, key := range group {
			p.put(key, "object "+key, muxcore.PutOptions{})
		}
	}
	for _, group := range groups {
		for _, key := range group {
			p.holds(key, "object "+key)
		}
		p.remove(group[0])
		p.absent(group[0])
		for _, key := range group[1:] {
			p.holds(key, "object "+key)
		}
	}
}

func (p *probe) remove(key string) {
	if _, err := p.store.Delete(p.ctx, key, muxcore.DeleteOptions{}); err != nil {
		p.fatalf("Delete(%.60q) = %v", key, err)
	}
}

func checkNarrowKeys(p *probe) {
	_, narrower := p.store.(muxcore.KeyChecker)
	for _, key := range oddKeys {
		rule := muxcore.CheckKeyOf(p.store, key)
		_, err := p.store.Put(p.ctx, key, strings.NewReader("odd"), 3, muxcore.PutOptions{})
		switch {
		case rule == nil && err == nil:
			p.holds(key, "odd")
		case rule == nil:
			p.errorf("CheckKeyOf(%.60q) = nil, but Put(%.60q) = %v", key, key, err)
		case !narrower:
			p.errorf("CheckKeyOf(%.60q) = %v, but the store has no CheckKey", key, rule)
		default:
			p.code(fmt.Sprintf("CheckKeyOf(%.60q)", key), rule, muxcore.CodeInvalidKey)
			p.code(fmt.Sprintf("Put(%.60q)", key), err, muxcore.CodeInvalidKey)
			_, err := p.store.Get(p.ctx, key, muxcore.GetOptions{})
			p.code(fmt.Sprintf("Get(%.60q)", key), err, muxcore.CodeInvalidKey, muxcore.CodeKeyNotFound)
		}
	}
}

var refusedKeys = []string{
	"", "/", "/a", "a/", "a//b", ".", "..", "./a", "../a", "a/.", "a/..", "a/./b", "a/../b", "a/b/..", `a\b`, `..\a`,
	"nul\x00byte", "new\nline", "tab\tbed", "del\x7f", "c1\u0085", "bad\xffutf8", "\xc3\x28", strings.Repeat("x", muxcore.MaxKeyLength+1),
	".storage_mux", ".storage_mux/x", ".storage_mux-tmp-1", "a/.storage_mux-meta", "a/.storage_mux/storage/b", ".storage_mux/storage",
	".storage_mux/storage/", ".storage_mux/storage/../x", ".storage_mux/storage/.storage_mux/x", ".storage_mux/storage//x",
	".storage_mux/journal/x", ".storage_muxx/storage/a", ".STORAGE_MUX/storage/a", ".\u200cstorage_mux/storage/a", "a/.ﬆorage_Mux",
}

func checkRefusedKeys(p *probe) {
	for _, key := range refusedKeys {
		p.code(fmt.Sprintf("CheckKeyOf(%.60q)", key), muxcore.CheckKeyOf(p.store, key), muxcore.CodeInvalidKey)
		_, err := p.store.Get(p.ctx, key, muxcore.GetOptions{})
		p.code(fmt.Sprintf("Get(%.60q)", key), err, muxcore.CodeInvalidKey)
		_, err = p.store.Stat(p.ctx, key, muxcore.Conditions{})
		p.code(fmt.Sprintf("Stat(%.60q)", key), err, muxcore.CodeInvalidKey)
		if !p.caps.Write {
			continue
		}
		_, err = p.store.Put(p.ctx, key, strings.NewReader("x"), 1, muxcore.PutOptions{})
		p.code(fmt.Sprintf("Put(%.60q)", key), err, muxcore.CodeInvalidKey)
		_, err = p.store.Delete(p.ctx, key, muxcore.DeleteOptions{})
		p.code(fmt.Sprintf("Delete(%.60q)", key), err, muxcore.CodeInvalidKey)
	}
	if p.caps.List {
		if got := p.list(muxcore.ListOptions{}); len(got) != 0 {
			p.errorf("List() = %v after nothing but refused keys", keysOf(got))
		}
	}
}

func checkKeyConflict(p *probe) {
	p.put("top", "file", muxcore.PutOptions{})
	p.put("tree/leaf", "leaf", muxcore.PutOptions{})
	for _, try := range []struct{ key, at, body string }{
		{"top/below", "top", "file"},
		{"tree", "tree/leaf", "leaf"},
		{"tree/leaf/deep/er", "tree/leaf", "leaf"},
	} {
		p.absent(try.key)
		_, err := p.store.Put(p.ctx, try.key, strings.NewReader("x"), 1, muxcore.PutOptions{})
		if err == nil {
			p.holds(try.key, "x")
			p.remove(try.key)
		} else {
			p.code(fmt.Sprintf("Put(%q) beside %q", try.key, try.at), err, muxcore.CodeKeyConflict)
			p.absent(try.key)
			_, err := p.store.Delete(p.ctx, try.key, muxcore.DeleteOptions{})
			p.code(fmt.Sprintf("Delete(%q)", try.key), err, muxcore.CodeKeyNotFound)
		}
		p.holds(try.at, try.body)
	}
	p.remove("tree/leaf")
	p.put("tree", "now an object", muxcore.PutOptions{})
	p.holds("tree", "now an object")
}

func checkInternal(p *probe) {
	key := muxcore.InternalPrefix + "certificates/example.com/key.pem"
	p.absent(key)
	p.put(key, "secret", muxcore.PutOptions{})
	p.holds(key, "secret")
	p.put("visible", "x", muxcore.PutOptions{})
	if p.caps.List {
		p.wantList(muxcore.ListOptions{}, "visible")
		p.wantList(muxcore.ListOptions{Prefix: "."})
		p.wantList(muxcore.ListOptions{Delimiter: "/"}, "visible")
		p.wantList(muxcore.ListOptions{Prefix: muxcore.InternalPrefix}, key)
		p.wantList(muxcore.ListOptions{Prefix: muxcore.InternalPrefix, Delimiter: "/"}, muxcore.InternalPrefix+"certificates/")
		p.wantList(muxcore.ListOptions{Prefix: muxcore.InternalPrefix + "certificates/ex"}, key)
	}
	p.remove(key)
	p.absent(key)
}
