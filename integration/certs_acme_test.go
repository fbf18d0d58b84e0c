package integration_test

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

var lastLoopback atomic.Int32

// authority starts a Caddy that issues certificates by ACME, and returns the
// options of those that are to ask it.
func authority(t *testing.T) []rig.Option {
	t.Helper()
	ca := rig.Start(t, securedGlobals("127.0.0.1", "")+`
https://localhost:{$PORT} {
	tls internal
	acme_server {
		lifetime 1h
		challenges http-01
	}
}
`, rig.AsIs())
	ca.Eventually(soon, "the authority's own certificate", func() error {
		_, err := leaf(ca.Addr(), "localhost")
		return err
	})
	return []rig.Option{
		rig.AsIs(), rig.Env("CA", "https://localhost:"+ca.Word("PORT")+"/acme/local/directory"),
		rig.Env("CA_ROOT", filepath.Join(ca.Word("XDG_DATA_HOME"), "caddy/pki/authorities/local/root.crt")),
	}
}

// customer is a Caddyfile of one that gets the certificate of {$SUBJECT} by
// ACME, and keeps it in two directories that it may share with others.
func customer(global string) string {
	return strings.Replace(securedGlobals("{$ADDRESS}", `
	storage_mux certs mirror {$DIR}/a {$DIR}/b
	storage storage_mux certs
	https_port {$PORT}
	default_sni {$SUBJECT}
	`+global), "auto_https disable_redirects\n", "", 1) + `
https://{$SUBJECT}:{$PORT} {
	tls {
		issuer acme {
			dir {$CA}
			trusted_roots {$CA_ROOT}
			disable_tlsalpn_challenge
		}
	}
	respond "secure"
}
`
}

// at is where a customer listens.
func at(c *rig.Caddy) string { return net.JoinHostPort(c.Word("ADDRESS"), c.Word("PORT")) }

// obtained counts the certificates that a Caddy has got.
func obtained(c *rig.Caddy) int {
	return len(c.Log.Entries(func(e rig.Entry) bool { return e.Str("msg") == "certificate obtained successfully" }))
}

// sameLeaf waits until all show one certificate, which is not the one before.
func sameLeaf(t *testing.T, before *x509.Certificate, all ...*rig.Caddy) (cert *x509.Certificate) {
	t.Helper()
	all[0].Eventually(2*soon, "one certificate for all", func() error {
		cert = nil
		for _, c := range all {
			one, err := leaf(at(c), "")
			switch {
			case err != nil:
				return err
			case before != nil && one.Equal(before):
				return fmt.Errorf("%s still shows the old certificate", at(c))
			case cert != nil && !one.Equal(cert):
				return fmt.Errorf("%s shows another certificate", at(c))
			}
			cert = one
		}
		return nil
	})
	return cert
}

func TestCaddysThatShareATreeObtainACertificateOnce(t *testing.T) {
	t.Parallel()
	dir := folders(t, "a", "b")
	address := loopback(t)
	options := append(authority(t), rig.InDir(dir), rig.Env("SUBJECT", address))
	elsewhere := loopback(t)
	both := func(global string) (first, second *rig.Caddy) {
		return rig.Start(t, customer(global), append(options, rig.Env("ADDRESS", address))...),
			rig.Start(t, customer(global), append(options, rig.Env("ADDRESS", elsewhere))...)
	}
	// Both want it at the same time. The authority asks the first one, whoever it was that asked for the certificate.
	first, second := both("")
	cert := sameLeaf(t, nil, first, second)
	if n := obtained(first) + obtained(second); n != 1 {
		t.Errorf("%d certificates were obtained, want 1 for both", n)
	}
	first.Stop()
	second.Stop()
	// From now on certificates are renewed some seconds after they were made. Whoever is first renews it for both.
	first, second = both("renew_interval 1s\nrenewal_window_ratio 0.9822")
	renewed := sameLeaf(t, cert, first, second)
	if !renewed.NotAfter.After(cert.NotAfter) {
		t.Errorf("renewed until %v, before until %v", renewed.NotAfter, cert.NotAfter)
	}
	for _, c := range []*rig.Caddy{first, second} {
		if lost := c.Log.Entries(func(e rig.Entry) bool { return strings.Contains(e.Str("msg"), "lost a lock") }); len(lost) > 0 {
			t.Errorf("%s says %v", at(c), lost)
		}
	}
}

// A Caddy that is killed while it waits for its authority has the lock of the
// certificate. Another one takes it over when it has not changed for long enough.
func TestTheLockOfAKilledCaddyRunsOut(t *testing.T) {
	t.Parallel()
	dir := folders(t, "a", "b")
	asked := make(chan struct{}, 100)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	address := loopback(t)
	options := append(authority(t), rig.InDir(dir), rig.Env("SUBJECT", address), rig.Env("ADDRESS", address))
	killed := rig.Start(t, customer(""), append(options, rig.Env("CA", silent.URL))...)
	<-asked
	held, err := filepath.Glob(filepath.Join(dir, "a/.storage_mux/storage/locks/issue_cert_*.lock"))
	if err != nil || len(held) != 1 {
		t.Fatalf("the locks are %v, %v", held, err)
	}
	killed.Kill()
	c := rig.Start(t, customer(""), options...)
	sameLeaf(t, nil, c)
	taken := c.Log.Entries(func(e rig.Entry) bool {
		return strings.Contains(e.Str("msg"), "took over a lock") && strings.HasPrefix(e.Str("lock"), "issue_cert_")
	})
	if len(taken) != 1 || !strings.Contains(taken[0].Str("other"), fmt.Sprint(killed.Pid())) || taken[0].Str("backend") != "a" {
		t.Errorf("the log says %v of the takeover from %d", taken, killed.Pid())
	}
}
