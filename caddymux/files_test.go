package caddymux

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A certificate in a file is a part of the config, though its name is all that the config has of it.
func TestAnEditOfAFileThatABackendReadsIsOneOfTheBackend(t *testing.T) {
	origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("body")) }))
	t.Cleanup(origin.Close)
	origin.Config.ErrorLog = nil
	file := filepath.Join(t.TempDir(), "ca.pem")
	trust := func(der []byte) {
		t.Helper()
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trust(stranger(t))
	site := "storage_mux {\n name t\n cooldown 1h\n journal off\n backend o http " + origin.URL + " {\n  tls_ca_file " + file + "\n }\n backend m memory\n}"
	c := run(t, site)
	c.expect(http.StatusNotFound, "GET", "/x", "") // m's word
	wantStanding(t, "o:down w1, m:up w1")
	before := newest("t")
	before.release()
	c.load(site)
	wantStanding(t, "o:down w1, m:up w1")
	if after := newest("t"); after != before {
		t.Error("with the same file, the tree is another one")
	} else {
		after.release()
	}
	trust(origin.Certificate().Raw)
	c.load(site)
	wantStanding(t, "o:up w1, m:up w1")
	c.expect(http.StatusOK, "GET", "/x", "")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := c.tryLoad(site); err == nil {
		t.Error("a config loads whose file is gone")
	}
	c.expect(http.StatusOK, "GET", "/x", "")
}

// stranger is a certificate of nobody that is known here.
func stranger(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
