package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/origin"
	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// badConfig is a site's body that must not load. The sign <- stands at the end
// of the line that the error must name; a body without it names none.
type badConfig struct {
	name string
	body string
	want []string // all of it must be in the message
}

// nest returns a mux inside n-1 others.
func nest(n int) string {
	inner := "backend m memory"
	for range n - 1 {
		inner = "backend b mux failover {\n" + inner + "\n}"
	}
	return "storage_mux {\n" + inner + "\n}"
}

var badMuxConfigs = []badConfig{
	{"unknown mode", "storage_mux {\nmode roundabout <-\nbackend m memory\n}", []string{"roundabout", "failover"}},
	{"unknown word in the mode's place", "storage_mux roundabout { <-\nbackend m memory\n}", []string{"roundabout"}},
	{"unknown backend type", "storage_mux {\nbackend m floppy <-\n}", []string{"floppy"}},
	{"unknown option", "storage_mux {\nbackend m memory\ncolour red <-\n}", []string{"colour", "timeout"}},
	{"unknown option of a backend", "storage_mux {\nbackend m memory {\ncolour red <-\n}\n}", []string{"colour"}},
	{"two backends of one name", "storage_mux {\nbackend m memory\nbackend m memory <-\n}", []string{"STORAGE_MUX.BACKEND_NAME_CONFLICT", `"m"`}},
	{"negative weight", "storage_mux {\nmode weighted\nbackend m memory {\nweight -3 <-\n}\n}", []string{"STORAGE_MUX.INVALID_WEIGHT", "-3"}},
	{"weight that is no number", "storage_mux {\nbackend m memory {\nweight heavy <-\n}\n}", []string{"heavy"}},
	{"weighted without any weight", "storage_mux weighted { <-\nbackend m memory\nbackend n memory\n}", []string{"STORAGE_MUX.WEIGHTED_REQUIRES_WEIGHTS"}},
	{"case 34: all weights 0", "storage_mux weighted { <-\nbackend m memory {\nweight 0\n}\nbackend n memory {\nweight 0\n}\n}", []string{"weight"}},
	{"no backend", "storage_mux { <-\n}", []string{"backend"}},
	{"no backend in a nested mux", "storage_mux {\nbackend n mux failover { <-\n}\n}", []string{"backend"}},
	{"nine muxes in a chain", nest(9), []string{"STORAGE_MUX.RECURSION_DEPTH_EXCEEDED"}},
	{"location read as a matcher", "storage_mux /srv/a <-", []string{"/srv/a", "matcher", "storage_mux * /srv/a"}},
	{"case 97: use of an unknown tree", "storage_mux {\nuse nosuch <-\n}", nil},
	{"use beside a backend", "storage_mux {\nuse nosuch <-\nbackend m memory\n}", []string{"use"}},
	{"backend without a name", "storage_mux {\nbackend <-\n}", nil},
	{"backend without a type", "storage_mux {\nbackend m <-\n}", nil},
	{"file without a root", "storage_mux {\nbackend m file <-\n}", []string{"root"}},
	{"file with two roots", "storage_mux {\nbackend m file /a /b <-\n}", []string{"/b"}},
	{"file with a bad mode", "storage_mux {\nbackend m file /a {\nmode 999 <-\n}\n}", []string{"999"}},
	{"http without a URL", "storage_mux {\nbackend m http <-\n}", []string{"url"}},
	{"http with another scheme", "storage_mux {\nbackend m http ftp://example.com <-\n}", []string{"ftp"}},
	{"http with a relative URL", "storage_mux {\nbackend m http example.com/x <-\n}", []string{"example.com/x"}},
	{"memory with a bad size", "storage_mux {\nbackend m memory lots <-\n}", []string{"lots"}},
	{"bad backend name", "storage_mux {\nbackend a.b memory <-\n}", []string{"a.b"}},
	{"backend named as a mode", "storage_mux {\nbackend mirror memory <-\n}", []string{"mirror"}},
	{"too long a name", "storage_mux {\nbackend " + strings.Repeat("n", 65) + " memory <-\n}", []string{"64"}},
	{"bad tree name", "storage_mux {\nname \"a b\" <-\nbackend m memory\n}", []string{"a b"}},
	{"tree named as a mode", "storage_mux {\nname shield <-\nbackend m memory\n}", []string{"shield"}},
	{"timeout that is no duration", "storage_mux {\ntimeout soon <-\nbackend m memory\n}", []string{"soon"}},
	{"negative timeout", "storage_mux {\ntimeout -1s <-\nbackend m memory\n}", []string{"timeout"}},
	{"timeout twice", "storage_mux {\ntimeout 1s\ntimeout 2s <-\nbackend m memory\n}", []string{"timeout"}},
	{"timeout without a value", "storage_mux {\ntimeout <-\nbackend m memory\n}", []string{"timeout"}},
	{"timeout with two values", "storage_mux {\ntimeout 1s 2s <-\nbackend m memory\n}", nil},
	{"negative timeout of a backend", "storage_mux {\nbackend m memory {\ntimeout -1s <-\n}\n}", []string{"timeout"}},
	{"cooldown above its maximum", "storage_mux {\ncooldown 10s 1s <-\nbackend m memory\n}", []string{"cooldown"}},
	{"negative retries", "storage_mux {\nretry -1 <-\nbackend m memory\n}", []string{"retry"}},
	{"on_miss with another word", "storage_mux {\non_miss maybe <-\nbackend m memory\n}", []string{"maybe", "stop", "next"}},
	{"partial_writes with another word", "storage_mux {\npartial_writes maybe <-\nbackend m memory\n}", []string{"maybe"}},
	{"max_size that is no size", "storage_mux {\nmax_size lots <-\nbackend m memory\n}", []string{"lots"}},
	{"writable with an argument", "storage_mux {\nwritable yes <-\nbackend m memory\n}", nil},
	{"status that is none", "storage_mux {\nstatus 99 <-\nbackend m memory\n}", []string{"99"}},
	{"prefix that is no key", "storage_mux {\nprefix ../up <-\nbackend m memory\n}", []string{"../up"}},
	{"one name for two trees", "route {\nstorage_mux {\nname t\nbackend m memory\n}\nstorage_mux {\nname t\nbackend n memory\n}\n}", []string{`"t"`}},
	{"shield without an origin", "storage_mux shield { <-\n}", []string{"backend"}},
}

