package integration_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// streaming are the proxies that conversations are led through.
var streaming = []scenario{
	{name: "plain", to: "{$A}"},
	{name: "https", to: "https://{$TLS}", inner: "http {\ntls_insecure_skip_verify\n}"},
	{name: "PROXY protocol", to: "{$PROXY}", inner: "http {\nproxy_protocol v2\n}"},
	{name: "unix", to: "unix/{$UNIX}"},
	{name: "buffers", to: "{$A}", options: "request_buffers 4KiB\nstream_buffer_size 1KiB"},
	{name: "headers", to: "{$A}", options: "header_up X-Added 1\nheader_down X-Added 2"},
	{name: "a time limit", to: "{$A}", options: "stream_timeout 5s"},
	{name: "h2c", to: "h2c://{$H2C}"},
	{name: "HTTP/2", to: "https://{$TLS2}", inner: "http {\ntls_insecure_skip_verify\n}"},
}

// conversation is an exchange in which both sides take turns. It returns what
// was seen of it, and must not depend on time.
type conversation struct {
	name string
	fits func(scenario) bool
	lead func(t *testing.T, c *rig.Caddy, host string) string
}

var conversations = []conversation{
	{"an upgraded connection", upgradable, func(t *testing.T, c *rig.Caddy, host string) string {
		return upgraded(t, c, host, func(conn *net.TCPConn) { _ = conn.Close() })
	}},
	{"an upgraded connection that is closed by half", func(s scenario) bool { return upgradable(s) && s.name != "a time limit" }, func(t *testing.T, c *rig.Caddy, host string) string {
		return upgraded(t, c, host, func(conn *net.TCPConn) { _ = conn.CloseWrite() })
	}},
	{"an upgraded connection that meets its time limit", func(s scenario) bool { return s.name == "a time limit" }, func(t *testing.T, c *rig.Caddy, host string) string {
		return upgraded(t, c, host, func(*net.TCPConn) {})
	}},
	{"a duplex body over HTTP/2", func(s scenario) bool { return s.name != "buffers" }, duplexed},
	{"events as they happen", always, events},
}

func always(scenario) bool { return true }

// HTTP/2 knows no upgrade.
func upgradable(s scenario) bool { return s.name != "h2c" && s.name != "HTTP/2" }

func TestStreamsThroughAWrappedProxyAreThoseWithoutTheWrapper(t *testing.T) {
	t.Parallel()
	behind := newBackstage(t)
	plain := make(map[string]string)
	for i, w := range wrappings {
		c := startScenarios(t, streaming, i, behind)
		for j, s := range streaming {
			for _, talk := range conversations {
				if !talk.fits(s) {
					continue
				}
				name := s.name + "/" + talk.name
				behind.asked()
				got := talk.lead(t, c, fmt.Sprintf("s%d.test", j)) + fmt.Sprint(behind.asked())
				if i == 0 {
					plain[name] = got
				} else if got != plain[name] {
					t.Errorf("%s, %s:\n plain:   %s\n wrapped: %s", w.name, name, plain[name], got)
				}
			}
		}
	}
	for name, got := range plain {
		if !strings.Contains(got, "heard second") && !strings.Contains(got, "data: 2") {
			t.Errorf("%s: the plain proxy shows nothing to compare: %s", name, got)
		}
	}
}

// upgraded talks over an upgraded connection, ends it in some way, and reads
// what still comes.
func upgraded(t *testing.T, c *rig.Caddy, host string, end func(*net.TCPConn)) string {
	t.Helper()
	dialed, err := net.Dial("tcp", c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	conn := dialed.(*net.TCPConn)
	_ = conn.SetDeadline(time.Now().Add(soon))
	fmt.Fprintf(conn, "GET /socket HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", host)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return "no answer: " + err.Error()
	}
	res.Header.Del("Date")
	transcript := fmt.Sprintf("%d %v\n", res.StatusCode, res.Header)
	for _, line := range []string{"first", "second"} {
		fmt.Fprintln(conn, line)
		answer, err := in.ReadString('\n')
		transcript += fmt.Sprintf("%q %v\n", answer, err)
	}
	end(conn)
	rest, err := io.ReadAll(in)
	if err != nil && strings.Contains(err.Error(), "closed network connection") {
		return transcript
	}
	return transcript + fmt.Sprintf("then %q, error %t\n", rest, err != nil)
}

// talker returns a client for HTTP/2 without TLS.
func talker(c *rig.Caddy) *http.Transport {
	client := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", c.Addr())
		},
	}
	client.Protocols.SetUnencryptedHTTP2(true)
	return client
}

