//go:build linux

// Package nginxd runs nginx with WebDAV for tests, on loopback and over a folder of the test: the origin that most people have.
// What it runs comes from Debian (nginx, libnginx-mod-http-dav-ext); where that is not installed, tests are skipped with the reason.
package nginxd

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

const startWithin = 30 * time.Second

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
	binary, err := exec.LookPath("nginx")
	if err != nil {
		tb.Skip("no nginx: it is not installed")
	}
	if _, err := os.Stat(module); err != nil {
		tb.Skip("no nginx with PROPFIND: libnginx-mod-http-dav-ext is not installed")
	}
	dir := tb.TempDir()
	s := &Server{data: filepath.Join(dir, "data")}
	if err := os.Mkdir(s.data, 0o755); err != nil {
		tb.Fatal(err)
	}
	address := rig.FreeAddress(tb)
	s.URL = "http://" + address
	path := filepath.Join(dir, "conf")
	if err := os.WriteFile(path, fmt.Appendf(nil, conf, module, dir, address), 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(binary, "-e", filepath.Join(dir, "log"), "-p", dir, "-c", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting nginx: %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s.await(tb, filepath.Join(dir, "log"))
	return s
}

// await waits until it answers.
func (s *Server) await(tb testing.TB, log string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startWithin)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodOptions, s.URL+"/", http.NoBody)
		if err != nil {
			tb.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			return
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(log)
			tb.Fatalf("nginx did not start: %v\n%s", err, text)
		case <-time.After(50 * time.Millisecond):
		}
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
