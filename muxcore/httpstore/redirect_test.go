package httpstore_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

// seen records the requests that a server gets.
type seen struct {
	mu   sync.Mutex
	reqs []*http.Request
}

func (s *seen) note(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reqs = append(s.reqs, r)
}

func (s *seen) last(tb testing.TB) *http.Request {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reqs) == 0 {
		tb.Fatal("no request came")
	}
	return s.reqs[len(s.reqs)-1]
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reqs)
}

// tracedContext is a valid span context.
func tracedContext(tb testing.TB) trace.SpanContext {
	tb.Helper()
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		tb.Fatal(err)
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5}, TraceFlags: trace.FlagsSampled, TraceState: state,
	})
}

func TestReadsFollowRedirectsAndSecretsStayHome(t *testing.T) {
	var home, other seen
	elsewhere := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		other.note(r)
		_, _ = io.WriteString(w, "from elsewhere")
	}))
	base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		home.note(r)
		switch r.URL.Path {
		case "/base/here":
			http.Redirect(w, r, "/base/final", http.StatusMovedPermanently)
		case "/base/final":
			_, _ = io.WriteString(w, "from home")
		case "/base/there":
			http.Redirect(w, r, elsewhere+"/signed?sig=x", http.StatusTemporaryRedirect)
		}
	}))
	s := open(t, httpstore.Settings{
		BaseURL: strings.Replace(base, "://", "://user:secret@", 1) + "/base",
		Header:  http.Header{"X-Api-Key": {"secret"}, "Cookie": {"session=secret"}, "Host": {"files.example"}},
	})
	ctx := trace.ContextWithSpanContext(t.Context(), tracedContext(t))
	get := func(key string) string {
		o, err := s.Get(ctx, key, muxcore.GetOptions{Conditions: muxcore.Conditions{IfMatch: "*"}, Range: muxcore.Range{Length: 5}})
		if err != nil {
			t.Fatalf("Get(%q) = %v", key, err)
		}
		defer o.Body.Close()
		body, _ := io.ReadAll(o.Body)
		return string(body)
	}

	if got := get("here"); got != "from " {
		t.Errorf("Get = %q, want %q", got, "from ")
	}
	r := home.last(t)
	if user, password, _ := r.BasicAuth(); user != "user" || password != "secret" || r.Header.Get("X-Api-Key") != "secret" || r.Host != "files.example" {
		t.Errorf("the origin gets %v with host %q after its own redirect, want the credentials", r.Header, r.Host)
	}
	if got, want := r.Header.Get("Traceparent"), "00-01020300000000000000000000000000-0405000000000000-01"; got != want || r.Header.Get("Tracestate") != "vendor=1" {
		t.Errorf("traceparent = %q, tracestate = %q, want %q, vendor=1", got, r.Header.Get("Tracestate"), want)
	}

	get("there")
	got := other.last(t).Header
	want := []string{"Accept-Encoding", "If-Match", "Range", "User-Agent"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("another host gets the fields %v, want %v", names, want)
	}
	if r := other.last(t); r.Host == "files.example" || r.URL.RawQuery != "sig=x" {
		t.Errorf("another host gets host %q, query %q", r.Host, r.URL.RawQuery)
	}
}

func TestSecretsDoNotComeHomeFromElsewhere(t *testing.T) {
	var home seen
	var back string
	elsewhere := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, back, http.StatusFound) }))
	back = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		home.note(r)
		if r.URL.Path == "/k" {
			http.Redirect(w, r, elsewhere, http.StatusFound)
		}
	})) + "/private"
	s := open(t, httpstore.Settings{BaseURL: strings.TrimSuffix(back, "/private"), Header: http.Header{"Authorization": {"Bearer secret"}}})
	if _, _, err := read(t, s, "k", muxcore.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := home.last(t); r.URL.Path != "/private" || r.Header.Get("Authorization") != "" {
		t.Errorf("sent back by another host, the origin gets %s with Authorization %q, want none", r.URL.Path, r.Header.Get("Authorization"))
	}
}

