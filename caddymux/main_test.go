package caddymux

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyfs"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/suaveplan/caddy-storage-mux/internal/reload"
)

// suite lets the servers of the last test end, each connection of which may take net/http half a second.
type suite struct {
	m       *testing.M
	ignored []goleak.Option
}

func (s suite) Run() int {
	data, err := os.MkdirTemp("", "caddymux") // journals are there by default
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(data)
	_ = os.Setenv("XDG_DATA_HOME", data)
	code := s.m.Run()
	_ = caddy.Stop()
	for tries := 0; tries < 20 && goleak.Find(s.ignored...) != nil; tries++ {
	}
	return code
}

func TestMain(m *testing.M) {
	lateness = 0 // or nothing would be over with its test
	ignored := []goleak.Option{
		// Caddy's own, one for each process, never ended.
		goleak.IgnoreAnyFunction("github.com/caddyserver/caddy/v2.(*Logging).openLogs"),
		goleak.IgnoreTopFunction("github.com/caddyserver/certmagic.(*Cache).maintainAssets"),
		goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"),
		goleak.IgnoreAnyFunction("github.com/DeRuina/timberjack.(*Logger).millRun"),
		goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
	}
	goleak.VerifyTestMain(suite{m, ignored}, ignored...)
}

// adapt turns a Caddyfile into JSON.
func adapt(t testing.TB, config string) ([]byte, error) {
	t.Helper()
	out, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), map[string]any{"filename": "Caddyfile"})
	return out, err
}

// globals are the options that keep a Caddy of a test to itself.
const globals = `{
	admin off
	persist_config off
	storage file_system "{{dir}}/caddy"
	log {
		output discard
	}
	servers {
		protocols h1
	}
}
`

// run loads a site block's content into the Caddy of this process, which listens on a socket of the test, and gives a
// client of it. {{dir}} is the test's folder.
func run(t testing.TB, site string) *client {
	t.Helper()
	c := idle(t)
	c.load(site)
	return c
}

// idle is the client of a Caddy that is given its first config later, and stopped when the test ends.
func idle(t testing.TB) *client {
	t.Helper()
	dir := socketDir(t)
	c := &client{t: t, dir: dir, socket: filepath.Join(dir, "s")}
	c.http = &http.Client{
		Transport: &http.Transport{
			DisableCompression: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", c.socket)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(func() {
		c.http.CloseIdleConnections()
		if err := caddy.Stop(); err != nil {
			t.Errorf("stopping Caddy: %v", err)
		}
	})
	return c
}

// socketDir is a folder whose name is short enough for a socket in it.
func socketDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "mux") //nolint:usetesting // the name of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

type client struct {
	t      testing.TB
	dir    string
	socket string
	http   *http.Client
}

// config is the whole Caddyfile for a site.
func (c *client) config(site string) string {
	whole := globals + "http:// {\n\tbind unix/" + c.socket + "\n" + site + "\n}\n"
	return strings.ReplaceAll(whole, "{{dir}}", c.dir)
}

// load replaces the config.
func (c *client) load(site string) {
	c.t.Helper()
	if err := c.tryLoad(site); err != nil {
		c.t.Fatalf("loading: %v", err)
	}
}

func (c *client) tryLoad(site string) error {
	c.t.Helper()
	config, err := adapt(c.t, c.config(site))
	if err != nil {
		return err
	}
	return c.give(config)
}

// give loads a config. Connections to the servers of the one before are closed, which those would do at their leisure.
func (c *client) give(config []byte) error {
	c.t.Helper()
	if err := reload.Load(config); err != nil {
		return err
	}
	c.http.CloseIdleConnections()
	return nil
}

// answer is a response that was read whole.
type answer struct {
	status int
	header http.Header
	body   string
	length int64
}

// do sends a request and reads the answer. fields are names and values in turn.
func (c *client) do(method, target, body string, fields ...string) answer {
	c.t.Helper()
	got, err := c.try(method, target, strings.NewReader(body), fields...)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, target, err)
	}
	return got
}

func (c *client) try(method, target string, body io.Reader, fields ...string) (answer, error) {
	req, err := http.NewRequestWithContext(c.t.Context(), method, "http://test"+target, body)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			req.Host = fields[i+1]
		}
		req.Header.Add(fields[i], fields[i+1])
	}
	resp, err := c.http.Do(req)
	for tries := 0; errors.Is(err, io.EOF) && req.ContentLength == 0 && tries < 50; tries++ {
		// Caddy itself closes connections that come while it reloads, whatever the handler.
		<-time.After(10 * time.Millisecond)
		resp, err = c.http.Do(req)
	}
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text), resp.ContentLength}, err
}

// expect checks the status of an answer.
func (c *client) expect(status int, method, target, body string, fields ...string) answer {
	c.t.Helper()
	got := c.do(method, target, body, fields...)
	if got.status != status {
		c.t.Fatalf("%s %s = %d %q, want %d", method, target, got.status, got.body, status)
	}
	return got
}

// provisioned makes a handler of a Caddyfile directive, with a tree that is open, outside any server.
func provisioned(t testing.TB, directive string) *Handler {
	t.Helper()
	return provisionedIn(t, testContext(t), directive)
}

func provisionedIn(t testing.TB, ctx caddy.Context, directive string) *Handler {
	t.Helper()
	h := new(Handler)
	if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(directive)); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := ctx.LoadModuleByID("http.handlers.storage_mux", config)
	if err != nil {
		t.Fatal(err)
	}
	h = loaded.(*Handler)
	h.logger = zap.NewNop()
	return h
}

// testContext is the context of an empty config, which ends with the test.
func testContext(t testing.TB) caddy.Context {
	t.Helper()
	outer, err := caddy.ProvisionContext(&caddy.Config{
		Admin: &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: new(bool)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(outer)
	t.Cleanup(cancel)
	return ctx
}

// request makes one as a server would hand it to a handler.
func request(t testing.TB, method, target string, body io.Reader) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, body)
	repl := caddy.NewReplacer()
	ctx := context.WithValue(r.Context(), caddy.ReplacerCtxKey, repl)
	ctx = context.WithValue(ctx, caddyhttp.OriginalRequestCtxKey, *r)
	return r.WithContext(ctx)
}

// eventually waits for something that other goroutines do. It asks again at once: what it asks takes its time.
func (c *client) eventually(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if ok() {
			return
		}
	}
	c.t.Fatalf("waited too long until %s", what)
}
