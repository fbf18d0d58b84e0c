package caddymux

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTreesAreFoundWhereverTheyAreWritten(t *testing.T) {
	const backend = `"backends": [{"name": "a", "type": "memory"}]`
	var config any
	if err := json.Unmarshal([]byte(`{
		"storage": {"module": "storage_mux", "name": "certs", "mode": "mirror", `+backend+`},
		"apps": {
			"storage_mux": {"trees": {"named": {`+backend+`}}},
			"caddy.filesystems": {"filesystems": [{"name": "fs", "file_system": {"backend": "storage_mux", "name": "files", `+backend+`}}]},
			"http": {"servers": {"srv0": {"routes": [{"handle": [
				{"handler": "subroute", "routes": [{"handle": [{"handler": "storage_mux", "prefix": "x", "name": "site", `+backend+`}]}]},
				{"handler": "storage_mux", "use": "named"},
				{"handler": "other", "backends": [{"name": "no"}]}
			]}]}}}
		}
	}`), &config); err != nil {
		t.Fatal(err)
	}
	named, inline, err := findTrees(config)
	if err != nil || len(named) != 1 || named["named"] == nil {
		t.Errorf("named trees = %v, %v", named, err)
	}
	var names []string
	for _, one := range inline {
		names = append(names, one.name)
		if len(one.Backends) != 1 {
			t.Errorf("%s has %d backends", one.name, len(one.Backends))
		}
	}
	if diff := cmp.Diff([]string{"files", "site", "certs"}, names); diff != "" {
		t.Errorf("inline trees (-want +got):\n%s", diff)
	}
}

func TestAnErrorIsOneLine(t *testing.T) {
	err := oneLine(errors.Join(errors.New("first"), errors.New("second\n\tmore")))
	if got := err.Error(); got != "first; second; more" {
		t.Errorf("%q", got)
	}
	if oneLine(nil) != nil {
		t.Error("no error has become one")
	}
}

// What a key is must not reach the terminal as a command to it.
func TestControlCharactersAreShownAsSuch(t *testing.T) {
	for in, want := range map[string]string{
		"plain/ключ/鍵": "plain/ключ/鍵", "a\x1b[2Jb": `a\u001b[2Jb`, "a\nb": `a\u000ab`, "a\u009bb": `a\u009bb`, "a\u202eb": `a\u202eb`,
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestOrdinals(t *testing.T) {
	var got []string
	for _, n := range []int{1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 101, 111} {
		got = append(got, ordinal(n))
	}
	if text := strings.Join(got, " "); text != "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 23rd 101st 111th" {
		t.Error(text)
	}
}

// On a terminal a bar is drawn over itself and gone at the end; elsewhere there is a line now and then; to where data goes, nothing.
func TestProgress(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		live, quiet bool
		total       int64
		want        string
	}{
		"terminal":        {true, false, 4 * mib, "\r\x1b[Kk: [###############...............]  50 %, 2.0 MiB of 4.0 MiB, 1.0 MiB/s\r\x1b[K"},
		"unknown length":  {true, false, -1, "\r\x1b[Kk: 2.0 MiB, 1.0 MiB/s\r\x1b[K"},
		"not a terminal":  {false, false, 4 * mib, ""},
		"among its data":  {true, true, 4 * mib, ""},
		"an empty object": {true, false, 0, "\r\x1b[Kk: 2.0 MiB, 1.0 MiB/s\r\x1b[K"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				bar := newMeter(&out, c.live, c.quiet, "k", c.total)
				time.Sleep(2 * time.Second)
				_, _ = bar.Write(make([]byte, 2*mib))
				bar.end()
				bar.count(1, "")
				if got := out.String(); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		bar := newMeter(&out, false, false, "verify", -1)
		for n := range int64(25) {
			time.Sleep(time.Second)
			bar.at(n+1, "keys")
		}
		if got, want := out.String(), "verify: 10 keys, 1 keys/s\nverify: 20 keys, 1 keys/s\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// Every command is documented, and takes what all of them take.
func TestEveryCommandHasTheFlagsOfAll(t *testing.T) {
	for i := range commands {
		cmd := commands[i].cobra()
		if cmd.Short == "" {
			t.Errorf("%s says nothing about itself", cmd.Name())
		}
		for _, flag := range []string{"config", "adapter", "tree", "json", "address"} {
			if cmd.Flags().Lookup(flag) == nil {
				t.Errorf("%s has no --%s", cmd.Name(), flag)
			}
		}
	}
	if got := fmt.Sprint(len(commands)); got != "8" {
		t.Errorf("%s commands", got)
	}
}
