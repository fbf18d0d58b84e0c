package integration_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

var fences = regexp.MustCompile("(?s)```caddyfile\n(.*?)```")

// Every Caddyfile that the README shows is a whole one, and loads.
func TestEveryCaddyfileOfTheReadmeLoads(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := fences.FindAllStringSubmatch(string(text), -1)
	if len(found) < 8 {
		t.Fatalf("%d Caddyfiles in the README, want all recipes", len(found))
	}
	for _, fence := range found {
		name, _, _ := strings.Cut(strings.TrimSpace(fence[1]), "\n")
		t.Run(name, func(t *testing.T) {
			code, out := rig.Command(t, "validate", fence[1], rig.AsIs(), rig.Env("ORIGIN_TOKEN", "secret"))
			if code != 0 || strings.Contains(out, `"level":"warn"`) && !strings.Contains(out, "requires TLS") {
				t.Errorf("validate exits with %d:\n%s\n%s", code, fence[1], out)
			}
		})
	}
}

// Every option of the code's parse tables stands in the README, in a row of its own or of its kind.
func TestEveryOptionStandsInTheReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, site := range []string{
		"storage_mux {\n nonsense\n}", "storage_mux {\n backend m memory {\n nonsense\n }\n}", "storage_mux {\n backend f file /x {\n nonsense\n }\n}",
		"storage_mux {\n backend h http http://x {\n nonsense\n }\n}", "storage_mux {\n backend s swift x {\n nonsense\n }\n}",
		"storage_mux {\n backend r rackspace x {\n nonsense\n }\n}", "storage_mux {\n backend b bunny x {\n nonsense\n }\n}", "reverse_proxy x {\n transport relay_breaker {\n nonsense\n }\n}", "relay_breaker {\n nonsense\n}",
	} {
		code, out := rig.Command(t, "adapt", "http://:8080 {\n"+site+"\n}\n", rig.AsIs())
		_, list, ok := strings.Cut(strings.Replace(out, "the options here are: ", "known are ", 1), "known are ")
		if code == 0 || !ok {
			t.Errorf("adapt of an unknown option exits with %d, and does not list the known ones:\n%s", code, out)
			continue
		}
		list, _, _ = strings.Cut(list, ", at ")
		for option := range strings.SplitSeq(strings.TrimSpace(list), ", ") {
			if !strings.Contains(string(text), "`"+option) && !strings.Contains(string(text), "· "+option) && !strings.Contains(string(text), "{ "+option) {
				t.Errorf("the README does not have the option %q", option)
			}
		}
	}
}
