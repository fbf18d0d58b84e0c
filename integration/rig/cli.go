package rig

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
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
	return c.Begin(strings.NewReader(stdin), args...).End()
}

// Running is a command that was begun.
type Running struct {
	c            *Caddy
	cmd          *exec.Cmd
	cancel       context.CancelFunc
	out, trouble bytes.Buffer
}

// Begin is Run for a command that a test has more to do with. A standard input that does not end must be a file.
func (c *Caddy) Begin(stdin io.Reader, args ...string) *Running {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cliWithin)
	args = append(args, "--config", filepath.Join(c.env["HOME"], "Caddyfile"))
	r := &Running{c: c, cmd: exec.CommandContext(ctx, Binary(c.tb), args...), cancel: cancel}
	r.cmd.Env, r.cmd.Dir, r.cmd.Stdin = c.environ(), c.Dir, stdin
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.trouble
	if err := r.cmd.Start(); err != nil {
		c.tb.Fatalf("caddy %s: %v", strings.Join(args, " "), err)
	}
	return r
}

// Interrupt is Ctrl-C.
func (r *Running) Interrupt() {
	r.c.tb.Helper()
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		r.c.tb.Fatal(err)
	}
}

// End waits until the command has ended.
func (r *Running) End() Ran {
	r.c.tb.Helper()
	defer r.cancel()
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.c.tb.Fatalf("caddy %s: %v", strings.Join(r.cmd.Args[1:], " "), err)
	}
	return Ran{r.cmd.ProcessState.ExitCode(), r.out.String(), r.trouble.String()}
}

// Prepare writes the Caddyfile of a Caddy that is not started, for [Caddy.Run].
func Prepare(tb testing.TB, config string, options ...Option) *Caddy {
	tb.Helper()
	c := prepare(tb, config, options...)
	c.write(config)
	return c
}
