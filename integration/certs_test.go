package integration_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
)

// secured is a whole Caddyfile with these global options, and a site with a
// certificate of Caddy's own authority on {$PORT}.
func secured(global, sites string) string {
	return securedGlobals("127.0.0.1", global) + `
https://site.test:{$PORT} {
	tls internal
	respond "secure"
}
` + sites
}

// securedGlobals are the global options of a Caddy that serves TLS on address.
func securedGlobals(address, global string) string {
	return `{
	admin 127.0.0.1:{$ADMIN}
	persist_config off
	skip_install_trust
	auto_https disable_redirects
	default_bind ` + address + `
	grace_period 5s
	log default {
		output stderr
		format json
		level DEBUG
	}
` + global + "\n}\n"
}

// leaf is the certificate that a server at address shows for a name.
func leaf(address, name string) (*x509.Certificate, error) {
	conn, err := tls.Dial("tcp", address, &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

// serves waits until a Caddy shows a certificate for site.test.
func serves(t *testing.T, c *rig.Caddy) (cert *x509.Certificate) {
	t.Helper()
	c.Eventually(soon, "a certificate", func() (err error) {
		cert, err = leaf(c.Addr(), "site.test")
		return err
	})
	return cert
}

// folders makes folders for a Caddy.
func folders(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCertificatesOutliveTheFirstOfTwoDirectories(t *testing.T) {
	t.Parallel()
	dir := folders(t, "a", "b")
	config := secured("storage storage_mux mirror {$DIR}/a {$DIR}/b", "")
	c := rig.Start(t, config, rig.AsIs(), rig.InDir(dir))
	before := serves(t, c)
	if code := c.Stop(); code != 0 {
		t.Errorf("Stop() = %d", code)
	}
	for _, name := range []string{"a", "b"} {
		keys, err := filepath.Glob(filepath.Join(dir, name, ".storage_mux/storage/certificates/local/site.test/site.test.*"))
		if err != nil || len(keys) != 3 {
			t.Errorf("%s has %v, %v, want key, certificate and what belongs to it", name, keys, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, name, ".storage_mux/storage/locks/*")); len(left) > 0 {
			t.Errorf("locks are left in %s: %v", name, left)
		}
	}
	if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	again := rig.Start(t, config, rig.AsIs(), rig.InDir(dir))
	if after := serves(t, again); !after.Equal(before) {
		t.Errorf("after the restart another certificate is served: %v, want %v", after.SerialNumber, before.SerialNumber)
	}
}

func TestCertificatesOutliveTheFirstOfTwoBuckets(t *testing.T) {
	t.Parallel()
	near, far := s3fake.New(t, "certificates"), s3fake.New(t, "copy")
	config := secured(`storage storage_mux mirror {
		timeout 5s
		backend near s3 certificates {
			endpoint {$NEAR}
			access_key {$KEY}
			secret_key {$SECRET}
		}
		backend far s3 copy {
			endpoint {$FAR}
			access_key {$KEY}
			secret_key {$SECRET}
		}
	}`, "")
	options := []rig.Option{rig.AsIs(), rig.Env("NEAR", near.URL), rig.Env("FAR", far.URL), rig.Env("KEY", s3fake.AccessKey), rig.Env("SECRET", s3fake.SecretKey)}
	c := rig.Start(t, config, options...)
	before := serves(t, c)
	c.Stop()
	for bucket, service := range map[string]*s3fake.Service{"certificates": near, "copy": far} {
		keys := strings.Join(service.Keys(bucket), "\n")
		if !strings.Contains(keys, ".storage_mux/storage/certificates/local/site.test/site.test.key") || strings.Contains(keys, "/locks/") {
			t.Errorf("%s holds\n%s", bucket, keys)
		}
	}
	near.Fail(func(*http.Request) *s3fake.Refusal {
		return s3fake.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "down for the test")
	})
	again := rig.Start(t, config, options...)
	if after := serves(t, again); !after.Equal(before) {
		t.Errorf("with the first bucket down another certificate is served: %v, want %v", after.SerialNumber, before.SerialNumber)
	}
}

func TestPrivateKeysAreOutOfReachOfEveryOtherDoor(t *testing.T) {
	t.Parallel()
	dir := folders(t, "a", "b")
	c := rig.Start(t, secured(`storage_mux certs mirror {$DIR}/a {$DIR}/b
		storage storage_mux certs
		filesystem certs storage_mux certs`, `
http://:{$PORT2} {
	storage_mux {
		use certs
		writable
		list
	}
}
http://:{$PORT3} {
	file_server {
		fs certs
		browse
	}
}
`), rig.AsIs(), rig.InDir(dir))
	before := serves(t, c)
	const key = ".storage_mux/storage/certificates/local/site.test/site.test.key"
	if text, err := os.ReadFile(filepath.Join(dir, "a", key)); err != nil || !strings.Contains(string(text), "PRIVATE KEY") {
		t.Fatalf("the key is not where it should be: %v", err)
	}
	for _, port := range []string{"PORT2", "PORT3"} {
		door := c.On(port)
		wantStatus(t, "GET /"+key, door.Get("/"+key), http.StatusBadRequest)
		for _, path := range []string{"/" + key, "/%2estorage_mux" + strings.TrimPrefix(key, ".storage_mux"), "//" + key, "/x/../" + key, "/.storage_mux/", "/.storage_mux/storage/?list", "/?list", "/", "/.storage_mux/storage"} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				r := door.Do(rig.Request{Method: method, Path: path})
				if strings.Contains(string(r.Body), "PRIVATE KEY") || strings.Contains(string(r.Body), "site.test") {
					t.Errorf("%s %s on %s = %d %q", method, path, port, r.Status, r.Body)
				}
			}
		}
	}
	for _, spelling := range []string{".STORAGE_MUX", ".Storage_mux", ".ﬆorage_mux", ".\u200cstorage_mux"} {
		for _, place := range []string{"a", "b"} { // as a folder that takes one name for the other
			if err := os.Symlink(".storage_mux", filepath.Join(dir, place, spelling)); err != nil {
				t.Fatal(err)
			}
		}
		path := "/" + url.PathEscape(spelling) + strings.TrimPrefix(key, ".storage_mux")
		for _, port := range []string{"PORT2", "PORT3"} {
			wantStatus(t, "GET "+path+" on "+port, c.On(port).Get(path), http.StatusBadRequest)
		}
		wantStatus(t, "PUT "+path, c.On("PORT2").Put(path, "mine"), http.StatusBadRequest)
	}
	door := c.On("PORT2")
	wantStatus(t, "PUT over the key", door.Put("/"+key, "mine"), http.StatusBadRequest)
	wantStatus(t, "DELETE of the key", door.Delete("/"+key), http.StatusBadRequest)
	for _, call := range [][3]string{
		{http.MethodGet, "/storage_mux", ""},
		{http.MethodGet, "/storage_mux/certs", ""},
		{http.MethodPost, "/storage_mux/certs/repair", ""},
		{http.MethodPost, "/storage_mux/certs/purge", `{"keys":["` + key + `"]}`},
		{http.MethodDelete, "/storage_mux/certs/backends/a", ""},
	} {
		status, body := c.Admin(call[0], call[1], call[2])
		if strings.Contains(body, "PRIVATE KEY") {
			t.Errorf("%s %s shows a key", call[0], call[1])
		}
		if call[0] == http.MethodDelete && (status != http.StatusConflict || !strings.Contains(body, "locks")) {
			t.Errorf("removing the backend with the locks = %d %s", status, body)
		}
	}
	if after, err := leaf(c.Addr(), "site.test"); err != nil || !after.Equal(before) {
		t.Errorf("after all that the certificate is another one, or %v", err)
	}
}

