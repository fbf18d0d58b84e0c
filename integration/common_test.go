package integration_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/integration/s3d"
	"github.com/suaveplan/caddy-storage-mux/internal/bunnyfake"
	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
)

// TestMain says once, rather than in every test, that there is nothing to test.
func TestMain(m *testing.M) {
	if _, err := rig.FindBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	s3d.Clean()
	os.Exit(status)
}

// soon is how long a change of state may take to show; generous, since nothing
// here asserts a time tightly.
const soon = 2 * time.Minute

// someBytes returns n bytes that look random and are the same in every run.
func someBytes(n int) []byte {
	chacha := rand.NewChaCha8([32]byte{7})
	b := make([]byte, n)
	_, _ = chacha.Read(b)
	return b
}

// wantBody fails the test unless r is a whole answer with the status and body.
func wantBody(t *testing.T, what string, r rig.Response, status int, body []byte) {
	t.Helper()
	if r.Status != status {
		t.Errorf("%s = %d %q, want %d", what, r.Status, r.Body[:min(len(r.Body), 200)], status)
		return
	}
	if err := r.Cause(); err != nil {
		t.Errorf("%s: the body broke off: %v", what, err)
	}
	if err := rig.Same(r.Body, body); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// wantStatus fails the test unless r has the status.
func wantStatus(t *testing.T, what string, r rig.Response, status int) {
	t.Helper()
	if r.Status != status {
		t.Errorf("%s = %d %q, want %d", what, r.Status, r.Body[:min(len(r.Body), 200)], status)
	}
}

// wantMissing fails the test unless the key is 404.
func wantMissing(t *testing.T, c *rig.Caddy, path string) {
	t.Helper()
	wantStatus(t, "GET "+path, c.Get(path), http.StatusNotFound)
}

// writeFile puts a file below the folder of a Caddy.
func writeFile(t *testing.T, dir, name string, body []byte) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writableStores are sites over one backend of each type, with the option lines
// of the handler in place of the verb.
const writableStores = `
http://:{$PORT} {
	storage_mux {
		backend m memory
		%[1]s
	}
}
http://:{$PORT2} {
	storage_mux {
		backend d file {$DIR}/d {
			create_root
		}
		%[1]s
	}
}
http://:{$PORT3} {
	storage_mux {
		backend h http {$F1} {
			conditional_write
		}
		%[1]s
	}
}
http://:{$PORT4} {
	storage_mux {
		backend s rackspace box {
			auth_url {$SWIFT}/v2.0
			user tester
			key {$SWIFT_KEY}
		}
		%[1]s
	}
}
http://:{$PORT5} {
	storage_mux {
		backend b bunny zone {
			endpoint {$BUNNY}
			access_key {$BUNNY_KEY}
			verify_writes
		}
		%[1]s
	}
}
http://:{$PORT6} {
	storage_mux {
		backend s3 s3 bucket {
			endpoint {$S3}
			access_key {$S3_KEY}
			secret_key {$S3_SECRET}
		}
		%[1]s
	}
}
`

// store is a site over one backend.
type store struct {
	*rig.Caddy
	name   string
	origin *origin.Origin // the server behind it; nil unless it is the http backend

	unconditional bool // cannot decide conditions of writes
	bare          bool // keeps no metadata but the type
}

// conditional are the stores that decide conditions of writes.
func conditional(all []store) []store {
	return slices.DeleteFunc(all, func(s store) bool { return s.unconditional })
}

// keeping are the stores that keep metadata.
func keeping(all []store) []store {
	return slices.DeleteFunc(all, func(s store) bool { return s.bare })
}

// stores starts one Caddy with a writable, listing site for each backend type.
func stores(t *testing.T, options string) []store {
	t.Helper()
	f1, cluster, zones, service := origin.New(t), swiftfake.New(t, "box"), bunnyfake.New(t, "zone"), s3fake.New(t, "bucket")
	config := fmt.Sprintf(writableStores, "writable\nlist\n"+options)
	c := rig.Start(t, config, rig.Env("F1", f1.URL()), rig.Env("SWIFT", cluster.URL), rig.Env("SWIFT_KEY", swiftfake.Key),
		rig.Env("BUNNY", zones.URL), rig.Env("BUNNY_KEY", bunnyfake.AccessKey),
		rig.Env("S3", service.URL), rig.Env("S3_KEY", s3fake.AccessKey), rig.Env("S3_SECRET", s3fake.SecretKey))
	return []store{
		{Caddy: c, name: "memory"},
		{Caddy: c.On("PORT2"), name: "file"},
		{Caddy: c.On("PORT3"), name: "http", origin: f1},
		{Caddy: c.On("PORT4"), name: "rackspace", unconditional: true},
		{Caddy: c.On("PORT5"), name: "bunny", unconditional: true, bare: true},
		{Caddy: c.On("PORT6"), name: "s3"},
	}
}

// eachStore runs a test over every backend type, each with a key space of its own.
func eachStore(t *testing.T, all []store, test func(t *testing.T, s store)) {
	t.Helper()
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) { test(t, s) })
	}
}

// twoOrigins starts two origins that hold the same object under /x, and a Caddy
// that reads from both in failover.
func twoOrigins(t *testing.T, body []byte, options string) (c *rig.Caddy, f1, f2 *origin.Origin) {
	t.Helper()
	f1, f2 = origin.New(t), origin.New(t)
	for _, f := range []*origin.Origin{f1, f2} {
		f.Put("/x", origin.Object{Body: body, Header: http.Header{"Content-Type": {"application/octet-stream"}}})
	}
	c = rig.Start(t, `
		header >X-Backend {http.storage_mux.backend}
		header >X-Attempts {http.storage_mux.attempts}
		header >X-Outcome {http.storage_mux.outcome}
		header >X-Code {http.storage_mux.error_code}
		storage_mux failover {
			`+options+`
			backend f1 http {$F1}
			backend f2 http {$F2}
		}`, rig.Env("F1", f1.URL()), rig.Env("F2", f2.URL()))
	return c, f1, f2
}
