package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/internal/bunnyfake"
	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
)

// clouds starts a Caddy beside a cluster and a zone, whose words its Caddyfile may use.
func clouds(t *testing.T, config string) (*rig.Caddy, *swiftfake.Cluster, *bunnyfake.Zones) {
	t.Helper()
	cluster, zones := swiftfake.New(t, "box", "parts"), bunnyfake.New(t, "zone")
	c := rig.Start(t, config, rig.Env("SWIFT", cluster.URL), rig.Env("SWIFT_KEY", swiftfake.Key), rig.Env("BUNNY", zones.URL),
		rig.Env("BUNNY_KEY", bunnyfake.AccessKey), rig.Env("BUNNY_API_KEY", bunnyfake.APIKey))
	return c, cluster, zones
}

// swiftBackend is a backend of clouds.
const swiftBackend = `
		backend swift swift box {
			auth_url {$SWIFT}/auth/v1.0
			user test:tester
			key {$SWIFT_KEY}
		}`

const oneOfEach = `
	header >X-Backend {http.storage_mux.backend}
	storage_mux shield {
		name t
		writable
		list
		cooldown 10ms 20ms` + swiftBackend + `
		backend bunny bunny zone {
			endpoint {$BUNNY}
			access_key {$BUNNY_KEY}
			pull_zone https://cdn.example
			api_key {$BUNNY_API_KEY}
			api_endpoint {$BUNNY}
		}
		backend disk file {$DIR}/disk {
			create_root
		}
	}`

// Whichever answers, an object is the same: the ETag of Bunny's copy as well, though it keeps no metadata.
func TestAShieldOfSwiftBunnyAndDiskKeepsOneIdentity(t *testing.T) {
	t.Parallel()
	c, cluster, _ := clouds(t, oneOfEach)
	small := someBytes(20_000)
	large := someBytes(300_000)
	wantStatus(t, "PUT", c.Put("/small", string(small), "Content-Type", "text/x-own", "Cache-Control", "max-age=5", "X-Meta-Who", "me"), http.StatusCreated)
	put := c.Put("/large", string(large), "Content-Type", "text/x-own")
	wantStatus(t, "PUT", put, http.StatusCreated)
	wantStatus(t, "PUT without a type", c.Put("/untyped", "what"), http.StatusCreated)
	first := c.Get("/small")
	for _, from := range []string{"swift", "bunny", "disk"} {
		switch from {
		case "bunny":
			cluster.Fail(func(*http.Request) int { return http.StatusServiceUnavailable })
		case "disk":
			if status, text := c.Admin(http.MethodPost, "/storage_mux/t/backends/bunny/drain", ""); status != http.StatusOK {
				t.Fatalf("drain = %d %s", status, text)
			}
		}
		r := c.Get("/small")
		wantBody(t, "GET from "+from, r, http.StatusOK, small)
		if got := r.Header.Get("X-Backend"); got != from {
			t.Fatalf("%q answered, want %s", got, from)
		}
		for _, name := range []string{"ETag", "Content-Type", "Content-Length", "Accept-Ranges"} {
			if got, want := r.Header.Get(name), first.Header.Get(name); got != want || want == "" {
				t.Errorf("%s from %s is %q, from swift %q", name, from, got, want)
			}
		}
		if got, ok := c.Get("/untyped").Header["Content-Type"]; ok {
			t.Errorf("what was put without a type comes from %s as %q", from, got)
		}
		if from != "bunny" { // which does not keep them, as the README says
			for _, name := range []string{"Cache-Control", "X-Meta-Who", "Last-Modified"} {
				if got, want := r.Header.Get(name), first.Header.Get(name); got != want || want == "" {
					t.Errorf("%s from %s is %q, from swift %q", name, from, got, want)
				}
			}
			wantStatus(t, "GET from "+from+" with the ETag that PUT gave", c.Get("/large", "If-None-Match", put.Header.Get("ETag")), http.StatusNotModified)
		}
		wantBody(t, "GET of a large one from "+from, c.Get("/large"), http.StatusOK, large)
		wantStatus(t, "GET from "+from+" of what the client has", c.Get("/small", "If-None-Match", first.Header.Get("ETag")), http.StatusNotModified)
		wantBody(t, "the rest, from "+from, c.Get("/small", "Range", "bytes=19990-", "If-Range", first.Header.Get("ETag")), http.StatusPartialContent, small[19990:])
	}
}

