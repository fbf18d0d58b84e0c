package muxcore

import "testing"

func TestKeysAreRolledUpToTheFirstDelimiterBelowThePrefix(t *testing.T) {
	for _, row := range []struct {
		prefix, delimiter, key, want string
	}{
		{"", "/", "a/b/c", "a/"},
		{"a/", "/", "a/b/c", "a/b/"},
		{"a", "/", "a/b/c", "a/"},
		{"a/b/", "/", "a/b/c", ""},
		{"", "", "a/b", ""},
		{"", "/b", "a/b/c", "a/b"},
		{"a/", "/", "b/c/d", ""},
		{"a/b/", "/", "a/", ""},
	} {
		opts := ListOptions{Prefix: row.prefix, Delimiter: row.delimiter}
		if got, ok := opts.RollUp(row.key); got != row.want || ok != (row.want != "") {
			t.Errorf("RollUp(%q) with prefix %q and delimiter %q = %q, %t, want %q", row.key, row.prefix, row.delimiter, got, ok, row.want)
		}
	}
}
