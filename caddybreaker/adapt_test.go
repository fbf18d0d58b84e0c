package caddybreaker

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // the proxy, its policies and transports
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the golden files should say")

// Each file holds a Caddyfile, a line of dashes, and what it means: JSON, or the
// error of adapting or else of loading it.
func TestCaddyfilesMeanWhatTheGoldenFilesSay(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(string(text), "----------\n")
			if !ok {
				t.Fatal("no line of dashes")
			}
			isError := strings.HasPrefix(filepath.Base(file), "error_")
			got, err := meaning(t, []byte(input), isError)
			if isError == (err == nil) {
				t.Fatalf("error: %v, want one: %v", err, isError)
			}
			if err != nil {
				got = err.Error() + "\n"
			}
			if *update {
				if err := os.WriteFile(file, []byte(input+"----------\n"+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// meaning adapts a Caddyfile, and loads it as far as `caddy validate` does.
func meaning(t *testing.T, input []byte, isError bool) (string, error) {
	t.Helper()
	out, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(input, map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return "", err
	}
	cfg := new(caddy.Config)
	if err := caddy.StrictUnmarshalJSON(out, cfg); err != nil {
		t.Fatalf("decoding what was adapted: %v", err)
	}
	cfg.Admin = &caddy.AdminConfig{Disabled: true}
	cfg.StorageRaw = caddyconfig.JSON(map[string]string{"module": "file_system", "root": t.TempDir()}, nil)
	cfg.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{
		WriterRaw: json.RawMessage(`{"output":"discard"}`),
	}}}}
	if err := caddy.Validate(cfg); err != nil {
		// Of the nest of wrappers, all that matters is ours.
		text := err.Error()
		if i := strings.LastIndex(text, "provision http."); i >= 0 {
			text = text[i:]
		}
		return "", errors.New(text)
	}
	if isError {
		return "", nil
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, out, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return pretty.String() + "\n", nil
}
