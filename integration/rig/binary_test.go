package rig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCaddyUnderTestIsTheNamedOneOrThatOfTheScript(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	below := filepath.Join(root, "integration", "rig")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	want := func(named, bin, trouble string) {
		t.Helper()
		got, err := findBinary(named, below)
		if got != bin || (err == nil) != (trouble == "") || err != nil && !strings.Contains(err.Error(), trouble) {
			t.Errorf("findBinary(%q) = %q, %v; want %q, %q", named, got, err, bin, trouble)
		}
	}
	named := filepath.Join(root, "named")
	want(named, named, "")
	want("caddy", "", "must be the absolute path")
	want("", "", "xcaddy-build.sh is in no folder above")
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(script)
	want("", "", "run ./xcaddy-build.sh, which builds it")
	write("caddy")
	want("", filepath.Join(root, "caddy"), "")
	want(named, named, "")
}