// duplexed sends lines and reads the answer to each before the next.
func duplexed(t *testing.T, c *rig.Caddy, host string) string {
	t.Helper()
	client := talker(c)
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	body, lines := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+host+"/duplex", body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.RoundTrip(req)
	if err != nil {
		return "no answer: " + err.Error()
	}
	defer res.Body.Close()
	transcript := fmt.Sprint(res.Status, " ")
	in := bufio.NewReader(res.Body)
	for _, line := range []string{"first", "second", "third"} {
		fmt.Fprintln(lines, line)
		answer, err := in.ReadString('\n')
		transcript += fmt.Sprintf("%q %v ", answer, err)
	}
	lines.Close()
	rest, err := io.ReadAll(in)
	return transcript + fmt.Sprintf("then %q %v\n", rest, err)
}

// events reads an event stream event by event.
func events(t *testing.T, c *rig.Caddy, host string) string {
	t.Helper()
	res, err := c.Open(t.Context(), rig.Request{Path: "/events", Header: []string{"Host", host}})
	if err != nil {
		return "no answer: " + err.Error()
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return fmt.Sprintf("%d %s %q %v\n", res.StatusCode, res.Header.Get("Content-Type"), all, err)
}

// checked are proxies with active health checks, of which the second upstream
// fails.
var checked = []scenario{
	{name: "health checks", to: "{$A} {$B}", policy: "round_robin", options: "health_uri /health\nhealth_interval 50ms\nhealth_headers {\nX-Check 1\n}"},
	{name: "over a unix socket", to: "unix/{$UNIX} {$B}", policy: "round_robin", options: "health_uri /health\nhealth_interval 50ms\nhealth_method HEAD"},
	{name: "over h2c", to: "h2c://{$H2C} h2c://{$B}", policy: "round_robin", options: "health_uri /health\nhealth_interval 50ms"},
	{name: "over TLS", to: "https://{$TLS} https://{$DEAD}", policy: "round_robin", options: "health_uri /health?a=b\nhealth_interval 50ms", inner: "http {\ntls_insecure_skip_verify\n}"},
	{name: "on another port", to: "{$A} {$DEAD}", policy: "round_robin", options: "health_uri /health\nhealth_interval 50ms\nhealth_upstream {$A}"},
}

// Caddy's own health checks pass the wrapper as if it were not there.
func TestHealthChecksThroughAWrappedProxyAreThoseWithoutTheWrapper(t *testing.T) {
	t.Parallel()
	behind := newBackstage(t)
	plain := make([]string, len(checked))
	for i, w := range wrappings {
		for j, s := range checked {
			c := startScenarios(t, checked[j:j+1], i, behind)
			if j == len(checked)-1 {
				c.Eventually(soon, "health checks", func() error { return missing(behind, 4) })
			} else {
				c.Eventually(soon, "the failing upstream's being left out", func() error {
					for n := range 6 {
						if r := c.Get("/x", "Host", "s0.test"); r.Status != http.StatusOK || r.Header.Get("X-Server") == "B" {
							return fmt.Errorf("request %d: %d by %s", n, r.Status, r.Header.Get("X-Server"))
						}
					}
					return nil
				})
				c.Eventually(soon, "health checks", func() error { return missing(behind, 4) })
			}
			for _, v := range pathViews(t, c) {
				if i > 0 && (v.OpenedTotal > 0 || v.Failures > 1) {
					t.Errorf("%s, %s: health checks were counted: %+v", w.name, s.name, v)
				}
			}
			c.Stop()
			var checks []string
			for _, line := range behind.asked() {
				if strings.Contains(line, "/health") {
					checks = append(checks, line)
				}
			}
			slices.Sort(checks)
			got := strings.Join(slices.Compact(checks), "\n")
			if i == 0 {
				plain[j] = got
			} else if got != plain[j] {
				t.Errorf("%s, %s:\n plain:   %s\n wrapped: %s", w.name, s.name, plain[j], got)
			}
		}
	}
	for j, s := range checked {
		if !strings.Contains(plain[j], "/health") {
			t.Errorf("%s: the plain proxy made no check to compare: %s", s.name, plain[j])
		}
	}
}

// missing reports whether fewer than n health checks were seen.
func missing(b *backstage, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := 0
	for _, line := range b.log {
		if strings.Contains(line, "/health") {
			seen++
		}
	}
	if seen < n {
		return fmt.Errorf("%d checks were seen", seen)
	}
	return nil
}
