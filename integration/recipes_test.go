package integration_test

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
)

// recipe reads a file of recipes/ and adds to its global options what the rig needs, and more.
func recipe(t *testing.T, name, more string) string {
	t.Helper()
	text, err := os.ReadFile("../recipes/" + name + ".Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	globals := securedGlobals("127.0.0.1", more)
	if _, rest, own := strings.Cut(string(text), "\n{\n"); own {
		return strings.TrimSuffix(globals, "}\n") + rest
	}
	return globals + string(text)
}

// startRecipe starts the real Caddy with a file of recipes/. Its sites are those of localhost.
func startRecipe(t *testing.T, name string, options ...rig.Option) *rig.Caddy {
	t.Helper()
	return rig.Start(t, recipe(t, name, ""), append(options, rig.AsIs())...)
}

// local reads from the site localhost.
func local(c *rig.Caddy, path string) rig.Response { return c.Get(path, "Host", "localhost") }

// move renames a file or folder below dir.
func move(t *testing.T, dir, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		t.Fatal(err)
	}
}

// eventuallyHeld waits until a file holds these bytes.
func eventuallyHeld(t *testing.T, c *rig.Caddy, path, want string) {
	t.Helper()
	c.Eventually(soon, "the arrival of "+filepath.Base(path), func() error {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			return fmt.Errorf("it holds %d bytes, %w", len(got), err)
		}
		return nil
	})
}

func TestRecipeMirroredOrigins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := startRecipe(t, "mirrored-origins", rig.InDir(dir), rig.Env("DISK", dir+"/disk"), rig.Env("BACKUP", dir+"/backup"))
	body := someBytes(300_000)
	wantStatus(t, "PUT", c.Put("/a.bin", string(body), "Host", "localhost"), http.StatusCreated)
	if err := alike(dir+"/disk", dir+"/backup"); err != nil {
		t.Error(err)
	}
	move(t, dir, "disk", "away")
	for range 20 {
		wantBody(t, "GET without the first origin", local(c, "/a.bin"), http.StatusOK, body)
	}
	move(t, dir, "away", "disk")

	// A mirror that is away misses an upload, and gets it once it is back.
	unmount(t, c, "backup")
	c.Eventually(soon, "an upload without the mirror", func() error {
		if r := c.Put("/b.txt", "b", "Host", "localhost"); r.Status/100 != 2 || r.Header.Get("Storage-Mux-Partial") != "backup" {
			return fmt.Errorf("PUT = %d, missed by %q", r.Status, r.Header.Get("Storage-Mux-Partial"))
		}
		return nil
	})
	mount(t, c, "backup")
	eventuallyHeld(t, c, dir+"/backup/b.txt", "b")
}

func TestRecipeStaticSite(t *testing.T) {
	t.Parallel()
	f1, f2, dir := origin.New(t), origin.New(t), t.TempDir()
	body := someBytes(1 << 20)
	for _, f := range []*origin.Origin{f1, f2} {
		f.Put("/site/film", origin.Object{Body: body})
	}
	f1.Script(origin.Faults{ResetAfter: 700_000})
	writeFile(t, dir, "site/index.html", []byte("start"))
	c := startRecipe(t, "static-site", rig.InDir(dir), rig.Env("SITE", dir+"/site"), rig.Env("MIRROR1", f1.URL()+"/site"), rig.Env("MIRROR2", f2.URL()+"/site"))
	wantBody(t, "GET /", local(c, "/"), http.StatusOK, []byte("start"))
	move(t, dir, "site", "away")
	c.Eventually(soon, "noticing that the directory is gone", func() error {
		if r := local(c, "/film"); r.Status != http.StatusOK || rig.Same(r.Body, body) != nil || r.Cause() != nil {
			return fmt.Errorf("GET = %d with %d bytes", r.Status, len(r.Body))
		}
		return nil
	})
	if f1.Hits(http.MethodGet) == 0 || f2.Hits(http.MethodGet) == 0 {
		t.Errorf("%d requests to the first mirror, %d to the second: want both, as the first dies in mid-body", f1.Hits(http.MethodGet), f2.Hits(http.MethodGet))
	}
}

// withKeys are the credentials of s3fake in the environment, as the AWS chain wants them.
func withKeys(options ...rig.Option) []rig.Option {
	return append(options, rig.Env("AWS_ACCESS_KEY_ID", s3fake.AccessKey), rig.Env("AWS_SECRET_ACCESS_KEY", s3fake.SecretKey), rig.Env("REGION", s3fake.Region))
}

// down refuses every request to a service.
func down(*http.Request) *s3fake.Refusal {
	return s3fake.Refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "down for the test")
}