var badBreakerConfigs = []badConfig{
	{"unknown option", breaker("colour red <-"), []string{"colour", "failure_threshold"}},
	{"failure_threshold 0", breaker("failure_threshold 0 <-"), []string{"failure_threshold"}},
	{"failure_threshold below 0", breaker("failure_threshold -1 <-"), []string{"failure_threshold"}},
	{"failure_threshold no number", breaker("failure_threshold many <-"), []string{"many"}},
	{"success_threshold 0", breaker("success_threshold 0 <-"), []string{"success_threshold"}},
	{"half_open_max_calls 0", breaker("half_open_max_calls 0 <-"), []string{"half_open_max_calls"}},
	{"open_duration below 0", breaker("open_duration -1s <-"), []string{"open_duration"}},
	{"open_duration no duration", breaker("open_duration long <-"), []string{"long"}},
	{"open_duration above its maximum", breaker("open_duration 10s 1s <-"), []string{"open_duration"}},
	{"failure_status out of range", breaker("failure_status 999 <-"), []string{"999"}},
	{"failure_status no status", breaker("failure_status bad <-"), []string{"bad"}},
	{"option twice", breaker("failure_threshold 2\nfailure_threshold 3 <-"), []string{"failure_threshold"}},
	{"unknown inner transport", breaker("transport pigeon <-"), []string{"pigeon"}},
	{"unknown inner policy", "reverse_proxy 127.0.0.1:1 {\nlb_policy relay_breaker dartboard <-\n}", []string{"dartboard"}},
}

// breaker returns a proxy with a breaker that has the options.
func breaker(options string) string {
	return "reverse_proxy 127.0.0.1:1 {\ntransport relay_breaker {\n" + options + "\n}\n}"
}

// expect splits off the sign and returns what the message must hold.
func (b badConfig) expect(c *rig.Caddy) (body string, want []string) {
	body, want = strings.Replace(b.body, " <-", "", 1), b.want
	if before, _, ok := strings.Cut(c.Document(b.body), " <-"); ok {
		want = append([]string{fmt.Sprintf("Caddyfile:%d", strings.Count(before, "\n")+1)}, want...)
	}
	return body, want
}

func testBadConfigs(t *testing.T, all []badConfig) {
	c := rig.Start(t, `respond "still here"`)
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) {
			body, want := tt.expect(c)
			msg := c.Load(body)
			if msg == "" {
				c.Reload(`respond "still here"`)
				t.Fatal("it loaded")
			}
			for _, w := range want {
				if !strings.Contains(strings.ToLower(msg), strings.ToLower(w)) {
					t.Errorf("the message lacks %q: %s", w, msg)
				}
			}
			if r := c.Get("/"); string(r.Body) != "still here" {
				t.Errorf("the config before is gone: %d %q", r.Status, r.Body)
			}
		})
	}
}

