package caddymux

import (
	"fmt"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func init() { caddy.RegisterModule(new(scriptedBackend)) }

// scriptedBackend is a type of backend as a third party would add one: a store on a script, found by its name.
type scriptedBackend struct {
	Script string `json:"script,omitempty"`
	Secret string `json:"secret,omitempty"`
	Open   string `json:"open,omitempty"`
}

// scripts are the stores of running tests.
var scripts sync.Map

// scripted makes a store that configs can name.
func scripted(t testing.TB, name string) *storetest.Faulty {
	t.Helper()
	inner, err := memstore.New(memstore.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	f := storetest.NewFaulty(inner)
	f.SetWaits(muxcore.WaitsWithContext)
	if _, taken := scripts.LoadOrStore(name, f); taken {
		t.Fatalf("two scripts named %q", name)
	}
	t.Cleanup(func() {
		f.Release()
		scripts.Delete(name)
	})
	return f
}

func (*scriptedBackend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + ".scripted",
		New: func() caddy.Module { return new(scriptedBackend) },
	}
}

func (b *scriptedBackend) OpenStore() (muxcore.Store, error) {
	if b.Open != "" {
		return nil, fmt.Errorf("open: %s", b.Open)
	}
	f, ok := scripts.Load(b.Script)
	if !ok {
		return nil, fmt.Errorf("script: no store named %q", b.Script)
	}
	return f.(muxcore.Store), nil
}

func (b *scriptedBackend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.AllArgs(&b.Script) {
		return d.ArgErr()
	}
	return ParseOptions(d, nil, Option{Word: "secret", Parse: TextOption(&b.Secret)}, Option{Word: "open", Parse: TextOption(&b.Open)})
}

func (b *scriptedBackend) Place() string         { return b.Script }
func (b *scriptedBackend) Credentials() []string { return []string{"secret"} }

var (
	_ BackendType  = (*scriptedBackend)(nil)
	_ Placed       = (*scriptedBackend)(nil)
	_ Credentialed = (*scriptedBackend)(nil)
)
