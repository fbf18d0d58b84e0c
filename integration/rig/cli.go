package rig

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
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

// Ran is how a command ended.
type Ran struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command of the same Caddy beside the one that runs: with its binary, its environment and, by --config, its
// Caddyfile as it was started with.
func (c *Caddy) Run(stdin string, args ...string) Ran {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cliWithin)
	defer cancel()
	args = append(args, "--config", filepath.Join(c.env["HOME"], "Caddyfile"))
	cmd := exec.CommandContext(ctx, Binary(c.tb), args...)
	cmd.Env, cmd.Dir, cmd.Stdin = c.environ(), c.Dir, strings.NewReader(stdin)
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.tb.Fatalf("caddy %s: %v", strings.Join(args, " "), err)
	}
	return Ran{cmd.ProcessState.ExitCode(), out.String(), trouble.String()}
}

// Prepare writes the Caddyfile of a Caddy that is not started, for [Caddy.Run].
func Prepare(tb testing.TB, config string, options ...Option) *Caddy {
	tb.Helper()
	c := prepare(tb, config, options...)
	c.write(config)
	return c
}
