package caddymux

import (
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

func init() { caddy.RegisterModule(new(HTTPBackend)) }

// HTTPBackend reads and writes the objects of an HTTP origin: GET and HEAD, PUT and DELETE, and lists where the origin
// speaks WebDAV.
type HTTPBackend struct {
	// The URL to which keys are appended, http or https. A user and a password in it become Basic credentials; use
	// placeholders (`{env.X}`, `{file.X}`) for them. Required.
	BaseURL string `json:"base_url,omitempty"`

	// Fields to send with every request to the origin, and to nobody it redirects to. Credentials belong here, as
	// placeholders: one that is unknown or empty is an error when the config loads. Default: none.
	Header http.Header `json:"header,omitempty"`

	// The path that health checks ask for: from the root of the host if it begins with a slash, else below the base
	// URL. Default: the base URL itself.
	HealthURI string `json:"health_uri,omitempty"`

	// A PEM file of the authorities of which the origin's certificate must be. Default: those of the system.
	TLSCAFile string `json:"tls_ca_file,omitempty"`

	// PEM files of a certificate and its key, to show to the origin. They are read when a config is loaded, as is the file of
	// authorities, and an edit of their content counts as one of the backend (`caddy reload --force` where nothing else changes).
	// Default: none.
	TLSCertFile string `json:"tls_cert_file,omitempty"`
	TLSKeyFile  string `json:"tls_key_file,omitempty"`

	// The name that the origin's certificate must have. Default: the host of the base URL.
	TLSServerName string `json:"tls_server_name,omitempty"`

	// Accept any certificate. Whoever is between here and the origin can then read and change everything. Default: false.
	TLSInsecure bool `json:"tls_insecure,omitempty"`

	// The origin honours If-Match and If-None-Match on PUT and DELETE. One that ignores them would overwrite what it must
	// not, so without this no conditional write goes there. Default: false.
	ConditionalWrite bool `json:"conditional_write,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*HTTPBackend) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  backendNamespace + ".http",
		New: func() caddy.Module { return new(HTTPBackend) },
	}
}

// OpenStore implements [BackendType].
func (b *HTTPBackend) OpenStore() (muxcore.Store, error) {
	return httpstore.New(httpstore.Settings{
		BaseURL: b.BaseURL, Header: b.Header, HealthURI: b.HealthURI, ConditionalWrite: b.ConditionalWrite,
		TLSCAFile: b.TLSCAFile, TLSCertFile: b.TLSCertFile, TLSKeyFile: b.TLSKeyFile,
		TLSServerName: b.TLSServerName, TLSInsecure: b.TLSInsecure,
	})
}

// UnmarshalCaddyfile sets up the backend from Caddyfile tokens:
//
//	http <base-url> {
//	    header <name> <value>
//	    health_uri <path>
//	    tls_ca_file <file>
//	    tls_cert_file <file>
//	    tls_key_file <file>
//	    tls_server_name <name>
//	    tls_insecure
//	    conditional_write
//	}
func (b *HTTPBackend) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.NextArg() {
		return d.Err("http: base URL is missing")
	}
	b.BaseURL = d.Val()
	if err := b.check(httpstore.Settings{}); err != nil {
		return at(d, err)
	}
	if err := noMoreSecrets(d, "http"); err != nil { // the first one may have a password
		return err
	}
	if err := ParseOptions(d, SharedWords("http"),
		Option{Word: "header", Repeats: true, Parse: b.parseHeader},
		Option{Word: "health_uri", Parse: b.parseHealthURI},
		Option{Word: "tls_ca_file", Parse: TextOption(&b.TLSCAFile)},
		Option{Word: "tls_cert_file", Parse: TextOption(&b.TLSCertFile)},
		Option{Word: "tls_key_file", Parse: TextOption(&b.TLSKeyFile)},
		Option{Word: "tls_server_name", Parse: TextOption(&b.TLSServerName)},
		Option{Word: "tls_insecure", Parse: FlagOption(&b.TLSInsecure)},
		Option{Word: "conditional_write", Parse: FlagOption(&b.ConditionalWrite)},
	); err != nil {
		return err
	}
	return at(d, b.check(httpstore.Settings{
		TLSCAFile: b.TLSCAFile, TLSCertFile: b.TLSCertFile, TLSKeyFile: b.TLSKeyFile, TLSServerName: b.TLSServerName, TLSInsecure: b.TLSInsecure,
	}))
}

// check finds what is wrong with some of the options, as far as placeholders let it.
func (b *HTTPBackend) check(set httpstore.Settings) error {
	if set.BaseURL = b.BaseURL; hasPlaceholder(b.BaseURL) {
		set.BaseURL = "https://placeholder"
	}
	return set.Check()
}

func (b *HTTPBackend) parseHeader(d *caddyfile.Dispenser) error {
	var name, value string
	if !d.Args(&name, &value) {
		return d.ArgErr()
	}
	if err := noMoreSecrets(d, "header"); err != nil {
		return err
	}
	if value == "" {
		return d.Errf("header: the value of %s is empty", name)
	}
	if b.Header == nil {
		b.Header = make(http.Header)
	}
	b.Header.Add(name, value)
	if hasPlaceholder(value) {
		value = ""
	}
	return at(d, b.check(httpstore.Settings{Header: http.Header{name: {value}}}))
}

func (b *HTTPBackend) parseHealthURI(d *caddyfile.Dispenser) error {
	if err := TextOption(&b.HealthURI)(d); err != nil || hasPlaceholder(b.HealthURI) {
		return err
	}
	return at(d, b.check(httpstore.Settings{HealthURI: b.HealthURI}))
}

// Schemes implements [Locator].
func (*HTTPBackend) Schemes() []string { return []string{"http", "https"} }

// UnmarshalLocation implements [Locator].
func (b *HTTPBackend) UnmarshalLocation(location string) error {
	b.BaseURL = location
	return b.check(httpstore.Settings{})
}

// Place implements [Placed].
func (b *HTTPBackend) Place() string {
	u, err := url.Parse(b.BaseURL)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

// ReadsFiles implements [FileReader].
func (b *HTTPBackend) ReadsFiles() (files []string) {
	for _, name := range []string{b.TLSCAFile, b.TLSCertFile, b.TLSKeyFile} {
		if name != "" {
			files = append(files, name)
		}
	}
	return files
}

// Credentials implements [Credentialed].
func (*HTTPBackend) Credentials() []string { return []string{"base_url", "header"} }

// Interface guards.
var (
	_ BackendType           = (*HTTPBackend)(nil)
	_ Locator               = (*HTTPBackend)(nil)
	_ Placed                = (*HTTPBackend)(nil)
	_ Credentialed          = (*HTTPBackend)(nil)
	_ FileReader            = (*HTTPBackend)(nil)
	_ caddyfile.Unmarshaler = (*HTTPBackend)(nil)
)
