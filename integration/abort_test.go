package integration_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// A body that cannot go on ends in an error that the client sees, over every version of HTTP, with its length known and
// not; and one that can go on does.
func TestABodyThatCannotGoOnIsAnErrorOverEveryVersionOfHTTP(t *testing.T) {
	t.Parallel()
	body := someBytes(1 << 20)
	f1, f2 := origin.New(t), origin.New(t)
	dir := t.TempDir()
	roots := selfSigned(t, dir)
	c := rig.Start(t, `
		http://:{$PORT2} {
			storage_mux {
				cooldown 1ms 1ms
				last_resort
				timeout 3s
				backend f1 http {$F1}
				backend f2 http {$F2}
			}
		}
		https://localhost:{$PORT} {
			tls {$DIR}/cert.pem {$DIR}/key.pem
			storage_mux {
				cooldown 1ms 1ms
				last_resort
				timeout 3s
				backend f1 http {$F1}
				backend f2 http {$F2}
			}
		}`, rig.InDir(dir), rig.Env("F1", f1.URL()), rig.Env("F2", f2.URL()))
	clients := versions(t, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: "localhost"})
	for _, tt := range []struct {
		name   string
		fault  origin.Faults
		ranged bool
		whole  bool
	}{
		{name: "length known", fault: origin.Faults{ResetAfter: 500_000}},
		{name: "length known, orderly end", fault: origin.Faults{CutAfter: 500_000}},
		{name: "length known, stall", fault: origin.Faults{StallAfter: 500_000}},
		{name: "length unknown", fault: origin.Faults{ResetAfter: 500_000, Chunked: true}},
		{name: "length unknown, orderly end", fault: origin.Faults{CutAfter: 500_000, Chunked: true}},
		{name: "a range", fault: origin.Faults{ResetAfter: 500_000}, ranged: true},
		{name: "goes on", fault: origin.Faults{ResetAfter: 500_000}, whole: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f1.Put("/x", origin.Object{Body: body})
			f2.Put("/x", origin.Object{Body: body, ETag: map[bool]string{false: `"another"`}[tt.whole]})
			for version, client := range clients {
				f1.Script(tt.fault)
				<-time.After(5 * time.Millisecond) // its cooldown
				status, got, err := fetch(t, client, "https://localhost:"+c.Word("PORT")+"/x", tt.ranged)
				judgeBroken(t, fmt.Sprint("HTTP/", version), body[map[bool]int{true: 1}[tt.ranged]:], tt.whole, status, got, err)
			}
			for _, request := range []string{"GET /x HTTP/1.0\r\n", "GET /x HTTP/1.0\r\nConnection: keep-alive\r\n", "GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"} {
				if tt.ranged {
					request += "Range: bytes=1-\r\n"
				}
				f1.Script(tt.fault)
				<-time.After(5 * time.Millisecond)
				status, got, err := fetchRaw(t, "127.0.0.1:"+c.Word("PORT2"), request+"\r\n")
				judgeBroken(t, request, body[map[bool]int{true: 1}[tt.ranged]:], tt.whole, status, got, err)
			}
		})
	}
}

// versions are clients that speak one version of HTTP each.
func versions(t *testing.T, config *tls.Config) map[int]*http.Client {
	t.Helper()
	h1 := &http.Transport{TLSClientConfig: config.Clone(), Protocols: new(http.Protocols)}
	h1.Protocols.SetHTTP1(true)
	h2 := &http.Transport{TLSClientConfig: config.Clone(), Protocols: new(http.Protocols)}
	h2.Protocols.SetHTTP2(true)
	h3 := &http3.Transport{TLSClientConfig: config.Clone()}
	clients := make(map[int]*http.Client)
	for version, transport := range map[int]http.RoundTripper{1: h1, 2: h2, 3: h3} {
		client := &http.Client{Transport: transport, Timeout: rig.AnswerWithin}
		t.Cleanup(client.CloseIdleConnections)
		clients[version] = client
	}
	t.Cleanup(func() { _ = h3.Close() })
	return clients
}