func TestBadMuxConfigsNameLineAndWord(t *testing.T) {
	t.Parallel()
	testBadConfigs(t, badMuxConfigs)
}

func TestBadBreakerConfigsNameLineAndWord(t *testing.T) {
	t.Parallel()
	testBadConfigs(t, badBreakerConfigs)
}

func TestEightMuxesInAChainLoad(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, nest(8))
	wantMissing(t, c, "/x")
}

func TestValidateExitsWithOneLineOfCause(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"storage_mux {\nbackend m memory\nbackend m memory\n}":             "STORAGE_MUX.BACKEND_NAME_CONFLICT",
		"storage_mux {\nbackend m floppy\n}":                               "floppy",
		"reverse_proxy a:1 {\ntransport relay_breaker {\ncolour red\n}\n}": "colour",
	} {
		code, out := rig.Command(t, "validate", body)
		if code != 1 || !strings.Contains(out, want) || strings.Contains(out, "goroutine ") {
			t.Errorf("validate of %q = %d: %s", body, code, out)
		}
	}
}

// adapt and validate start no probe and create no file.
func TestAdaptAndValidateTouchNothing(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	for _, command := range []string{"adapt", "validate"} {
		dir := t.TempDir()
		code, out := rig.Command(t, command, `
			storage_mux {
				writable
				health_interval 10ms
				backend d file {$DIR}/d {
					create_root
				}
				backend f1 http {$F1}
			}`, rig.InDir(dir), rig.Env("F1", f1.URL()))
		if code != 0 {
			t.Errorf("%s = %d: %s", command, code, out)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s made %v (%v)", command, entries, err)
		}
	}
	if n := f1.Hits(); n > 0 {
		t.Errorf("the origin was asked %d times", n)
	}
}

func TestADeadBackendDoesNotKeepCaddyFromStarting(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Refuse()
	c := rig.Start(t, `
		storage_mux {
			backend f1 http {$F1}
			backend d file {$DIR}/nowhere
			backend dead http http://{$DEAD}
			timeout 300ms
		}`, rig.Env("F1", f1.URL()), rig.Env("DEAD", origin.DeadEnd(t)))
	if r := c.Get("/x"); r.Status != 503 && r.Status != 504 {
		t.Errorf("GET = %d, want 503 or 504", r.Status)
	}
}

func TestEnvironmentAndFilePlaceholdersAreReplacedAtLoad(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: []byte("body")})
	dir := t.TempDir()
	writeFile(t, dir, "token", []byte("from a file"))
	c := rig.Start(t, `
		storage_mux {
			backend f1 http {env.F1} {
				header X-Token {file.{$DIR}/token}
			}
		}`, rig.Env("F1", f1.URL()), rig.InDir(dir))
	wantBody(t, "GET", c.Get("/x"), 200, []byte("body"))
	if got := f1.Log()[0].Header.Get("X-Token"); got != "from a file" {
		t.Errorf("X-Token = %q", got)
	}
}

func TestJSONIsReadStrictly(t *testing.T) {
	t.Parallel()
	c := rig.Start(t, `respond "still here"`)
	config := func(handler string) string {
		return fmt.Sprintf(`{"admin":{"listen":"127.0.0.1:%s"},"apps":{"http":{"servers":{"s":{"listen":["%s"],"routes":[{"handle":[%s]}]}}}}}`,
			c.Word("ADMIN"), c.Addr(), handler)
	}
	for handler, want := range map[string]string{
		`{"handler":"storage_mux","mode":"failover","backends":[{"name":"m","type":"memory","colour":"red"}]}`:                     "colour",
		`{"handler":"storage_mux","backends":[{"name":"m","type":"floppy"}]}`:                                                      "floppy",
		`{"handler":"storage_mux","backends":[{"name":"m"}]}`:                                                                      "type",
		`{"handler":"storage_mux","backends":[]}`:                                                                                  "backend",
		`{"handler":"storage_mux","mode":"roundabout","backends":[{"name":"m","type":"memory"}]}`:                                  "roundabout",
		`{"handler":"storage_mux","backends":[{"name":"m","type":"memory"},{"name":"m","type":"memory"}]}`:                         "STORAGE_MUX.BACKEND_NAME_CONFLICT",
		`{"handler":"storage_mux","backends":[{"name":"m","type":"memory","weight":-1}]}`:                                          "STORAGE_MUX.INVALID_WEIGHT",
		`{"handler":"storage_mux","backends":[{"name":"f","type":"file"}]}`:                                                        "root",
		`{"handler":"storage_mux","backends":[{"name":"h","type":"http","base_url":"gopher://x"}]}`:                                "gopher",
		`{"handler":"storage_mux","backends":[null]}`:                                                                              "backend",
		`{"handler":"storage_mux","backends":[{"name":"n","type":"mux","mode":"failover","backends":[]}]}`:                         "backend",
		`{"handler":"reverse_proxy","upstreams":[{"dial":"a:1"}],"transport":{"protocol":"relay_breaker","failure_threshold":-1}}`: "failure_threshold",
		`{"handler":"reverse_proxy","upstreams":[{"dial":"a:1"}],"transport":{"protocol":"relay_breaker","colour":"red"}}`:         "colour",
	} {
		status, body := c.Admin("POST", "/load", config(handler), "Content-Type", "application/json")
		if status != 400 || !strings.Contains(body, want) {
			t.Errorf("%s\nPOST /load = %d %s, want 400 and %q", handler, status, body, want)
		}
	}
	good := config(`{"handler":"storage_mux","writable":true,"mode":"failover","backends":[{"name":"n","type":"mux","mode":"failover","backends":[{"name":"m","type":"memory"}]}]}`)
	if status, body := c.Admin("POST", "/load", good, "Content-Type", "application/json"); status != 200 {
		t.Fatalf("a good config: %d %s", status, body)
	}
	wantStatus(t, "PUT", c.Put("/x", "body"), 201)
	wantBody(t, "GET", c.Get("/x"), 200, []byte("body"))
}