// Swift and Rackspace tokens expired under load: 401 until a restart, and streams that could not be sent again.
func TestCase091ATokenThatExpiresUnderLoad(t *testing.T) {
	t.Parallel()
	c, cluster, _ := clouds(t, `storage_mux {
		name t
		writable
		backend s swift box {
			auth_url {$SWIFT}/auth/v1.0
			user test:tester
			key {$SWIFT_KEY}
		}
	}`)
	body := string(someBytes(200_000))
	for i := range 25 {
		wantStatus(t, "PUT", c.Put(fmt.Sprintf("/old-%d", i), body), http.StatusCreated)
	}
	before := cluster.Logins()
	cluster.ExpireAll()
	var wg sync.WaitGroup
	for i := range 25 {
		wg.Go(func() { wantBody(t, "GET", c.Get(fmt.Sprintf("/old-%d", i)), http.StatusOK, []byte(body)) })
		wg.Go(func() { wantStatus(t, "PUT", c.Put(fmt.Sprintf("/new-%d", i), body), http.StatusCreated) })
	}
	wg.Wait()
	if got := cluster.Logins() - before; got != 1 {
		t.Errorf("%d logins, want 1 for all", got)
	}
	if _, text := c.Admin(http.MethodGet, "/storage_mux/t", ""); !strings.Contains(text, `"status":"up"`) || !strings.Contains(text, `"errors":0`) {
		t.Errorf("an expired token counted against the backend: %s", text)
	}
}

// Manifests of large objects: checked against an MD5 that they have not, and their segments left behind or deleted with the wrong ones.
func TestCase092LargeObjectsGoWithTheirSegments(t *testing.T) {
	t.Parallel()
	c, cluster, _ := clouds(t, `storage_mux {
		writable
		backend s swift box {
			auth_url {$SWIFT}/auth/v1.0
			user test:tester
			key {$SWIFT_KEY}
		}
	}`)
	for _, name := range []string{"a/1", "a/2", "b/1", "b/2", "stays"} {
		cluster.Put("parts", name, "body of "+name+";")
	}
	cluster.PutStatic("box", "a", "parts/a/1", "parts/a/2")
	cluster.PutStatic("box", "b", "parts/b/1", "parts/b/2")
	wantBody(t, "GET of a manifest", c.Get("/a"), http.StatusOK, []byte("body of a/1;body of a/2;"))
	wantBody(t, "a part over the seam", c.Get("/a", "Range", "bytes=8-19"), http.StatusPartialContent, []byte("a/1;body of "))
	wantStatus(t, "DELETE", c.Delete("/a"), http.StatusNoContent)
	wantStatus(t, "PUT over a manifest", c.Put("/b", "new"), http.StatusNoContent)
	wantBody(t, "GET of what replaced it", c.Get("/b"), http.StatusOK, []byte("new"))
	if got := strings.Join(cluster.Names("parts"), " "); got != "stays" {
		t.Errorf("parts that are left: %s", got)
	}
}

