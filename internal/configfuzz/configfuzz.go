// Package configfuzz feeds hostile configs to Caddy modules: whatever the text, an error will do, and a panic will not.
package configfuzz

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// dashes stand between config and meaning in golden files.
const dashes = "----------\n"

// Unmarshal is the parser of a module that is one.
func Unmarshal(m caddyfile.Unmarshaler) func(*caddyfile.Dispenser) (any, error) {
	return func(d *caddyfile.Dispenser) (any, error) {
		fresh := reflect.New(reflect.TypeOf(m).Elem()).Interface().(caddyfile.Unmarshaler)
		return fresh, fresh.UnmarshalCaddyfile(d)
	}
}

// Caddyfile fuzzes the parser of the module that word begins in a Caddyfile. What it accepts is loaded as JSON, and must be
// decoded. Seeds are the golden files of the package.
func Caddyfile(f *testing.F, word string, m caddy.Module, parse func(*caddyfile.Dispenser) (any, error)) {
	f.Helper()
	for _, golden := range goldens(f) {
		text, _, _ := strings.Cut(golden, dashes)
		if i := strings.Index(text, word); i >= 0 {
			f.Add(strings.TrimSuffix(strings.TrimSpace(text[i:]), "}"))
		}
	}
	outer := context(f)
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := caddyfile.Tokenize([]byte(text), "Caddyfile")
		if err != nil {
			return
		}
		parsed, err := parse(caddyfile.NewDispenser(tokens))
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a word")
			}
			return
		}
		config, err := json.Marshal(parsed)
		if err != nil {
			t.Fatalf("%q is accepted, and has no JSON: %v", text, err)
		}
		if err := load(outer, m, config); err != nil && strings.Contains(err.Error(), "decoding module config") {
			t.Errorf("%q is accepted, and gives %s, which is not read: %v", text, config, err)
		}
	})
}

// JSON fuzzes the config of a module. Seeds are those that the golden files of the package show, by what tells of them that
// they are this module's.
func JSON(f *testing.F, m caddy.Module, key, value string) {
	f.Helper()
	for _, golden := range goldens(f) {
		_, text, _ := strings.Cut(golden, dashes)
		var whole any
		if json.Unmarshal([]byte(text), &whole) == nil {
			walk(whole, func(o map[string]any) {
				if o[key] == value {
					delete(o, key)
					config, _ := json.Marshal(o)
					f.Add(config)
				}
			})
		}
	}
	f.Add([]byte(`{}`))
	f.Add([]byte(`null`))
	outer := context(f)
	f.Fuzz(func(t *testing.T, config []byte) {
		if err := load(outer, m, config); err != nil && err.Error() == "" {
			t.Error("an error without a word")
		}
	})
}

// load loads a module, and cleans up after it.
func load(outer caddy.Context, m caddy.Module, config []byte) error {
	ctx, cancel := caddy.NewContext(outer)
	defer cancel()
	_, err := ctx.LoadModuleByID(string(m.CaddyModule().ID), config)
	return err
}

func context(f *testing.F) caddy.Context {
	f.Helper()
	outer, err := caddy.ProvisionContext(&caddy.Config{
		Admin: &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: new(bool)}},
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{
			WriterRaw: json.RawMessage(`{"output":"discard"}`),
		}}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	return outer
}

func goldens(f *testing.F) []string {
	f.Helper()
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden files: %v", err)
	}
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// walk visits every object in a value of JSON.
func walk(value any, visit func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			walk(inner, visit)
		}
		visit(v)
	case []any:
		for _, inner := range v {
			walk(inner, visit)
		}
	}
}