func TestRecipeS3WithLocalFallback(t *testing.T) {
	t.Parallel()
	dir, service := t.TempDir(), s3fake.New(t, "assets")
	service.Put("assets", "old.txt", "from before", http.Header{"Content-Type": {"text/plain"}})
	c := startRecipe(t, "s3-local-fallback", withKeys(rig.InDir(dir), rig.Env("ENDPOINT", service.URL), rig.Env("LOCAL", dir+"/copy"))...)
	wantStatus(t, "PUT", c.Put("/new.txt", "new", "Host", "localhost"), http.StatusCreated)
	wantBody(t, "GET from the bucket", local(c, "/old.txt"), http.StatusOK, []byte("from before"))
	if ran := c.Run("", "storage-mux", "repair"); ran.Code != 0 {
		t.Fatalf("repair exits with %d: %s", ran.Code, ran.Stderr)
	}
	service.Fail(down)
	wantBody(t, "GET without the bucket", local(c, "/old.txt"), http.StatusOK, []byte("from before"))
	wantBody(t, "GET without the bucket", local(c, "/new.txt"), http.StatusOK, []byte("new"))
	if r := c.Put("/late.txt", "late", "Host", "localhost"); r.Status < 500 {
		t.Errorf("PUT without the bucket = %d: it has the last word", r.Status)
	}
	service.Fail(nil)
	c.Eventually(soon, "the bucket's return", func() error {
		if r := c.Put("/late.txt", "late", "Host", "localhost"); r.Status != http.StatusCreated && r.Status != http.StatusNoContent {
			return fmt.Errorf("PUT = %d", r.Status)
		}
		return nil
	})
}

func TestRecipeCanary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "v1/page", []byte("old"))
	writeFile(t, dir, "v2/page", []byte("new"))
	c := startRecipe(t, "canary", rig.InDir(dir), rig.Env("OLD", dir+"/v1"), rig.Env("NEW", dir+"/v2"))
	shares := func() map[string]int {
		seen := make(map[string]int)
		for range 100 {
			r := local(c, "/page")
			if want := map[string]string{"old": "old", "new": "new"}[r.Header.Get("X-Served-By")]; r.Status != http.StatusOK || want != string(r.Body) {
				t.Fatalf("GET = %d %q from %q", r.Status, r.Body, r.Header.Get("X-Served-By"))
			}
			seen[string(r.Body)]++
		}
		return seen
	}
	weight := func(backend string, n int) {
		t.Helper()
		if status, text := c.Admin(http.MethodPatch, "/storage_mux/canary/backends/"+backend, fmt.Sprintf(`{"weight": %d}`, n)); status != http.StatusOK {
			t.Fatalf("PATCH = %d %s", status, text)
		}
	}
	if got := shares(); got["old"] < 70 {
		t.Errorf("of 100 reads %v, want nearly all from the old files", got)
	}
	weight("old", 0)
	if got := shares(); got["new"] != 100 {
		t.Errorf("of 100 reads %v, want all from the new files", got)
	}
	weight("old", 1)
	weight("new", 0)
	if got := shares(); got["old"] != 100 {
		t.Errorf("of 100 reads %v, want all from the old files again", got)
	}
}

func TestRecipeMigration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"read", "rest", "gone", "changed"} {
		writeFile(t, dir, "old/"+name, []byte("old "+name))
		if err := os.Chtimes(filepath.Join(dir, "old", name), origin.Epoch, origin.Epoch); err != nil { // the newest wins, to the second
			t.Fatal(err)
		}
	}
	c := startRecipe(t, "migration", rig.InDir(dir), rig.Env("OLD", dir+"/old"), rig.Env("NEW", dir+"/new"))
	wantBody(t, "GET of what only the old store has", local(c, "/read"), http.StatusOK, []byte("old read"))
	eventuallyHeld(t, c, dir+"/new/read", "old read")
	if r := c.Put("/changed", "new changed", "Host", "localhost"); r.Status/100 != 2 {
		t.Errorf("PUT = %d %s", r.Status, r.Body)
	}
	wantStatus(t, "DELETE", c.Delete("/gone", "Host", "localhost"), http.StatusNoContent)
	wantStatus(t, "GET after it", local(c, "/gone"), http.StatusNotFound)

	if ran := c.Run("", "storage-mux", "repair"); ran.Code != 0 {
		t.Fatalf("repair exits with %d: %s", ran.Code, ran.Stderr)
	}
	if ran := c.Run("", "storage-mux", "verify"); ran.Code != 0 {
		t.Errorf("verify exits with %d: %s%s", ran.Code, ran.Stdout, ran.Stderr)
	}
	if status, text := c.Admin(http.MethodDelete, "/storage_mux/moving/backends/old", ""); status != http.StatusOK {
		t.Fatalf("removing the old store = %d %s", status, text)
	}
	move(t, dir, "old", "away")
	for name, want := range map[string]string{"read": "old read", "rest": "old rest", "changed": "new changed"} {
		wantBody(t, "GET without the old store", local(c, "/"+name), http.StatusOK, []byte(want))
	}
	wantStatus(t, "GET of what was deleted", local(c, "/gone"), http.StatusNotFound)
}

