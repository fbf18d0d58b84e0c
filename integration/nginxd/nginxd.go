//go:build linux

// Package nginxd runs nginx with WebDAV for tests, on loopback and over a folder of the test: the origin that most people have.
// What it runs comes from Debian (nginx, libnginx-mod-http-dav-ext); where that is not installed, tests are skipped with the reason.
package nginxd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

const (
	startWithin = 3 * time.Minute
	startTries  = 5

	taken = "Address already in use" // in what it logs
)

// module has PROPFIND, which nginx itself lacks.
const module = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so"

// conf wants the module, the folder and the address.
const conf = `load_module %[1]s;
daemon off;
master_process off;
pid %[2]s/pid;
error_log %[2]s/log;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	server {
		listen %[3]s;
		root %[2]s/data;
		client_max_body_size 0;
		location / {
			dav_methods PUT DELETE MKCOL COPY MOVE;
			dav_ext_methods PROPFIND OPTIONS;
			create_full_put_path on;
			dav_access user:rw;
		}
	}
}
`

// Server is a running server.
type Server struct {
	URL string

	data    string
	folders atomic.Int64
}

// Start runs a server until the test ends, or skips the test with the reason why there can be none.
func Start(tb testing.TB) *Server {
	tb.Helper()
	binary := find(tb)
	for try := 1; ; try++ {
		s, log := start(tb, binary, rig.FreeAddress(tb))
		if s != nil {
			return s
		}
		if try == startTries || !strings.Contains(log, taken) {
			tb.Fatalf("nginx did not start: %s", log)
		}
	}
}

// find is the program, or skips the test.
func find(tb testing.TB) string {
	tb.Helper()
	binary, err := exec.LookPath("nginx")
	if err != nil {
		tb.Skip("no nginx: it is not installed")
	}
	if _, err := os.Stat(module); err != nil {
		tb.Skip("no nginx with PROPFIND: libnginx-mod-http-dav-ext is not installed")
	}
	return binary
}

// start tries it once. Between the choice of an address and the start somebody else may have taken it.
func start(tb testing.TB, binary, address string) (s *Server, log string) {
	tb.Helper()
	dir := tb.TempDir()
	s = &Server{URL: "http://" + address, data: filepath.Join(dir, "data")}
	if err := os.Mkdir(s.data, 0o755); err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(dir, "conf")
	if err := os.WriteFile(path, fmt.Appendf(nil, conf, module, dir, address), 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(binary, "-e", filepath.Join(dir, "log"), "-p", dir, "-c", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting nginx: %v", err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	ctx, cancel := context.WithTimeout(tb.Context(), startWithin)
	defer cancel()
	for {
		// It writes its number when it listens. Whoever answers at the address need not be this one.
		if pid, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil && len(pid) > 0 {
			return s, ""
		}
		select {
		case <-exited:
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
			continue
		}
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		return nil, string(text)
	}
}

// Folder makes an empty folder and gives its URL.
func (s *Server) Folder(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("origin-%d", s.folders.Add(1))
	if err := os.Mkdir(filepath.Join(s.data, name), 0o755); err != nil {
		tb.Fatal(err)
	}
	return s.URL + "/" + name
}
