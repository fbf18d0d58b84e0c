package caddybreaker

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestTheAdminEndpointServesTheBreakers(t *testing.T) {
	o := newOrigin(t)
	socket := filepath.Join(t.TempDir(), "a")
	cfg := fmt.Sprintf(`{
		"admin": {"listen": "unix/%s", "config": {"persist": false}},
		"storage": {"module": "file_system", "root": %q},
		"logging": {"logs": {"default": {"writer": {"output": "discard"}}}},
		"apps": {"http": {"servers": {"s": {"listen": ["unix/%s"], "routes": [{"handle": [{
			"handler": "reverse_proxy", "upstreams": [{"dial": %q}, {"dial": "b.test:80"}],
			"transport": {"protocol": "relay_breaker", "local_id": "{env.NOT_SET_ANYWHERE}here"}
		}]}]}}}}
	}`, socket, t.TempDir(), filepath.Join(t.TempDir(), "s"), o.addr())
	if err := caddy.Load([]byte(cfg), true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// An admin endpoint ends with a config that has none.
		_ = caddy.Load([]byte(`{"admin": {"disabled": true, "config": {"persist": false}}}`), true)
		_ = caddy.Stop()
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	call := func(method, body string) (int, []pathView) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/relay_breaker", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var paths []struct {
			PathID string `json:"path_id"`
			State  string `json:"state"`
		}
		if err := json.NewDecoder(res.Body).Decode(&paths); err != nil && res.StatusCode == http.StatusOK {
			t.Fatal(err)
		}
		views := make([]pathView, len(paths))
		for i, p := range paths {
			views[i].PathID, views[i].Reason = p.PathID, p.State
		}
		return res.StatusCode, views
	}
	code, paths := call(http.MethodGet, "")
	if code != 200 || len(paths) != 2 || paths[0].PathID != "here→"+o.addr() || paths[1].PathID != "here→b.test:80" {
		t.Fatalf("GET /relay_breaker = %d %+v, want both paths, sorted", code, paths)
	}
	code, paths = call(http.MethodPost, `{"path_id":"here→b.test:80","action":"force_open"}`)
	if code != 200 || paths[1].Reason != "OPEN" {
		t.Errorf("force_open = %d %+v, want 200 and OPEN", code, paths)
	}
	if code, _ := call(http.MethodPost, `{"path_id":"nobody","action":"reset"}`); code != 404 {
		t.Errorf("an unknown path = %d, want 404", code)
	}
}

func TestAnActionThatCannotBeReadIsNamed(t *testing.T) {
	for body, want := range map[string]string{
		"":                         "decoding the action: there is none",
		"[]":                       "decoding the action: must be an object, got array",
		`"x"`:                      "decoding the action: must be an object, got string",
		`{"path_id":"x","ttl":60}`: "decoding the action: ttl: must be a string, got number",
		`{"action":{}}`:            "decoding the action: action: must be a string, got object",
		`{"action":"auto"`:         "unexpected EOF",
	} {
		if status, got := admin(t, http.MethodPost, body); status != http.StatusBadRequest || !strings.Contains(got, want) {
			t.Errorf("POST %s = %d %s, want 400 and %q", body, status, got, want)
		}
	}
}