// After a config that failed half-way nothing of it is left, and what was there goes on.
func TestAHalfLoadedConfigLeavesNothing(t *testing.T) {
	t.Parallel()
	const tree = "storage_mux {\nname t\nwritable\nbackend m memory\n}"
	c := rig.Start(t, tree)
	c.Put("/x", "body")
	before := c.Goroutines()
	for range 20 {
		if msg := c.Load("route {\nstorage_mux {\nname u\nhealth_interval 1s\nbackend m memory\n}\nphp_fastcgi {\nindex a\nindex b\nbad_option\n}\n}"); msg == "" {
			t.Fatal("a bad config loaded")
		}
		if msg := c.Load("storage_mux {\nname u\nbackend d file " + filepath.Join(c.Dir, "x") + "\n}\nrequest_body {\nmax_size -5\n}\n"); msg == "" {
			t.Fatal("a bad config loaded")
		}
	}
	wantBody(t, "GET", c.Get("/x"), 200, []byte("body"))
	c.Eventually(soon, "the end of all goroutines of the bad configs", func() error {
		if n := c.Goroutines(); n > before+5 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}

// Row 23: reloads leave no goroutine behind.
func TestCase023ReloadsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	f1 := origin.New(t)
	f1.Put("/x", origin.Object{Body: []byte("body")})
	config := func(i int) string {
		return fmt.Sprintf(`
			storage_mux {
				timeout %ds
				health_interval 50ms
				backend f1 http {$F1}
				backend m memory
			}`, 10+i)
	}
	c := rig.Start(t, config(0), rig.Env("F1", f1.URL()))
	for i := range 5 {
		c.Reload(config(i + 1))
		wantStatus(t, "GET", c.Get("/x"), 200)
	}
	before := c.Goroutines()
	for i := range 20 {
		c.Reload(config(i % 2))
		wantStatus(t, "GET", c.Get("/x"), 200)
	}
	c.Eventually(soon, "the end of the old configs", func() error {
		if n := c.Goroutines(); n > before+10 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}

// What an operator set for all, and one proxy cannot do, is said with the name of that proxy.
func TestAProxyWithoutThePolicyIsALoadWarning(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		site, want string // want "": no warning
	}{
		"min_available of the registry": {
			"reverse_proxy app1:80 {\n transport relay_breaker\n}",
			`"min_available of the registry does nothing for this proxy: it needs a reverse_proxy with lb_policy relay_breaker","registry":"default","upstreams":["app1:80"],"min_available":1`,
		},
		"several upstreams": {
			"reverse_proxy app1:80 app2:80 {\n transport relay_breaker other\n}",
			"over several upstreams without lb_policy relay_breaker",
		},
		"with the policy": {"reverse_proxy app1:80 app2:80 {\n lb_policy relay_breaker\n transport relay_breaker\n}", ""},
		"a handler":       {"relay_breaker x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := rig.Command(t, "validate", row.site, rig.Global("relay_breaker {\n min_available 1\n}"))
			warned := strings.Contains(out, `"logger":"http.reverse_proxy.transport.relay_breaker"`)
			if code != 0 || warned != (row.want != "") || !strings.Contains(out, row.want) {
				t.Errorf("validate exits with %d, want a warning %q:\n%s", code, row.want, out)
			}
		})
	}
}
