package reload_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"

	"github.com/suaveplan/caddy-storage-mux/internal/reload"
)

// failing is an app that does not start.
type failing struct{}

func (failing) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "zz_failing", New: func() caddy.Module { return new(failing) }}
}

func (failing) Start() error { return errors.New("it does not start") }
func (failing) Stop() error  { return nil }

func init() { caddy.RegisterModule(failing{}) }

func TestOnlyTheConfigThatWasLoadedAnswers(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	config := func(answer, more string) []byte {
		return fmt.Appendf(nil, `{
			"admin": {"disabled": true, "config": {"persist": false}},
			"storage": {"module": "file_system", "root": %q},
			"logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
			"apps": {"http": {"servers": {"s": {"listen": ["unix/%s"], "routes": [{"handle": [
				{"handler": "static_response", "body": %q}]}]}}}%s}
		}`, dir, socket, answer, more)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	client := &http.Client{Transport: transport}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	answers := func(want string) {
		t.Helper()
		for range 5 {
			res, err := client.Get("http://caddy.test/")
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if string(got) != want || err != nil {
				t.Fatalf("answer %q, %v, want %q", got, err, want)
			}
		}
	}
	for i := range 20 {
		body := fmt.Sprint("config ", i)
		if err := reload.Load(config(body, "")); err != nil {
			t.Fatal(err)
		}
		answers(body)
	}
	// Caddy could not take over this socket again after that.
	if err := reload.Load(config("one that fails", `, "zz_failing": {}`)); err == nil || !strings.Contains(err.Error(), "does not start") {
		t.Fatalf("loading a config that does not start: %v", err)
	}
	answers("config 19")
}