// fetch reads /x, or all but its first byte. The error is that of the exchange or of the body.
func fetch(t *testing.T, client *http.Client, url string, ranged bool) (status int, body []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rig.AnswerWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if ranged {
		req.Header.Set("Range", "bytes=1-")
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// fetchRaw does that without a client that knows better: with HTTP/1.0 and no length, the end of the connection is the end of
// the body, unless it is a reset.
func fetchRaw(t *testing.T, addr, request string) (status int, body []byte, err error) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, rig.AnswerWithin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(rig.AnswerWithin))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// judgeBroken holds an answer against what it must be: whole, or visibly broken, and never a wrong byte.
func judgeBroken(t *testing.T, what string, body []byte, whole bool, status int, got []byte, err error) {
	t.Helper()
	if whole {
		if err != nil || status/100 != 2 || rig.Same(got, body) != nil {
			t.Errorf("%s: %d, %v, %v, want it whole", what, status, err, rig.Same(got, body))
		}
		return
	}
	var nerr net.Error
	switch {
	case err == nil:
		t.Errorf("%s: %d ended cleanly after %d of %d bytes", what, status, len(got), len(body))
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &nerr) && nerr.Timeout():
		t.Errorf("%s: the client was left waiting: %v", what, err)
	case len(got) > len(body) || !bytes.Equal(got, body[:len(got)]):
		t.Errorf("%s: wrong bytes before the end", what)
	}
}

// nested is a tree in which every download that breaks has to leave its inner mux, and one where it finds the other half
// in another branch.
const nested = `
	http://:{$PORT} {
		header >X-Backend {http.storage_mux.backend}
		storage_mux failover {
			timeout 20s
			cooldown 1ms 1ms
			backend west mux %[1]s {
				cooldown 1ms 1ms
				backend a http {$F1}
				backend old http {$F2}
			}
			backend east mux %[1]s {
				cooldown 1ms 1ms
				backend deep mux failover {
					cooldown 1ms 1ms
					backend old http {$F2}
					backend b http {$F3}
				}
			}
		}
	}`

// In nested muxes the very object is sought in every branch, for the whole, a range, and each part of several: also when
// another version is nearer, and when who goes on breaks as well.
func TestReadsGoOnAcrossNestedMuxes(t *testing.T) {
	t.Parallel()
	body := someBytes(1 << 20)
	for _, mode := range []string{"failover", "shield", "round_robin", "sticky_by_key", "mirror"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f1, f2, f3 := origin.New(t), origin.New(t), origin.New(t)
			f1.Put("/x", origin.Object{Body: body})
			f2.Put("/x", origin.Object{Body: append([]byte("another"), body...)})
			f3.Put("/x", origin.Object{Body: body})
			c := rig.Start(t, fmt.Sprintf(nested, mode), rig.Env("F1", f1.URL()), rig.Env("F2", f2.URL()), rig.Env("F3", f3.URL()))
			for _, tt := range []struct{ name, field string }{{"whole", ""}, {"range", "bytes=100000-"}, {"ranges", "bytes=0-299999,400000-699999"}} {
				for range 3 {
					f1.Script(origin.Faults{ResetAfter: 200_000})
					f2.Script(origin.Faults{Status: 500, Times: 1}) // so that the first answer is not the other version's
					f3.Script(origin.Faults{})
					<-time.After(5 * time.Millisecond)
					checkVersions(t, c, tt.field, body, f2)
				}
			}
			if f3.Hits(http.MethodGet) == 0 {
				t.Error("nothing went on in the innermost mux")
			}
		})
	}
}

