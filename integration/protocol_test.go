package integration_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// selfSigned writes a certificate for 127.0.0.1 and its key into dir.
func selfSigned(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// Uploads of every kind of length arrive whole over each version of HTTP, and what breaks off leaves nothing.
func TestUploadsOverEveryVersionOfHTTP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	roots := selfSigned(t, dir)
	c := rig.Start(t, `
		https://localhost:{$PORT} {
			tls {$DIR}/cert.pem {$DIR}/key.pem
			storage_mux mirror {
				writable
				backend m memory
				backend d file {$DIR}/d {
					create_root
				}
			}
		}`, rig.InDir(dir))
	for version, client := range versions(t, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: "localhost"}) {
		send := func(method, path string, body io.Reader, length int64) (*http.Response, []byte, error) {
			ctx, cancel := context.WithTimeout(context.Background(), rig.AnswerWithin)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, method, "https://localhost:"+c.Word("PORT")+path, body)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = length
			resp, err := client.Do(req)
			if err != nil {
				return nil, nil, err
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			return resp, got, err
		}
		for _, size := range []int{0, 1, 64 << 10, 3 << 20} {
			for _, known := range []bool{true, false} {
				path := fmt.Sprintf("/v%d-%d-%t", version, size, known)
				body, length := someBytes(size), int64(size)
				src := io.Reader(bytes.NewReader(body))
				if !known {
					src, length = io.MultiReader(src), -1
				} else if size == 0 {
					src = http.NoBody
				}
				resp, _, err := send(http.MethodPut, path, src, length)
				if err != nil || resp.StatusCode != http.StatusCreated || resp.ProtoMajor != version {
					t.Fatalf("PUT %s = %+v, %v", path, resp, err)
				}
				resp, got, err := send(http.MethodGet, path, nil, 0)
				if err != nil || resp.StatusCode != http.StatusOK || rig.Same(got, body) != nil {
					t.Errorf("GET %s = %+v, %v: %v", path, resp, err, rig.Same(got, body))
				}
				onDisk, err := os.ReadFile(filepath.Join(dir, "d", path))
				if err != nil || rig.Same(onDisk, body) != nil {
					t.Errorf("%s on disk: %v, %v", path, err, rig.Same(onDisk, body))
				}
			}
		}
		// An uploader that breaks off in the middle, with its length known and not.
		for _, length := range []int64{3 << 20, -1} {
			path := fmt.Sprintf("/broken%d", version)
			half := io.MultiReader(bytes.NewReader(someBytes(1<<20)), failing{})
			if resp, _, err := send(http.MethodPut, path, half, length); err == nil && resp.StatusCode < 400 {
				t.Errorf("PUT of half a body over HTTP/%d = %d", version, resp.StatusCode)
			}
			resp, _, err := send(http.MethodGet, path, nil, 0)
			if err != nil || resp.StatusCode != http.StatusNotFound {
				t.Errorf("GET of what was half sent over HTTP/%d = %+v, %v, want 404", version, resp, err)
			}
		}
	}
}

// failing is a body that breaks.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
