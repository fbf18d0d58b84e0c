package integration_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// scenario is a reverse proxy, and requests to it in their order. It is run
// once plain and once for each way to wrap it, and must look the same from both
// sides. The scenarios are those of Caddy's own tests of its reverse proxy.
type scenario struct {
	name    string
	to      string // upstreams
	options string // lines of reverse_proxy
	policy  string // of lb_policy. Default: Caddy's own
	inner   string // the transport and its lines: "http {…}". Default: none is named
	around  string // lines of the site, before the proxy
	huge    string // which of the uploads is a huge one, where there are some
	asks    []ask
}

// ask is one request.
type ask struct {
	method  string // Default: GET
	path    string // Default: /
	header  []string
	body    string
	size    int  // of a body of that many bytes, in place of body
	chunked bool // its length is not declared
	trailer string
	h2      bool // over HTTP/2, without TLS
}

// seen is all that both sides can tell of an exchange.
type seen struct {
	Status  int
	Proto   string
	Header  http.Header
	Body    string
	Broken  bool
	Length  int64
	Trailer http.Header
	Hints   []string
	Asked   []string // what the servers saw
}

// wrappings are the ways to wrap a proxy; the first is none at all. The last
// one measures and limits every call, which takes other ways through the code.
var wrappings = []struct{ name, options string }{
	{"plain", ""},
	{"wrapped", "success_threshold 3"},
	{"wrapped and measured", "max_concurrent 50\nslow_call 1h\nfailure_ratio 0.9 1m 1000"},
}

// site returns the Caddyfile of a scenario.
func (s scenario) site(number, wrapping int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "http://s%d.test:{$PORT} {\n%s\nreverse_proxy %s {\n%s\n", number, s.around, s.to, s.options)
	if wrapping == 0 {
		if s.policy != "" {
			fmt.Fprintf(&out, "lb_policy %s\n", s.policy)
		}
		if s.inner != "" {
			fmt.Fprintf(&out, "transport %s\n", s.inner)
		}
	} else {
		policy := s.policy
		if strings.Contains(policy, "{") {
			policy = "{\npolicy " + policy + "\n}"
		}
		fmt.Fprintf(&out, "lb_policy relay_breaker %s\ntransport relay_breaker s%d {\n%s\n", policy, number, wrappings[wrapping].options)
		if s.inner != "" {
			fmt.Fprintf(&out, "transport %s\n", s.inner)
		}
		out.WriteString("}\n")
	}
	out.WriteString("}\n}\n")
	return out.String()
}

// startScenarios starts a Caddy with all of them, wrapped in one way.
func startScenarios(t *testing.T, all []scenario, wrapping int, behind *backstage) *rig.Caddy {
	t.Helper()
	var config strings.Builder
	for i, s := range all {
		config.WriteString(s.site(i, wrapping))
	}
	// The header lets one client of the test stand for several.
	options := []rig.Option{rig.Global("servers {\nprotocols h1 h2 h2c\ntrusted_proxies static 127.0.0.1/32\nclient_ip_headers X-Client-Ip\n}")}
	for name, addr := range behind.words {
		options = append(options, rig.Env(name, addr))
	}
	return rig.Start(t, config.String(), options...)
}

func TestAWrappedProxyIsThatWithoutTheWrapper(t *testing.T) {
	t.Parallel()
	behind := newBackstage(t)
	all := slices.Concat(plainScenarios, transportScenarios, balancedScenarios, rewritingScenarios)
	results := make([][][]seen, len(wrappings)) // by wrapping, scenario and request
	for i, w := range wrappings {
		c := startScenarios(t, all, i, behind)
		for j, s := range all {
			results[i] = append(results[i], s.run(t, c, j, behind))
		}
		if i == 0 {
			continue
		}
		for j, s := range all {
			t.Run(w.name+"/"+s.name, func(t *testing.T) {
				for k, a := range s.asks {
					if without, with := fmt.Sprintf("%+v", results[0][j][k]), fmt.Sprintf("%+v", results[i][j][k]); without != with {
						t.Errorf("request %d, %+v\n plain:   %s\n wrapped: %s", k+1, a, without, with)
					}
				}
			})
		}
	}
	for j, s := range all {
		for k, got := range results[0][j] {
			if got.Status == 0 {
				t.Errorf("%s: request %d had no answer at all; the comparison is worth nothing", s.name, k+1)
			}
		}
	}
	wantTelling(t, all, results[0])
}

