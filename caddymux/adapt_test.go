package caddymux

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what adapt gives into the golden files")

const dashes = "\n----------\n"

// TestGoldenAdapt holds each Caddyfile in testdata/adapt against the JSON, or the error, that follows it.
func TestGoldenAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			config, want, ok := strings.Cut(string(data), dashes)
			if !ok && !*update {
				t.Fatal("no line of dashes")
			}
			got := adapted(t, config)
			if *update {
				if err := os.WriteFile(file, []byte(strings.TrimRight(config, "\n")+"\n"+dashes[1:]+got+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.TrimSpace(want), got); diff != "" {
				t.Errorf("adapt (-want +got):\n%s", diff)
			}
		})
	}
}

// adapted is the JSON of a Caddyfile, indented, or the error.
func adapted(t *testing.T, config string) string {
	t.Helper()
	out, err := adapt(t, config)
	if err != nil {
		return err.Error()
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, out, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return indented.String()
}
