package integration_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
	"github.com/suaveplan/caddy-storage-mux/internal/bunnyfake"
	"github.com/suaveplan/caddy-storage-mux/internal/s3fake"
	"github.com/suaveplan/caddy-storage-mux/internal/swiftfake"
)

// mirrorMembers are the members of mirrorOfAll.
var mirrorMembers = []string{"m", "d", "h", "s", "b", "a"}

// mirrorOfAll is a mirror of one backend of each type, under the name t.
func mirrorOfAll(t *testing.T) *rig.Caddy {
	t.Helper()
	f1, cluster, zones, service := origin.New(t), swiftfake.New(t, "box"), bunnyfake.New(t, "zone"), s3fake.New(t, "bucket")
	return rig.Start(t, `
		storage_mux mirror {
			name t
			journal off
			writable
			backend m memory
			backend d file {$DIR}/d {
				create_root
			}
			backend h http {$F1}
			backend s rackspace box {
				auth_url {$SWIFT}/v2.0
				user tester
				key {$SWIFT_KEY}
			}
			backend b bunny zone {
				endpoint {$BUNNY}
				access_key {$BUNNY_KEY}
				verify_writes
			}
			backend a s3 bucket {
				endpoint {$S3}
				access_key {$S3_KEY}
				secret_key {$S3_SECRET}
			}
		}`, rig.Env("F1", f1.URL()), rig.Env("SWIFT", cluster.URL), rig.Env("SWIFT_KEY", swiftfake.Key),
		rig.Env("BUNNY", zones.URL), rig.Env("BUNNY_KEY", bunnyfake.AccessKey),
		rig.Env("S3", service.URL), rig.Env("S3_KEY", s3fake.AccessKey), rig.Env("S3_SECRET", s3fake.SecretKey))
}

// eachMember runs a check with one member of the mirror after the other as the only one in service.
func eachMember(t *testing.T, c *rig.Caddy, check func(member string)) {
	t.Helper()
	drain := func(method, member string) {
		if status, answer := c.Admin(method, "/storage_mux/t/backends/"+member+"/drain?timeout=20s", ""); status != http.StatusOK {
			t.Fatalf("%s drain of %s = %d %s", method, member, status, answer)
		}
	}
	for _, one := range mirrorMembers {
		for _, other := range mirrorMembers {
			if other != one {
				drain(http.MethodPost, other)
			}
		}
		check(one)
		for _, other := range mirrorMembers {
			if other != one {
				drain(http.MethodDelete, other)
			}
		}
	}
}

// Row 62: an uploader who hangs up, before the end of what was announced or of the chunks, changes nothing on any member: not where
// there is nothing yet, and not where there is an object.
func TestCase062NoMemberOfAMirrorPublishesAPart(t *testing.T) {
	t.Parallel()
	c := mirrorOfAll(t)
	wantStatus(t, "PUT", c.Put("/old", "the old object"), http.StatusCreated)
	for name, request := range map[string]string{
		"small":                         "Content-Length: 1000\r\n\r\n" + strings.Repeat("h", 500),
		"large":                         "Content-Length: 1000000\r\n\r\n" + strings.Repeat("h", 500_000),
		"all but a byte of a large one": "Content-Length: 300000\r\n\r\n" + strings.Repeat("h", 299_999),
		"chunks":                        "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", 200_000, strings.Repeat("h", 200_000)),
		"half a chunk":                  "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s", 200_000, strings.Repeat("h", 100_000)),
	} {
		for _, path := range []string{"/new", "/old"} {
			conn, err := net.Dial("tcp", c.Addr())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "PUT "+path+" HTTP/1.1\r\nHost: a\r\n"+request); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			conn.Close()
		}
	}
	c.Eventually(soon, "the end of the uploads", func() error {
		if _, stats := c.Admin(http.MethodGet, "/storage_mux/t", ""); strings.Count(stats, `"in_flight_count":0`) != len(mirrorMembers) {
			return fmt.Errorf("some are in flight: %s", stats)
		}
		return nil
	})
	eachMember(t, c, func(member string) {
		wantBody(t, member+": GET of the old object", c.Get("/old"), http.StatusOK, []byte("the old object"))
		wantStatus(t, member+": GET of what was never whole", c.Get("/new"), http.StatusNotFound)
	})
	wantStatus(t, "PUT afterwards", c.Put("/new", "whole"), http.StatusCreated)
	eachMember(t, c, func(member string) {
		wantBody(t, member+": GET", c.Get("/new"), http.StatusOK, []byte("whole"))
	})
}

// Row 72: an upload under way is nobody's key on any backend, and neither is what it is kept under.
func TestCase072AnUploadUnderWayIsNoKeyOfAnyBackend(t *testing.T) {
	t.Parallel()
	eachStore(t, stores(t, ""), func(t *testing.T, s store) {
		wantStatus(t, "PUT", s.Put("/sub/old", "body"), http.StatusCreated)
		pw, done := slowPut(t, s.Caddy, "/sub/new", 1<<20)
		for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); {
			wantMissing(t, s.Caddy, "/sub/new")
			if s.origin == nil {
				if got := fmt.Sprint(keysIn(t, s.Caddy, "/?list")); got != "[sub/old]" {
					t.Fatalf("keys during the upload: %s", got)
				}
			}
		}
		if _, err := pw.Write(make([]byte, 1<<19)); err != nil {
			t.Fatal(err)
		}
		pw.Close()
		wantStatus(t, "the slow PUT", <-done, http.StatusCreated)
		wantBody(t, "GET", s.Get("/sub/new"), http.StatusOK, make([]byte, 1<<20))
	})
}
