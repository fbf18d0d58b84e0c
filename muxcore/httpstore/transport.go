package httpstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// transports are what sends requests to the origin, and to those that it redirects to.
func (set *Settings) transports(scheme string) (home, foreign http.RoundTripper, err error) {
	if set.Transport != nil {
		return set.Transport, set.Transport, nil
	}
	if scheme == "http" {
		return wire.NewTransport(new(tls.Config)), wire.NewTransport(new(tls.Config)), nil
	}
	homeTLS, foreignTLS, err := set.tlsConfigs()
	if err != nil {
		return nil, nil, err
	}
	return wire.NewTransport(homeTLS), wire.NewTransport(foreignTLS), nil
}

// checkTLS tells whether the TLS fields go together, and with the rest.
func (set *Settings) checkTLS(scheme string) error {
	switch {
	case set.Transport != nil:
		return set.checkNoTLS("transport is given")
	case scheme == "http":
		return set.checkNoTLS("base_url is not https")
	case set.TLSCertFile != "" && set.TLSKeyFile == "":
		return errors.New("tls_key_file: missing beside tls_cert_file")
	case set.TLSCertFile == "" && set.TLSKeyFile != "":
		return errors.New("tls_cert_file: missing beside tls_key_file")
	}
	return nil
}

// checkNoTLS refuses TLS fields where they would have no effect.
func (set *Settings) checkNoTLS(because string) error {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"tls_ca_file", set.TLSCAFile != ""},
		{"tls_cert_file", set.TLSCertFile != ""},
		{"tls_key_file", set.TLSKeyFile != ""},
		{"tls_server_name", set.TLSServerName != ""},
		{"tls_insecure", set.TLSInsecure},
	} {
		if f.set {
			return fmt.Errorf("%s: has no effect: %s", f.name, because)
		}
	}
	return nil
}

// tlsConfigs are how to speak to the origin, and to those that it redirects to: without our certificate, and trusted
// by nothing but an authority.
func (set *Settings) tlsConfigs() (home, foreign *tls.Config, err error) {
	home = &tls.Config{ServerName: set.TLSServerName, InsecureSkipVerify: set.TLSInsecure}
	foreign = new(tls.Config)
	if set.TLSCAFile != "" {
		pem, err := os.ReadFile(set.TLSCAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("tls_ca_file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, nil, fmt.Errorf("tls_ca_file: no certificate in %q", set.TLSCAFile)
		}
		home.RootCAs, foreign.RootCAs = pool, pool
	}
	if set.TLSCertFile == "" {
		return home, foreign, nil
	}
	pair, err := tls.LoadX509KeyPair(set.TLSCertFile, set.TLSKeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("tls_cert_file, tls_key_file: %w", err)
	}
	home.Certificates = []tls.Certificate{pair}
	return home, foreign, nil
}
