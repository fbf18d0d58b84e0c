package muxcore

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestKeysFollowTheRule(t *testing.T) {
	long := strings.Repeat("x", MaxKeyLength)
	for _, row := range []struct {
		key           string
		outside, ours bool // admitted by CheckKey, by CheckStoreKey
	}{
		{"a", true, true},
		{"a/b/c", true, true},
		{"with space", true, true},
		{"a+b%20?#&=", true, true},
		{"日本/😀", true, true},
		{long, true, true},
		{long + "x", false, false},
		{strings.Repeat("é", 512), true, true},
		{strings.Repeat("é", 513), false, false},
		{"", false, false},
		{"/", false, false},
		{"/a", false, false},
		{"a/", false, false},
		{"a//b", false, false},
		{".", false, false},
		{"..", false, false},
		{"a/./b", false, false},
		{"a/..", false, false},
		{"...", true, true},
		{".a", true, true},
		{"a..b", true, true},
		{`a\b`, false, false},
		{"a\x00", false, false},
		{"a\n", false, false},
		{"a\x7f", false, false},
		{"a\u0085", false, false},
		{"a\u00a0", true, true},
		{"\xff", false, false},
		{"\xc0\xaf", false, false},
		{"\ufffd", true, true},
		{".storage_mux", false, false},
		{"a/.storage_muxy", false, false},
		{".STORAGE_MUX/storage/a", false, false},
		{"a/.Storage_Mux-tmp", false, false},
		{".ſtorage_mux", false, false},
		{".ﬆorage_mux", false, false},
		{".\u200cstorage_mux", false, false},
		{"\u00ad.storage_\ufe0fmux\u200d/x", false, false},
		{".storage_mux/STORAGE/a", false, false},
		{".STORAGE_MUX/storage/", false, false},
		{".ﬆ", true, true},
		{".\u200c", true, true},
		{".Storage-Mux", true, true},
		{".storage_mu", true, true},
		{"x.storage_mux", true, true},
		{".storage_mux/storage/a", false, true},
		{".storage_mux/storage/a/b", false, true},
		{".storage_mux/storage/", false, false},
		{".storage_mux/storage", false, false},
		{".storage_mux/other/a", false, false},
		{".storage_mux/storage/.storage_mux", false, false},
		{".storage_mux/storage/../a", false, false},
		{".storage_mux/storage//a", false, false},
		{InternalPrefix + long, false, false},
		{"a/.storage_mux/storage/b", false, false},
	} {
		for name, c := range map[string]struct {
			err  error
			want bool
		}{"CheckKey": {CheckKey(row.key), row.outside}, "CheckStoreKey": {CheckStoreKey(row.key), row.ours}} {
			if (c.err == nil) != c.want {
				t.Errorf("%s(%.50q) = %v, want admitted: %t", name, row.key, c.err, c.want)
			}
			if c.err != nil && CodeOf(c.err) != CodeInvalidKey {
				t.Errorf("%s(%.50q) = %v, want %s", name, row.key, c.err, CodeInvalidKey)
			}
		}
	}
}

func TestPrefixesCanBeginAKey(t *testing.T) {
	for prefix, want := range map[string]bool{
		"": true, "a": true, "a/": true, "a/b": true, ".": true, "..": true, "a/.": true, "a/..": true, ".storage": true, InternalPrefix: true, InternalPrefix + "a/": true,
		".storage_mux/": true, "/": false, "//": false, "a//": false, "/a": false, "./": false, "../": false, "a/../": false, "a/./b": false, `a\`: false,
		"\xff": false, "a\x00": false, "a/.storage_mux": false, ".storage_mux/other/": false, InternalPrefix + ".storage_mux": false,
	} {
		if err := CheckPrefix(prefix); (err == nil) != want {
			t.Errorf("CheckPrefix(%q) = %v, want admitted: %t", prefix, err, want)
		}
	}
}

func TestReservedKeysHideFromOtherLists(t *testing.T) {
	internal := InternalPrefix + "certs/a"
	for _, row := range []struct {
		prefix, key string
		hidden      bool
	}{
		{"", "a", false},
		{"", internal, true},
		{".", internal, true},
		{".storage_mux/", internal, false},
		{InternalPrefix, internal, false},
		{"", "a/.storage_mux-tmp-x", true},
		{"a/", "a/.storage_mux-tmp-x", true},
		{".storage_mux/", ".storage_mux/journal", true},
		{"", "a.storage_mux", false},
		{"", "a/.STORAGE_MUX/x", true},
		{InternalPrefix, ".STORAGE_MUX/storage/a", true},
	} {
		if got := HiddenFrom(row.prefix, row.key); got != row.hidden {
			t.Errorf("HiddenFrom(%q, %q) = %t, want %t", row.prefix, row.key, got, row.hidden)
		}
	}
}

// folded makes plain letters of those that fold to several, or to others than their lower case.
var folded = strings.NewReplacer("ſ", "s", "ﬅ", "st", "ﬆ", "st")

// seen leaves out what does not show.
func seen(segment string) string {
	return strings.Map(func(r rune) rune {
		for _, unseen := range []*unicode.RangeTable{unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector} {
			if unicode.Is(unseen, r) {
				return -1
			}
		}
		return r
	}, segment)
}

// naiveKey is the rule in the words of the contract, a byte and a segment at a time.
func naiveKey(key string) bool {
	if len(key) < 1 || len(key) > 1024 {
		return false
	}
	for rest := key; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		control := r < 0x20 || r >= 0x7f && r <= 0x9f
		if r == utf8.RuneError && size == 1 || control || r == '\\' {
			return false
		}
		rest = rest[size:]
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.HasPrefix(folded.Replace(strings.ToLower(seen(segment))), ".storage_mux") {
			return false
		}
	}
	return true
}

func FuzzCheckKey(f *testing.F) {
	for _, key := range []string{
		".STORAGE_MUX/x", ".ﬆorage\u200d_muX", "a", "a/b", "", "/", "a//b", "../a", "a/./b", "...", `a\b`, "a\x00", "\u0085", "\xff", ".storage_mux/x", ".storage_mux/storage/x",
		strings.Repeat("x/", 511) + "xy", strings.Repeat("é", 513), "nf/cafe\u0301", "\ufffd",
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		want := naiveKey(key)
		if err := CheckKey(key); (err == nil) != want {
			t.Fatalf("CheckKey(%q) = %v, want admitted: %t", key, err, want)
		}
		inner, internal := strings.CutPrefix(key, ".storage_mux/storage/")
		if err := CheckStoreKey(key); (err == nil) != (want || internal && len(key) <= 1024 && naiveKey(inner)) {
			t.Fatalf("CheckStoreKey(%q) = %v", key, err)
		}
		if CheckStoreKey(key) != nil {
			return
		}
		for i := range len(key) + 1 { // what begins a key is a prefix, if it is whole characters
			prefix := key[:i]
			if internal && i < len(InternalPrefix) || !utf8.ValidString(prefix) {
				continue
			}
			if err := CheckPrefix(prefix); err != nil {
				t.Fatalf("CheckPrefix(%q) = %v, but %q is a key", prefix, err, key)
			}
			if HiddenFrom(prefix, key) && !internal {
				t.Fatalf("HiddenFrom(%q, %q) = true", prefix, key)
			}
		}
	})
}