func TestRedirectsThatAreNotFollowed(t *testing.T) {
	var hits seen
	plain := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("https was left for http") }))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.note(r)
		switch r.URL.Path {
		case "/down":
			http.Redirect(w, r, plain+"/secret-path", http.StatusFound)
		case "/docs":
			http.Redirect(w, r, "/docs/", http.StatusMovedPermanently)
		case "/ftp":
			http.Redirect(w, r, "ftp://host/x", http.StatusFound)
		case "/bad":
			w.Header().Set("Location", "http://[::1")
			w.WriteHeader(http.StatusFound)
		case "/odd":
			w.WriteHeader(http.StatusMultipleChoices)
		default:
			http.Redirect(w, r, "/loop"+r.URL.Path, http.StatusFound)
		}
	})
	srv := httptest.NewTLSServer(handler)
	t.Cleanup(srv.Close)
	s := open(t, httpstore.Settings{BaseURL: srv.URL, TLSInsecure: true})
	for key, want := range map[string]struct {
		code muxcore.Code
		hits int
	}{
		"down": {muxcore.CodeUnavailable, 1},
		"docs": {muxcore.CodeKeyNotFound, 1},
		"ftp":  {muxcore.CodeUnavailable, 1},
		"bad":  {muxcore.CodeUnavailable, 1},
		"odd":  {muxcore.CodeUnavailable, 1},
		"loop": {muxcore.CodeUnavailable, 6},
	} {
		before := hits.count()
		_, err := s.Stat(t.Context(), key, muxcore.Conditions{})
		if muxcore.CodeOf(err) != want.code || hits.count()-before != want.hits {
			t.Errorf("Stat(%q) = %v after %d requests, want %s after %d", key, err, hits.count()-before, want.code, want.hits)
		}
		if err != nil && strings.Contains(err.Error(), "secret-path") {
			t.Errorf("Stat(%q) = %v: shows more of the location than the host", key, err)
		}
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		w := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodOptions && r.URL.Path != "/k" {
				t.Errorf("%s %s: a write was redirected", r.Method, r.URL)
			}
			w.Header().Set("Location", plain+"/x?sig=secret")
			w.WriteHeader(status)
		}))})
		_, perr := w.Put(t.Context(), "k", strings.NewReader("x"), 1, muxcore.PutOptions{})
		_, derr := w.Delete(t.Context(), "k", muxcore.DeleteOptions{})
		for _, err := range []error{perr, derr} {
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), strings.TrimPrefix(plain, "http://")) || strings.Contains(err.Error(), "secret") {
				t.Errorf("a write redirected by %d = %v, want UNSUPPORTED that names the host", status, err)
			}
		}
	}
}

// TestClientCertificatesStayHome lets two servers ask for a certificate: the origin gets ours, the other does not.
func TestClientCertificatesStayHome(t *testing.T) {
	certs := make(chan int, 2)
	newServer := func(h http.HandlerFunc) *httptest.Server {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			certs <- len(r.TLS.PeerCertificates)
			h(w, r)
		}))
		srv.EnableHTTP2 = true
		srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return srv
	}
	other := newServer(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	home := newServer(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+"/x", http.StatusFound) })

	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pair := home.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		ca:   {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		cert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		key:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, httpstore.Settings{BaseURL: home.URL, TLSCAFile: ca, TLSCertFile: cert, TLSKeyFile: key, TLSServerName: "example.com"})
	_, got, err := read(t, s, "k", muxcore.GetOptions{})
	if err != nil || got != "HTTP/2.0" {
		t.Fatalf("Get = %q, %v, want it over HTTP/2.0", got, err)
	}
	if atHome, elsewhere := <-certs, <-certs; atHome != 1 || elsewhere != 0 {
		t.Errorf("the origin gets %d certificates, another host %d, want 1 and 0", atHome, elsewhere)
	}
	strict := open(t, httpstore.Settings{BaseURL: home.URL})
	if _, err := strict.Stat(t.Context(), "k", muxcore.Conditions{}); muxcore.CodeOf(err) != muxcore.CodeUnavailable {
		t.Errorf("Stat of an origin with an unknown certificate = %v, want UNAVAILABLE", err)
	}
}
