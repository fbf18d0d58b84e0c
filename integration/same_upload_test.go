package integration_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// hugeUpload is the length of the longest bodies: more than a Caddy that keeps
// them in memory may take. longUpload is that of the others.
const (
	hugeUpload = 64 << 20
	longUpload = 4 << 20
)

// uploading are the proxies that long bodies are sent through.
var uploading = []scenario{
	{name: "plain", to: "{$A}", huge: "declared"},
	{name: "https", to: "https://{$TLS}", inner: "http {\ntls_insecure_skip_verify\n}"},
	{name: "HTTP/2", to: "https://{$TLS2}", huge: "chunked", inner: "http {\ntls_insecure_skip_verify\n}"},
	{name: "h2c", to: "h2c://{$H2C}"},
	{name: "PROXY protocol", to: "{$PROXY}", inner: "http {\nproxy_protocol v2\n}"},
	{name: "unix", to: "unix/{$UNIX}"},
	{name: "buffers", to: "{$A}", options: "request_buffers 4KiB\nresponse_buffers 4KiB"},
	{name: "FastCGI", to: "{$FCGI}", inner: "fastcgi {\nroot /srv\n}"},
}

// guarding are the ways to guard a proxy that takes uploads; the first is not
// to. One failure would open a path, and one permit that is not given back would
// refuse all that follows.
var guarding = []struct{ name, options string }{
	{"plain", ""},
	{"wrapped", "failure_threshold 1"},
	{"wrapped and limited", "failure_threshold 1\nmax_concurrent 1\nslow_call 1m"},
	{"behind the handler", "failure_threshold 1\nmax_concurrent 1\nslow_call 1m"},
}

// guarded returns the route of a proxy, below a path of its own.
func (s scenario) guarded(number int, name, options string) string {
	lines := []string{s.options}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	before := ""
	if strings.HasPrefix(name, "wrapped") {
		add("lb_policy relay_breaker %s\ntransport relay_breaker s%d {\n%s", s.policy, number, options)
		if s.inner != "" {
			add("transport %s", s.inner)
		}
		add("}")
	} else {
		if s.policy != "" {
			add("lb_policy %s", s.policy)
		}
		if s.inner != "" {
			add("transport %s", s.inner)
		}
		if options != "" {
			before = fmt.Sprintf("relay_breaker s%d {\n%s\n}\n", number, options)
		}
	}
	return fmt.Sprintf("handle_path /s%d/* {\n%sreverse_proxy %s {\n%s\n}\n}\n", number, before, s.to, strings.Join(lines, "\n"))
}

// uploader sends bodies to a Caddy over one version of HTTP.
type uploader struct {
	t      *testing.T
	caddy  *rig.Caddy
	client http.RoundTripper
	base   string
	behind *backstage
}

// begin sends a request whose body goes on until it is closed. The answer comes
// on the channel.
func (u uploader) begin(ctx context.Context, path string, length int64) (body *io.PipeWriter, answer <-chan string) {
	u.t.Helper()
	read, body := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, u.base+path, read)
	if err != nil {
		u.t.Fatal(err)
	}
	req.Host, req.ContentLength = "localhost", length // the port differs
	answers := make(chan string, 1)
	left := context.AfterFunc(ctx, func() { read.Close() }) // the client waits for its body before it gives up
	go func() {
		defer read.Close()
		defer left()
		answers <- u.answer(u.client.RoundTrip(req))
	}()
	return body, answers
}