func TestCaddysStorageCommandsWorkOnATreeInPlace(t *testing.T) {
	t.Parallel()
	dir := folders(t, "a", "b", "c")
	config := secured("storage storage_mux mirror {$DIR}/a {$DIR}/b", "")
	c := rig.Start(t, config, rig.AsIs(), rig.InDir(dir))
	before := serves(t, c)
	c.Stop()
	archive := filepath.Join(dir, "all.tar")
	in := []rig.Option{rig.AsIs(), rig.InDir(dir)}
	if ran := rig.Prepare(t, config, in...).Run("", "storage", "export", "--output", archive); ran.Code != 0 {
		t.Fatalf("export exits with %d: %s", ran.Code, ran.Stderr)
	}
	other := secured("storage storage_mux {\nname other\nbackend c file {$DIR}/c\n}", "")
	if ran := rig.Prepare(t, other, in...).Run("", "storage", "import", "--input", archive); ran.Code != 0 {
		t.Fatalf("import exits with %d: %s", ran.Code, ran.Stderr)
	}
	again := rig.Start(t, other, in...)
	if after := serves(t, again); !after.Equal(before) {
		t.Errorf("what was exported and imported is another certificate: %v, want %v", after.SerialNumber, before.SerialNumber)
	}
	again.Stop()
	rest := filepath.Join(dir, "rest.tar")
	for _, away := range []string{"a", "b"} {
		gone := filepath.Join(dir, "away")
		if err := os.Rename(filepath.Join(dir, away), gone); err != nil {
			t.Fatal(err)
		}
		if ran := rig.Prepare(t, config, in...).Run("", "storage", "export", "--output", rest); ran.Code != 0 {
			t.Errorf("export without %s exits with %d: %s", away, ran.Code, ran.Stderr)
		}
		if err := os.Rename(gone, filepath.Join(dir, away)); err != nil {
			t.Fatal(err)
		}
	}
	named := secured("storage_mux certs mirror {$DIR}/a {$DIR}/b\nstorage storage_mux certs", "")
	alone := rig.Prepare(t, named, in...)
	for _, args := range [][]string{{"storage", "export", "--output", filepath.Join(dir, "never.tar")}, {"storage", "import", "--input", archive}} {
		if ran := alone.Run("", args...); ran.Code == 0 || !strings.Contains(ran.Stderr, "write the tree in place") || strings.Contains(ran.Stderr, "panic") {
			t.Errorf("%s with a named tree exits with %d: %s", args[1], ran.Code, ran.Stderr)
		}
	}
}