func TestRecipeReadOnlySiteForDisasterRecovery(t *testing.T) {
	t.Parallel()
	dir, main := t.TempDir(), origin.New(t)
	main.Put("/page", origin.Object{Body: []byte("of now")})
	writeFile(t, dir, "replica/page", []byte("of the last copy"))
	c := startRecipe(t, "dr-site", rig.InDir(dir), rig.Env("MAIN", main.URL()), rig.Env("REPLICA", dir+"/replica"), rig.Env("CHECK", "200ms"))
	wantBody(t, "GET", local(c, "/page"), http.StatusOK, []byte("of now"))
	main.Refuse()
	r := local(c, "/page")
	wantBody(t, "GET without the main site", r, http.StatusOK, []byte("of the last copy"))
	if got := r.Header.Get("X-Served-By"); got != "replica" {
		t.Errorf("served by %q", got)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		r := c.Do(rig.Request{Method: method, Path: "/page", Header: []string{"Host", "localhost"}})
		wantStatus(t, method, r, http.StatusMethodNotAllowed)
	}
	if got := fmt.Sprint(files(t, dir)); got != "map[replica/page:of the last copy]" {
		t.Errorf("files: %s", got)
	}
	main.Heal()
	c.Eventually(soon, "the main site's return", func() error {
		if got := string(local(c, "/page").Body); got != "of now" {
			return fmt.Errorf("GET = %q", got)
		}
		return nil
	})
}

func TestRecipeStaleSiteBehindABreaker(t *testing.T) {
	t.Parallel()
	dir, f1, f2 := t.TempDir(), origin.New(t), origin.New(t)
	for _, f := range []*origin.Origin{f1, f2} {
		f.Put("/page", origin.Object{Body: []byte("of today")})
	}
	writeFile(t, dir, "stale/page", []byte("of yesterday"))
	c := startRecipe(t, "stale-site", rig.InDir(dir), rig.Env("APP1", f1.Addr()), rig.Env("APP2", f2.Addr()), rig.Env("STALE", dir+"/stale"), rig.Env("OPEN", "500ms"))
	wantBody(t, "GET", local(c, "/page"), http.StatusOK, []byte("of today"))
	f1.Refuse()
	f2.Refuse()
	for range 15 {
		r := local(c, "/page")
		wantBody(t, "GET without any upstream", r, http.StatusOK, []byte("of yesterday"))
		if got := r.Header.Get("Retry-After"); got != "" {
			t.Errorf("a 200 with Retry-After %q", got)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		r := c.Do(rig.Request{Method: method, Path: "/page", Header: []string{"Host", "localhost"}})
		if r.Status < 500 || len(r.Body) != 0 {
			t.Errorf("%s without any upstream = %d %q", method, r.Status, r.Body)
		}
	}
	f1.Heal()
	f2.Heal()
	c.Eventually(soon, "the site's return", func() error {
		if got := string(local(c, "/page").Body); got != "of today" {
			return fmt.Errorf("GET = %q", got)
		}
		return nil
	})
}

func TestRecipeABreakerForEachUpstream(t *testing.T) {
	t.Parallel()
	f1, f2 := origin.New(t), origin.New(t)
	for _, f := range []*origin.Origin{f1, f2} {
		f.Put("/page", origin.Object{Body: []byte("page")})
	}
	f1.Refuse()
	c := startRecipe(t, "breaker", rig.Env("APP1", f1.Addr()), rig.Env("APP2", f2.Addr()))
	for range 30 { // least_conn draws among equals, so that the first one gets its five failures
		wantBody(t, "GET", local(c, "/page"), http.StatusOK, []byte("page"))
	}
	c.Eventually(soon, "the opening of the first path", func() error {
		wantBody(t, "GET", local(c, "/page"), http.StatusOK, []byte("page"))
		if v := pathTo(t, c, f1); v.State != "OPEN" {
			return fmt.Errorf("it is %s", v.State)
		}
		return nil
	})
}

// certificateOf starts a recipe of certificates for example.com, and gives the certificate that it serves.
func certificateOf(t *testing.T, name string, options ...rig.Option) *x509.Certificate {
	t.Helper()
	config := recipe(t, name, "\thttps_port {$PORT}\n\thttp_port {$PORT2}\n\tlocal_certs\n") // its own authority, in place of a public one
	c := rig.Start(t, config, append(options, rig.AsIs())...)
	var cert *x509.Certificate
	c.Eventually(soon, "a certificate", func() (err error) {
		cert, err = leaf(c.Addr(), "example.com")
		return err
	})
	if code := c.Stop(); code != 0 {
		t.Errorf("Stop() = %d", code)
	}
	return cert
}

func TestRecipeCertificatesInTwoDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := []rig.Option{rig.InDir(dir), rig.Env("HERE", dir+"/here"), rig.Env("THERE", dir+"/there")}
	before := certificateOf(t, "certificates-two-directories", options...)
	move(t, dir, "here", "away")
	writeFile(t, dir, "here", nil) // no folder can be made in its place
	if after := certificateOf(t, "certificates-two-directories", options...); !after.Equal(before) {
		t.Errorf("without the first directory another certificate is served: %v, want %v", after.SerialNumber, before.SerialNumber)
	}
}