// answer is all that a client can tell of an answer.
func (u uploader) answer(res *http.Response, err error) string {
	if err != nil {
		return "no answer"
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	for _, volatile := range []string{"Date", "Alt-Svc"} {
		res.Header.Del(volatile)
	}
	return fmt.Sprintf("%d by HTTP/%d %v %q, whole: %t", res.StatusCode, res.ProtoMajor, res.Header, body, err == nil)
}

// whole sends a body of that many bytes.
func (u uploader) whole(path string, size, length int64) string {
	u.behind.asked()
	ctx, cancel := context.WithTimeout(u.t.Context(), rig.AnswerWithin)
	defer cancel()
	body, answer := u.begin(ctx, path, length)
	_, err := io.Copy(body, &counted{n: size})
	body.CloseWithError(err)
	return <-answer + fmt.Sprint(u.behind.asked())
}

// refusal sends a body that the server answers before it has seen its end.
func (u uploader) refusal(path string, length int64) string {
	u.behind.asked()
	ctx, cancel := context.WithTimeout(u.t.Context(), rig.AnswerWithin)
	defer cancel()
	body, answer := u.begin(ctx, path, length)
	sent := make(chan struct{})
	go func() { // goes on until the answer is here
		defer close(sent)
		_, err := io.Copy(body, &counted{n: hugeUpload})
		body.CloseWithError(err)
	}()
	got := <-answer
	<-sent
	return got + fmt.Sprint(u.behind.asked())
}

// brokenOff begins a body and leaves when the server has its beginning.
func (u uploader) brokenOff(path string, length int64) string {
	u.behind.aborts()
	select {
	case <-u.behind.begun:
	default:
	}
	ctx, cancel := context.WithTimeout(u.t.Context(), rig.AnswerWithin)
	defer cancel()
	body, answer := u.begin(ctx, path, length)
	_, _ = io.CopyN(body, &counted{n: hugeUpload}, 2*beginning)
	select {
	case <-u.behind.begun:
	case <-ctx.Done():
		u.t.Errorf("%s: the upload never began", path)
	}
	cancel()
	<-answer // if there is one, the client may see it or not
	body.Close()
	return "broken off at " + u.abort()
}

// aborts returns the requests that broke off since the last call.
func (b *backstage) aborts() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	aborted := b.aborted
	b.aborted = nil
	return aborted
}

// byChance is what differs between two servers' errors that mean the same.
var byChance = regexp.MustCompile(`:\d{4,5}|stream ID \d+`)

// abort waits for one request to break off, and returns how the server saw it.
func (u uploader) abort() string {
	u.t.Helper()
	var how []string
	u.caddy.Eventually(soon, "a server's seeing a body break off", func() error {
		if how = append(how, u.behind.aborts()...); len(how) == 0 {
			return errors.New("none did")
		}
		return nil
	})
	return byChance.ReplaceAllString(strings.Join(how, " and "), "")
}

// clientsOf returns a client for each version of HTTP.
func clientsOf(t *testing.T, config *tls.Config) map[int]http.RoundTripper {
	t.Helper()
	h1 := &http.Transport{TLSClientConfig: config.Clone(), Protocols: new(http.Protocols), DisableCompression: true}
	h1.Protocols.SetHTTP1(true)
	h2 := &http.Transport{TLSClientConfig: config.Clone(), Protocols: new(http.Protocols), DisableCompression: true}
	h2.Protocols.SetHTTP2(true)
	h3 := &http3.Transport{TLSClientConfig: config.Clone(), DisableCompression: true}
	t.Cleanup(func() {
		h1.CloseIdleConnections()
		h2.CloseIdleConnections()
		_ = h3.Close()
	})
	return map[int]http.RoundTripper{1: h1, 2: h2, 3: h3}
}