// A wrong region: "success" with nothing stored, and an unexplained 401.
func TestCase093AWrongRegionIsFoundOut(t *testing.T) {
	t.Parallel()
	c, _, zones := clouds(t, `storage_mux {
		name t
		writable
		backend b bunny zone {
			endpoint {$BUNNY}
			access_key {$BUNNY_KEY}
			verify_writes
		}
	}`)
	zones.Void(true)
	if r := c.Put("/key", "body"); r.Status < 500 {
		t.Errorf("PUT of what was not stored = %d", r.Status)
	}
	zones.Void(false)
	c.Eventually(soon, "the backend back", func() error {
		if r := c.Put("/key", "body"); r.Status != http.StatusCreated {
			return fmt.Errorf("PUT = %d", r.Status)
		}
		return nil
	})
	zones.Refuse(true)
	wantStatus(t, "GET with a key that is refused", c.Get("/key"), http.StatusBadGateway)
	_, text := c.Admin(http.MethodGet, "/storage_mux/t", "")
	if !strings.Contains(text, "main region") || strings.Contains(text, bunnyfake.AccessKey) {
		t.Errorf("the reason names no likely cause, or shows the key: %s", text)
	}
	if strings.Contains(c.Log.String(), bunnyfake.AccessKey) {
		t.Error("the log shows the key")
	}
}

// Only the first 1000 entries ever showed.
func TestCase088ListsOfManyPages(t *testing.T) {
	t.Parallel()
	c, cluster, zones := clouds(t, `
		route /swift/* {
			uri strip_prefix /swift
			storage_mux {
				list
				backend s swift box {
					auth_url {$SWIFT}/auth/v1.0
					user test:tester
					key {$SWIFT_KEY}
				}
			}
		}
		route /bunny/* {
			uri strip_prefix /bunny
			storage_mux {
				list
				backend b bunny zone {
					endpoint {$BUNNY}
					access_key {$BUNNY_KEY}
				}
			}
		}`)
	const n = 2500
	for i := range n {
		cluster.Put("box", fmt.Sprintf("k/%04d", i), "x")
		zones.Put("zone", fmt.Sprintf("k/%04d", i), "x")
	}
	for _, site := range []string{"/swift/", "/bunny/"} {
		after, i := "", 0
		for range 5 {
			page := list(t, c, site+"k/?list&limit=900"+after)
			for _, key := range page.keys() {
				if want := fmt.Sprintf("k/%04d", i); key != want {
					t.Fatalf("%s: entry %d is %q, want %q", site, i, key, want)
				}
				i++
			}
			if page.Next == "" {
				break
			}
			after = "&after=" + page.Next
		}
		if i != n {
			t.Errorf("%s: %d entries, want %d", site, i, n)
		}
	}
}

func TestKeysArePurgedByTheAdminAPIAndByWrites(t *testing.T) {
	t.Parallel()
	c, _, zones := clouds(t, strings.Replace(oneOfEach, "api_endpoint {$BUNNY}", "api_endpoint {$BUNNY}\n\t\t\tpurge_on_write", 1))
	wantStatus(t, "PUT", c.Put("/a%20b", "body"), http.StatusCreated)
	status, text := c.Admin(http.MethodPost, "/storage_mux/t/purge", `{"keys":["c"]}`, "Content-Type", "application/json")
	var report struct{ Purged []string }
	if err := json.Unmarshal([]byte(text), &report); status != http.StatusOK || err != nil || len(report.Purged) != 1 || report.Purged[0] != "bunny" {
		t.Errorf("purge = %d %s, %v, want 200 and bunny", status, text, err)
	}
	if got, want := strings.Join(zones.Purged(), " "), "https://cdn.example/a%20b https://cdn.example/c"; got != want {
		t.Errorf("purged %s, want %s", got, want)
	}
	zones.Refuse(true)
	if status, text := c.Admin(http.MethodPost, "/storage_mux/t/purge", `{"keys":["c"]}`, "Content-Type", "application/json"); status != http.StatusBadGateway ||
		!strings.Contains(text, "STORAGE_CDN.CREDENTIAL_EXPIRED") || bytes.Contains([]byte(text), []byte(bunnyfake.APIKey)) {
		t.Errorf("purge with a key that is refused = %d %s", status, text)
	}
}
