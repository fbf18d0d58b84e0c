package rig

import (
	"cmp"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	startWithin = 3 * time.Minute // generous: the machine may be busy
	stopWithin  = 2 * time.Minute
	startTries  = 5
)

// Caddy is one running Caddy process.
type Caddy struct {
	// Dir is the folder that {$DIR} names.
	Dir string
	// Log is what the process wrote so far.
	Log *Log

	tb     testing.TB
	env    map[string]string
	global string
	asIs   bool
	level  string // of the log
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	client *http.Client
}

// Option changes how a Caddy is started.
type Option func(*Caddy)

// Env sets a word for the Caddyfile, as {$NAME}, and for the process.
func Env(name, value string) Option {
	return func(c *Caddy) { c.env[name] = value }
}

// Global adds lines to the Caddyfile's global options.
func Global(lines string) Option {
	return func(c *Caddy) { c.global += lines + "\n" }
}

// Level is how much is logged. Default: DEBUG.
func Level(level string) Option {
	return func(c *Caddy) { c.level = level }
}

// InDir makes {$DIR} a folder that already exists, such as that of a process before.
func InDir(dir string) Option {
	return func(c *Caddy) { c.Dir = dir }
}

// AsIs makes the Caddyfile a whole one, to which the rig adds nothing. It must
// put the admin API on {$ADMIN} and the log to the standard error, as JSON.
func AsIs() Option {
	return func(c *Caddy) { c.asIs = true }
}

// Binary returns the path of the Caddy under test.
func Binary(tb testing.TB) string {
	tb.Helper()
	bin, err := FindBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return bin
}

// Start starts Caddy with a Caddyfile and waits until it serves. It ends with the test.
func Start(tb testing.TB, config string, options ...Option) *Caddy {
	tb.Helper()
	bin := Binary(tb)
	for try := 1; ; try++ {
		c := prepare(tb, config, options...)
		c.launch(bin, c.write(config))
		if c.ready() {
			return c
		}
		output := c.Log.String()
		if try == startTries || !strings.Contains(output, "address already in use") {
			tb.Fatalf("Caddy did not start:\n%s", output)
		}
	}
}

// prepare makes the folders and chooses the ports of a Caddy.
func prepare(tb testing.TB, config string, options ...Option) *Caddy {
	tb.Helper()
	c := &Caddy{
		Log:    new(Log),
		tb:     tb,
		env:    assignPorts(tb, whole(config)),
		exited: make(chan struct{}),
	}
	for _, option := range options {
		option(c)
	}
	if c.Dir == "" {
		c.Dir = tb.TempDir()
	}
	c.env["DIR"] = c.Dir
	home := tb.TempDir()
	c.env["HOME"] = home
	c.env["XDG_DATA_HOME"] = filepath.Join(home, "data")
	c.env["XDG_CONFIG_HOME"] = filepath.Join(home, "config")
	c.client = newClient()
	return c
}

// whole makes a Caddyfile of one that is the body of a site.
func whole(config string) string {
	if strings.Contains(config, "{$PORT") {
		return config
	}
	return "http://:{$PORT} {\n" + config + "\n}\n"
}

// Document returns the whole Caddyfile with the global options of the rig.
func (c *Caddy) Document(config string) string {
	if c.asIs {
		return config
	}
	return `{
	admin 127.0.0.1:{$ADMIN}
	persist_config off
	auto_https off
	default_bind 127.0.0.1
	grace_period 5s
	log default {
		output stderr
		format json
		level ` + cmp.Or(c.level, "DEBUG") + `
	}
` + c.global + "}\n" + whole(config)
}

// write puts the Caddyfile into a file and returns its path.
func (c *Caddy) write(config string) string {
	c.tb.Helper()
	path := filepath.Join(c.env["HOME"], "Caddyfile")
	if err := os.WriteFile(path, []byte(c.Document(config)), 0o600); err != nil {
		c.tb.Fatalf("writing the Caddyfile: %v", err)
	}
	return path
}

// environ is the environment of Caddy's processes: that of the test without
// what could reach past the rig, and the rig's own words.
func (c *Caddy) environ() []string {
	env := []string{"GORACE=halt_on_error=0 exitcode=0"} // races are looked for in the log
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		_, own := c.env[name]
		upper := strings.ToUpper(name)
		if own || strings.HasSuffix(upper, "_PROXY") || strings.HasPrefix(upper, "CADDY") || upper == "GORACE" {
			continue
		}
		env = append(env, pair)
	}
	for _, name := range slices.Sorted(maps.Keys(c.env)) {
		env = append(env, name+"="+c.env[name])
	}
	return env
}

// launch starts the process.
func (c *Caddy) launch(bin, config string) {
	c.tb.Helper()
	// The process must outlive the test's context, which ends before its cleanups.
	c.cmd = exec.Command(bin, "run", "--config", config, "--adapter", "caddyfile")
	c.cmd.Env = c.environ()
	c.cmd.Dir = c.Dir
	c.cmd.Stdout, c.cmd.Stderr = c.Log, c.Log
	if err := c.cmd.Start(); err != nil {
		c.tb.Fatalf("starting Caddy: %v", err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	c.tb.Cleanup(c.finish)
}

// ready waits until the config is served, and returns false when the process ended before.
func (c *Caddy) ready() bool {
	c.tb.Helper()
	deadline := time.After(startWithin)
	for {
		if strings.Contains(c.Log.String(), `"serving initial configuration"`) {
			return true
		}
		select {
		case <-c.exited:
			return false
		case <-deadline:
			c.tb.Fatalf("Caddy was not ready within %v:\n%s", startWithin, c.Log.tail(50))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Word returns what {$name} stands for in the Caddyfile.
func (c *Caddy) Word(name string) string { return c.env[name] }

// Addr returns the host and port of the site on {$PORT}.
func (c *Caddy) Addr() string { return net.JoinHostPort("127.0.0.1", c.env["PORT"]) }

// URL returns the address of a path on the site on {$PORT}.
func (c *Caddy) URL(path string) string { return "http://" + c.Addr() + path }

// On returns the same Caddy with its requests going to the site on another port.
func (c *Caddy) On(port string) *Caddy {
	other := *c
	other.env = maps.Clone(c.env)
	other.env["PORT"] = c.env[port]
	return &other
}

// Pid is that of the process.
func (c *Caddy) Pid() int { return c.cmd.Process.Pid }

// Kill ends the process at once, as kill -9 does.
func (c *Caddy) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// Stop asks the process to end, waits for it, and returns its exit code.
func (c *Caddy) Stop() int {
	c.tb.Helper()
	c.client.CloseIdleConnections()
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(stopWithin):
		_ = c.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines go to the log
		select {
		case <-c.exited:
		case <-time.After(stopWithin):
			c.Kill()
		}
		c.tb.Errorf("Caddy did not stop within %v:\n%s", stopWithin, c.Log.tail(200))
	}
	return c.cmd.ProcessState.ExitCode()
}

// Running tells whether the process has not ended.
func (c *Caddy) Running() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// finish stops the process at the end of the test and reads its log for trouble.
func (c *Caddy) finish() {
	c.tb.Helper()
	if c.Running() {
		if code := c.Stop(); code != 0 && c.Log.trouble() == "" {
			c.tb.Errorf("Caddy ended with exit code %d", code)
		}
	}
	if trouble := c.Log.trouble(); trouble != "" {
		c.tb.Errorf("Caddy's log tells of a bug:\n%s", trouble)
	}
	if c.tb.Failed() {
		c.tb.Logf("the end of Caddy's log:\n%s", c.Log.tail(40))
	}
}