// Uploads of 64 MiB, those that the upstream refuses early, and those that the
// client breaks off are the same with and without a breaker, from both sides; no
// failure is counted, every permit comes back, and the memory stays flat.
func TestUploadsThroughAGuardedProxyAreThoseWithoutABreaker(t *testing.T) {
	t.Parallel()
	behind := newBackstage(t)
	plain := make(map[string]string)
	for i, g := range guarding {
		dir := t.TempDir()
		roots := selfSigned(t, dir)
		var site strings.Builder
		for number, s := range uploading {
			site.WriteString(s.guarded(number, g.name, g.options))
		}
		options := []rig.Option{rig.InDir(dir)}
		for name, addr := range behind.words {
			options = append(options, rig.Env(name, addr))
		}
		c := rig.Start(t, "https://localhost:{$PORT} {\nlog\ntls {$DIR}/cert.pem {$DIR}/key.pem\n"+site.String()+"}\n", options...)
		idle, _ := memory(t, c, "VmRSS")
		aborted := 0
		clients := clientsOf(t, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: "localhost"})
		for version := 1; version <= 3; version++ {
			u := uploader{t: t, caddy: c, client: clients[version], base: "https://localhost:" + c.Word("PORT"), behind: behind}
			for number, s := range uploading {
				if raced && number%3+1 != version {
					continue // bytes are slow there: each upstream by one version of HTTP, each version to some upstreams
				}
				for what, got := range u.all(number, s) {
					if strings.Contains(what, "broken off") {
						aborted++
					}
					name := fmt.Sprintf("%s/HTTP/%d/%s", s.name, version, what)
					if i == 0 {
						plain[name] = got
					} else if got != plain[name] {
						t.Errorf("%s, %s\n plain:   %s\n guarded: %s", g.name, name, plain[name], got)
					}
				}
			}
		}
		wantMemory(t, c, idle, hugeUpload)
		if i > 0 {
			wantNoFailure(t, c, g.name, aborted)
		}
		c.Stop()
	}
	whole := regexp.MustCompile(bodies(hugeUpload, longUpload))
	for name, got := range plain {
		if strings.HasSuffix(name, "whole") && !whole.MatchString(got) {
			t.Errorf("%s: the plain proxy shows no whole body: %s", name, got)
		}
		for what, sign := range map[string]string{
			"refused":    "413 by HTTP/",
			"broken off": "broken off at ",
		} {
			if strings.HasSuffix(name, what) && !strings.Contains(got, sign) {
				t.Errorf("%s: the plain proxy shows no %s: %s", name, sign, got)
			}
		}
	}
}

// bodies returns an expression for whole bodies of those sizes, as servers note them.
func bodies(sizes ...int64) string {
	var all []string
	for _, size := range sizes {
		sum := sha256.New()
		_, _ = io.Copy(sum, &counted{n: size})
		all = append(all, fmt.Sprintf("body=%d:%x", size, sum.Sum(nil)))
	}
	return strings.Join(all, "|")
}

// all sends each kind of long body through one proxy.
func (u uploader) all(number int, s scenario) map[string]string {
	seen := make(map[string]string)
	path := fmt.Sprintf("/s%d/", number)
	for _, kind := range []string{"declared", "chunked"} {
		size, length := int64(longUpload), int64(hugeUpload)
		if long() || s.huge == kind {
			size = hugeUpload
		}
		if kind == "chunked" {
			length = -1
			if s.name == "FastCGI" {
				continue // it must know the length, so that Caddy buffers it
			}
		}
		seen[kind+", whole"] = u.whole(path+"x", size, min(size, length))
		if s.name != "FastCGI" { // which has the whole body sent first
			seen[kind+", refused"] = u.refusal(path+"early", length)
			u.settle(path)
		}
		seen[kind+", broken off"] = u.brokenOff(path+"x", length)
		u.settle(path)
	}
	return seen
}

// settle waits until Caddy has noticed that a client is gone: until then, its
// request counts.
func (u uploader) settle(path string) {
	u.caddy.Eventually(soon, "the return of the permit of a client that is gone", func() error {
		req, err := http.NewRequestWithContext(u.t.Context(), http.MethodGet, u.base+path, nil)
		if err != nil {
			return err
		}
		if got := u.answer(u.client.RoundTrip(req)); !strings.HasPrefix(got, "200 ") {
			return errors.New(got)
		}
		return nil
	})
}

// wantNoFailure fails the test unless every path is well and so many calls were
// neutral, none failures.
func wantNoFailure(t *testing.T, c *rig.Caddy, what string, neutral int) {
	t.Helper()
	for _, v := range pathViews(t, c) {
		if v.OpenedTotal > 0 {
			t.Errorf("%s: %s is %s: %s", what, v.PathID, v.State, v.Reason)
		}
	}
	counted := make(map[string]int)
	_, metrics := c.Admin(http.MethodGet, "/metrics", "")
	for line := range strings.Lines(metrics) {
		for _, outcome := range []string{"failure", "neutral"} {
			if strings.HasPrefix(line, fmt.Sprintf("caddy_relay_breaker_calls_total{outcome=%q", outcome)) {
				var n int
				_, _ = fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n)
				counted[outcome] += n
			}
		}
	}
	if counted["neutral"] < neutral {
		t.Errorf("%s: %d calls were neutral, want the %d that clients broke off", what, counted["neutral"], neutral)
	}
	if counted["failure"] > 0 {
		t.Errorf("%s: %d calls were failures", what, counted["failure"])
	}
}