func TestAStorageWithNoBackendUpFailsTheLoad(t *testing.T) {
	t.Parallel()
	dir := folders(t, "a")
	c := rig.Start(t, secured("storage storage_mux failover {$DIR}/a", ""), rig.AsIs(), rig.InDir(dir))
	before := serves(t, c)
	missing := secured("storage storage_mux failover {$DIR}/gone1 {$DIR}/gone2", "")
	if msg := c.Load(missing); !strings.Contains(msg, "STORAGE") || !strings.Contains(msg, "gone") {
		t.Errorf("the load says %q", msg)
	}
	if after, err := leaf(c.Addr(), "site.test"); err != nil || !after.Equal(before) {
		t.Errorf("the old config no longer serves: %v", err)
	}
	// What need not read any to load does load, as with any storage. (skip_install_trust loads Caddy's own authority.)
	plain := strings.Replace(securedGlobals("127.0.0.1", "storage storage_mux failover {$DIR}/gone1"), "skip_install_trust\n", "", 1) + "http://:{$PORT} {\n}\n"
	if code, out := rig.Command(t, "validate", plain, rig.AsIs(), rig.InDir(dir)); code != 0 {
		t.Errorf("validate exits with %d: %s", code, out)
	}
}

// loopback is an address of this machine that no other test uses, and on which
// port 80 can be had, as an authority insists on it.
func loopback(t *testing.T) string {
	t.Helper()
	for i := range 100 {
		address := fmt.Sprintf("127.83.%d.%d", os.Getpid()%250+1, int(lastLoopback.Add(1))%250+1)
		ln, err := net.Listen("tcp", address+":80")
		if err == nil {
			_ = ln.Close()
			return address
		}
		if i == 99 {
			t.Skipf("port 80 of a loopback address cannot be had here, and an ACME authority asks there: %v", err)
		}
	}
	return ""
}