func TestRecipeCertificatesInTwoBuckets(t *testing.T) {
	t.Parallel()
	near, far := s3fake.New(t, "certificates"), s3fake.New(t, "certificates-copy")
	options := withKeys(rig.Env("NEAR", near.URL), rig.Env("FAR", far.URL))
	before := certificateOf(t, "certificates-two-buckets", options...)
	near.Fail(down)
	if after := certificateOf(t, "certificates-two-buckets", options...); !after.Equal(before) {
		t.Errorf("without the first bucket another certificate is served: %v, want %v", after.SerialNumber, before.SerialNumber)
	}
}

// Two Caddys on one tree: what one writes the other reads; what one sees of backends, and what it remembers, is its own.
func TestRecipeFleet(t *testing.T) {
	t.Parallel()
	dir := folders(t, "first", "second")
	node := func() *rig.Caddy {
		return startRecipe(t, "fleet", rig.InDir(dir), rig.Env("FIRST", dir+"/first"), rig.Env("SECOND", dir+"/second"))
	}
	one, two := node(), node()
	wantStatus(t, "PUT to one", one.Put("/a", "from one", "Host", "localhost"), http.StatusCreated)
	wantBody(t, "GET from two", local(two, "/a"), http.StatusOK, []byte("from one"))
	wantStatus(t, "PUT to two", two.Put("/a", "from two", "Host", "localhost"), http.StatusNoContent)
	wantBody(t, "GET from one", local(one, "/a"), http.StatusOK, []byte("from two"))

	unmount(t, one, "second")
	one.Eventually(soon, "an upload without the second place", func() error {
		if r := one.Put("/b", "b", "Host", "localhost"); r.Header.Get("Storage-Mux-Partial") != "second" {
			return fmt.Errorf("PUT = %d, missed by %q", r.Status, r.Header.Get("Storage-Mux-Partial"))
		}
		return nil
	})
	wantBody(t, "GET from two", local(two, "/b"), http.StatusOK, []byte("b"))
	if mine, others := pendingIn(t, one, "shared", "second"), pendingIn(t, two, "shared", "second"); mine != 1 || others != 0 {
		t.Errorf("%d repairs pending on the node that wrote, %d on the other, want 1 and 0", mine, others)
	}
	for c, want := range map[*rig.Caddy]bool{one: true, two: false} {
		if _, err := os.Stat(filepath.Join(c.Word("XDG_DATA_HOME"), "caddy/storage_mux/shared")); (err == nil) != want {
			t.Errorf("the journal of a node: %v, want one: %t", err, want)
		}
	}
	mount(t, one, "second")
	eventuallyHeld(t, one, dir+"/second/b", "b")

	if status, text := two.Admin(http.MethodPost, "/storage_mux/shared/backends/first/drain", ""); status != http.StatusOK {
		t.Fatalf("drain = %d %s", status, text)
	}
	for c, want := range map[*rig.Caddy]string{one: `"status":"up"`, two: `"reason":"drained"`} {
		if _, text := c.Admin(http.MethodGet, "/storage_mux/shared", ""); !strings.Contains(text, want) {
			t.Errorf("the tree lacks %s: %s", want, text)
		}
		wantBody(t, "GET", local(c, "/b"), http.StatusOK, []byte("b"))
	}
}
