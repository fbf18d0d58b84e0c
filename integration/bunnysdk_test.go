package integration_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/bunnyfake"
)

// The vendor's own client works with our fake of the vendor, so that what is proven with the fake is worth something. Without
// node, or the client, it is skipped.
func TestTheVendorsClientWorksWithTheFakeOfBunny(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s to run Bunny's client with", tool)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	install := exec.CommandContext(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir, "@bunny.net/storage-sdk@0.3.1", "zod@4")
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("Bunny's client cannot be had: %v: %s", err, out)
	}
	script, err := os.ReadFile("testdata/bunnysdk.mjs")
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "bunnysdk.mjs")
	if err := os.WriteFile(at, script, 0o600); err != nil {
		t.Fatal(err)
	}
	zones := bunnyfake.New(t, "zone")
	run := exec.CommandContext(ctx, "node", at)
	run.Env = append(os.Environ(), "BUNNY="+zones.URL, "BUNNY_KEY="+bunnyfake.AccessKey)
	if out, err := run.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("Bunny's client with the fake: %v\n%s", err, out)
	}
}