// wantTelling fails the test where the plain proxy did not do what its scenario
// is there to compare.
func wantTelling(t *testing.T, all []scenario, plain [][]seen) {
	t.Helper()
	find := func(name string) string {
		for i, s := range all {
			if s.name == name {
				return fmt.Sprintf("%+v", plain[i])
			}
		}
		t.Fatalf("no scenario %q", name)
		return ""
	}
	for name, signs := range map[string][]string{
		"every kind of answer":                      {"X-Surprise", "b.css", "Status:204", "Status:304", "Broken:true"},
		"every kind of answer over HTTP/2":          {"X-Surprise", "b.css", "Status:204", "Status:304", "Broken:true", "Proto:HTTP/2.0"},
		"uploads":                                   {"body=5000000", "coding=[chunked]", `X-Sum=["abc"]`},
		"an https upstream":                         {"TLS HTTP/1.1", "alpn=http/1.1"},
		"an https upstream over HTTP/2":             {"TLS2 HTTP/2.0", "alpn=h2"},
		"a server name from the request":            {"sni=name.test"},
		"an h2c upstream":                           {"H2C HTTP/2.0"},
		"PROXY protocol, version 1":                 {"announced=v1 [PROXY TCP4 127.0.0.1", "TCP4 10.0.0.7"},
		"PROXY protocol, version 2":                 {"announced=v2 2111 127.0.0.1", "2111 10.0.0.7"},
		"PROXY protocol over h2c":                   {"HTTP/2.0", "announced=v2 2111 127.0.0.1", "2111 10.0.0.7"},
		"a unix socket":                             {"UNIX HTTP/1.1"},
		"requests byte for byte":                    {"Sec-WebSocket-Version: 13", "Sec-Websocket-Unknown", "PURGE"},
		"FastCGI":                                   {"FCGI HTTP/1.1", "body=5000000"},
		"a body over the limit, buffered":           {"Status:413"},
		"a dial error, retried":                     {"A HTTP/1.1 PUT", "body=20000"},
		"a status, retried":                         {"status=503", "B HTTP/1.1"},
		"responses handled":                         {"instead of 404", "Status:418", "X-Kept"},
		"headers up and down":                       {`X-Added=["1 127`, "X-Server:[replaced]", `X-Was=["replaced-ori`},
		"method and rewrite":                        {"POST /rewritten?was=%2Fx"},
		"upstreams from DNS":                        {"A HTTP/1.1"},
		"services from DNS":                         {"A HTTP/1.1", "body=5000000"},
		"a service that is dead, retried elsewhere": {"B HTTP/1.1 PUT", "body=20000"},
		"an HTTP proxy on the way":                  {"GET http://"},
		"passive health checks":                     {"Status:500", "B HTTP/1.1"},
		"dial addresses from the request":           {"A HTTP/1.1", "B HTTP/1.1", "UNIX HTTP/1.1"},
		"a dead upstream and an error route":        {"sorry 502"},
	} {
		got := find(name)
		for _, sign := range signs {
			if !strings.Contains(got, sign) {
				t.Errorf("%s: the plain proxy shows no %s: %s", name, sign, got)
			}
		}
	}
}

// run sends the requests of a scenario.
func (s scenario) run(t *testing.T, c *rig.Caddy, number int, behind *backstage) []seen {
	t.Helper()
	clients := make(map[bool]*http.Transport)
	for _, h2 := range []bool{false, true} {
		clients[h2] = &http.Transport{
			DisableCompression: true,
			Protocols:          new(http.Protocols),
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", c.Addr())
			},
			ExpectContinueTimeout: soon,
		}
		clients[h2].Protocols.SetHTTP1(!h2)
		clients[h2].Protocols.SetUnencryptedHTTP2(h2)
		defer clients[h2].CloseIdleConnections()
	}
	var all []seen
	for _, a := range s.asks {
		behind.asked()
		a.header = slices.Clone(a.header)
		for i := range a.header {
			a.header[i] = behind.fill(a.header[i])
		}
		got := a.send(t, clients[a.h2], fmt.Sprintf("http://s%d.test", number))
		got.Asked = behind.asked()
		all = append(all, got)
	}
	return all
}

// send makes one request and reads the whole answer.
func (a ask) send(t *testing.T, client *http.Transport, base string) seen {
	t.Helper()
	var s seen
	ctx, cancel := context.WithTimeout(t.Context(), rig.AnswerWithin)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code != http.StatusContinue {
				s.Hints = append(s.Hints, fmt.Sprint(code, h))
			}
			return nil
		},
	})
	req, err := http.NewRequestWithContext(ctx, orElse(a.method, http.MethodGet), base+orElse(a.path, "/"), a.reader())
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(a.header); i += 2 {
		req.Header.Add(a.header[i], a.header[i+1])
	}
	if a.trailer != "" {
		req.Trailer = http.Header{"X-Sum": {a.trailer}}
	}
	res, err := client.RoundTrip(req)
	if err != nil {
		t.Errorf("%s %s: %v", req.Method, req.URL, err)
		return seen{}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	s.Status, s.Proto, s.Header, s.Broken = res.StatusCode, res.Proto, res.Header, err != nil
	s.Length, s.Trailer = res.ContentLength, res.Trailer
	if res.Header.Get("Content-Encoding") == "gzip" {
		body = unzip(body) // where a coder flushes is chance
	}
	if s.Body = string(body); len(body) > 200 {
		s.Body = fmt.Sprintf("%d:%x", len(body), sha256.Sum256(body))
	}
	delete(s.Header, "Date")
	return s
}

// reader returns the body.
func (a ask) reader() io.Reader {
	var r io.Reader = strings.NewReader(a.body)
	switch {
	case a.size > 0:
		r = bytes.NewReader(someBytes(a.size))
	case a.body == "":
		return nil
	}
	if a.chunked || a.trailer != "" {
		return io.MultiReader(r) // hides its length
	}
	return r
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// unzip returns as much of a gzip-coded body as there is.
func unzip(b []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return b
	}
	plain, err := io.ReadAll(z)
	return fmt.Appendf(plain, " (unzipped, %v)", err)
}

// zip returns b gzip-coded.
func zip(b []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write(b)
	_ = z.Close()
	return buf.Bytes()
}
