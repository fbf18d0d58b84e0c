package rig

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"
)

// cliWithin is how long one command may take.
const cliWithin = 60 * time.Second

// Command runs a Caddy command that takes a Caddyfile, such as validate or
// adapt, and returns its exit code and all that it wrote.
func Command(tb testing.TB, name, config string, options ...Option) (code int, output string) {
	tb.Helper()
	c := prepare(tb, config, options...)
	ctx, cancel := context.WithTimeout(context.Background(), cliWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(tb), name, "--config", c.write(config), "--adapter", "caddyfile")
	cmd.Env = c.environ()
	cmd.Dir = c.Dir
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tb.Fatalf("caddy %s: %v\n%s", name, err, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