// checkVersions reads /x and fails unless the answer is one of the two versions, whole, or the connection broke.
func checkVersions(t *testing.T, c *rig.Caddy, field string, body []byte, other *origin.Origin) {
	t.Helper()
	var header []string
	if field != "" {
		header = []string{"Range", field}
	}
	r, err := c.Try(rig.Request{Path: "/x", Header: header})
	if rig.Aborted(r, err) {
		t.Errorf("%q broke off after %d bytes: %v %v", field, len(r.Body), err, r.Cause())
		return
	}
	if r.Header.Get("ETag") != origin.Tag(body) {
		obj, _ := other.Object("/x")
		body = obj.Body
	}
	switch {
	case field == "":
		wantBody(t, "the whole", r, http.StatusOK, body)
	case !strings.Contains(field, ","):
		wantBody(t, field, r, http.StatusPartialContent, body[100_000:])
	default:
		wantStatus(t, field, r, http.StatusPartialContent)
		_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil {
			t.Fatal(err)
		}
		parts := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
		for _, want := range [][]byte{body[:300_000], body[400_000:700_000]} {
			part, err := parts.NextPart()
			if err != nil {
				t.Fatalf("%s: %v", field, err)
			}
			if got, err := io.ReadAll(part); err != nil || rig.Same(got, want) != nil {
				t.Errorf("%s: %v, %v", field, err, rig.Same(got, want))
			}
		}
		if _, err := parts.NextPart(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: more than two parts: %v", field, err)
		}
	}
}

// With encode in front, which ends its coding in an orderly way whatever happens, the end of a broken body is an error still, whichever
// door it comes through.
func TestABodyThatCannotGoOnIsAnErrorUnderEncode(t *testing.T) {
	t.Parallel()
	const tree = "{\ncooldown 1ms 1ms\nlast_resort\ntimeout 3s\nbackend f1 http {$F1}\n}\n"
	for _, door := range []struct {
		name, global, site string
		protos             []string
	}{
		{"object store", "", "storage_mux " + tree, []string{"HTTP/1.0", "HTTP/1.1"}},
		// Over HTTP/1.0 the end of the connection is the end of the body, which a file system cannot turn into a reset.
		{"file system", "filesystem site storage_mux failover " + tree, "header Content-Type text/plain\nfile_server {\nfs site\n}\n", []string{"HTTP/1.1"}},
	} {
		t.Run(door.name, func(t *testing.T) {
			t.Parallel()
			site := "encode gzip\nroot \"\"\n" + door.site + "}\n"
			brokenUnderEncode(t, door.global, site, door.protos)
		})
	}
}

func brokenUnderEncode(t *testing.T, global, site string, protos []string) {
	body := someBytes(1 << 20)
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: body, Header: http.Header{"Content-Type": {"text/plain"}}})
	dir := t.TempDir()
	roots := selfSigned(t, dir)
	c := rig.Start(t, "http://:{$PORT2} {\n"+site+"https://localhost:{$PORT} {\ntls {$DIR}/cert.pem {$DIR}/key.pem\n"+site,
		rig.InDir(dir), rig.Env("F1", f1.URL()), rig.Global(global))
	breaks := func() {
		f1.Script(origin.Faults{ResetAfter: 500_000})
		<-time.After(5 * time.Millisecond) // its cooldown
	}
	for version, client := range versions(t, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: "localhost"}) {
		breaks()
		status, got, err := fetch(t, client, "https://localhost:"+c.Word("PORT")+"/x", false) // decodes, as no coding was asked for
		judgeBroken(t, fmt.Sprint("HTTP/", version), body, false, status, got, err)
	}
	for _, proto := range protos {
		breaks()
		status, coded, err := fetchRaw(t, "127.0.0.1:"+c.Word("PORT2"), "GET /x "+proto+"\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n")
		if err == nil {
			t.Errorf("%s: %d ended cleanly after %d coded bytes", proto, status, len(coded))
		}
		if len(coded) == 0 {
			continue
		}
		plain, err := gzip.NewReader(bytes.NewReader(coded))
		if err != nil {
			t.Errorf("%s: %v", proto, err)
			continue
		}
		if got, _ := io.ReadAll(plain); len(got) >= len(body) || !bytes.Equal(got, body[:len(got)]) {
			t.Errorf("%s: %d bytes of which some are wrong", proto, len(got))
		}
	}
}
