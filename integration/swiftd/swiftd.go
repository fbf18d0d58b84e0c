//go:build linux

// Package swiftd runs the real OpenStack Swift for tests: the account, container and object servers and the proxy, with the
// authentication of version 1 (tempauth), all on loopback and on one device without replication.
//
// What it runs comes from Debian. Where it is missing it is installed, which takes root; where it cannot be, tests are skipped with the
// reason.
package swiftd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// What signs in.
const (
	User = "test:tester"
	Key  = "testing"
)

const (
	installWithin = 4 * time.Minute
	startWithin   = 4 * time.Minute
)

var (
	packages = []string{"swift-proxy", "swift-account", "swift-container", "swift-object", "memcached"}
	daemons  = []string{"swift-proxy-server", "swift-account-server", "swift-container-server", "swift-object-server", "swift-ring-builder", "memcached"}
)

// Server is a running Swift.
type Server struct {
	URL  string // of the proxy
	Auth string // where to sign in

	dir   string
	ports map[string]int
}

// ensure makes the daemons be there, once for all tests.
var ensure = sync.OnceValue(func() error {
	missing := ""
	for _, name := range daemons {
		if _, err := exec.LookPath(name); err != nil {
			missing = name
		}
	}
	if missing == "" {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s is not installed, and only root can install it", missing)
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s is not installed, and there is no apt-get to install it", missing)
	}
	ctx, cancel := context.WithTimeout(context.Background(), installWithin)
	defer cancel()
	for _, args := range [][]string{{"update", "-qq"}, append([]string{"install", "-y", "-qq", "--no-install-recommends"}, packages...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(out))
		}
	}
	return nil
})

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// Start runs a Swift until the test ends, or skips the test with the reason why there can be none.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if err := ensure(); err != nil {
		tb.Skipf("no OpenStack Swift: %v", err)
	}
	s := &Server{dir: tb.TempDir(), ports: make(map[string]int)}
	for _, name := range []string{"proxy", "memcached", "account", "container", "object"} {
		s.ports[name] = rig.FreePort(tb)
	}
	s.URL = fmt.Sprintf("http://127.0.0.1:%d", s.ports["proxy"])
	s.Auth = s.URL + "/auth/v1.0"
	if err := s.configure(tb); err != nil {
		tb.Fatalf("configuring Swift: %v", err)
	}
	s.run(tb, "memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", fmt.Sprint(s.ports["memcached"]), "-m", "32")
	for _, kind := range []string{"account", "container", "object", "proxy"} {
		s.run(tb, "swift-"+kind+"-server", filepath.Join(s.dir, "etc", kind+"-server.conf"))
	}
	s.await(tb)
	return s
}

// configure writes the configuration and builds the rings.
func (s *Server) configure(tb testing.TB) error {
	for _, dir := range []string{"etc", "dev/sdb1", "cache"} {
		if err := os.MkdirAll(filepath.Join(s.dir, dir), 0o755); err != nil {
			return err
		}
	}
	me, err := user.Current()
	if err != nil {
		return err
	}
	proxy := fmt.Sprintf(proxyConf, s.ports["proxy"], s.dir, s.ports["memcached"], me.Username)
	files := map[string]string{"swift.conf": swiftConf, "proxy-server.conf": proxy}
	for _, kind := range []string{"account", "container", "object"} {
		files[kind+"-server.conf"] = fmt.Sprintf(serverConf, s.ports[kind], s.dir, kind, me.Username)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.dir, "etc", name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	errs := make(chan error, 3)
	for _, kind := range []string{"account", "container", "object"} {
		go func() { errs <- s.ring(tb.Context(), kind) }()
	}
	return errors.Join(<-errs, <-errs, <-errs)
}

func (s *Server) ring(ctx context.Context, kind string) error {
	for _, args := range [][]string{
		{"create", "4", "1", "1"},
		{"add", fmt.Sprintf("r1z1-127.0.0.1:%d/sdb1", s.ports[kind]), "1"},
		{"rebalance"},
	} {
		cmd := exec.CommandContext(ctx, "swift-ring-builder", append([]string{kind + ".builder"}, args...)...)
		cmd.Dir = filepath.Join(s.dir, "etc")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("swift-ring-builder %s: %w: %s", args[0], err, lastLine(out))
		}
	}
	return nil
}

// run runs a daemon until the test ends. It dies with the tests, should they be killed.
func (s *Server) run(tb testing.TB, name string, args ...string) {
	tb.Helper()
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting %s: %v", name, err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// await waits until the cluster takes a container: all servers are up then.
func (s *Server) await(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startWithin)
	defer cancel()
	for {
		err := s.ready(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("Swift did not start: %v\n%s", err, s.logs())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *Server) ready(ctx context.Context) error {
	status, _, err := s.Do(ctx, http.MethodPut, "/swiftd-ready", "", nil)
	if err == nil && status != http.StatusCreated && status != http.StatusAccepted {
		err = fmt.Errorf("a container is answered %d", status)
	}
	if err == nil {
		status, _, err = s.Do(ctx, http.MethodPut, "/swiftd-ready/object", "x", nil)
		if err == nil && status != http.StatusCreated {
			err = fmt.Errorf("an object is answered %d", status)
		}
	}
	return err
}

func (s *Server) logs() string {
	var all strings.Builder
	for _, name := range append([]string{"memcached"}, daemons[:4]...) {
		if text, err := os.ReadFile(filepath.Join(s.dir, name+".log")); err == nil {
			fmt.Fprintf(&all, "%s: %s\n", name, lastLine(text))
		}
	}
	return all.String()
}

// Do makes a request of its own to the account, as another client would.
func (s *Server) Do(ctx context.Context, method, path, body string, header http.Header) (status int, answer string, err error) {
	token, err := s.Token(ctx)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+"/v1/AUTH_test"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("X-Auth-Token", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// Token signs in.
func (s *Server) Token(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Auth, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Auth-User", User)
	req.Header.Set("X-Auth-Key", Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("signing in is answered %d", resp.StatusCode)
	}
	return resp.Header.Get("X-Auth-Token"), nil
}
