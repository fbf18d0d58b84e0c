package caddymux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever reads why a config does not load has no line of a Caddyfile where a placeholder, a file or JSON is at fault: the error says
// which tree, which backend in it and which option it is about.
func TestErrorsOfAConfigNameTreeBackendAndOption(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.pem")
	if err := os.WriteFile(bad, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	const memory, https = `{"name":"m","type":"memory"}`, `"name":"h","type":"http","base_url":"https://a"`
	for option, rows := range map[string][]string{
		// of the tree, and of a mux in it
		"mode":              {`"mode":"nope"`, `"mode":"{no.such}"`},
		"timeout":           {`"timeout":"-1s"`},
		"deadline":          {`"deadline":"-1s"`},
		"retry":             {`"retry":-1`},
		"retry_delay":       {`"retry_delay":"-1s"`},
		"retry_max_delay":   {`"retry_delay":"2s","retry_max_delay":"1s"`},
		"cooldown":          {`"cooldown":"-1s"`},
		"cooldown_max":      {`"cooldown":"2s","cooldown_max":"1s"`},
		"health_interval":   {`"health_interval":"-1s"`},
		"on_miss":           {`"on_miss":"nope"`, `"on_miss":"{no.such}"`},
		"partial_writes":    {`"partial_writes":"nope"`},
		"write_quorum":      {`"write_quorum":"nope"`, `"write_quorum":0`, `"mode":"mirror","write_quorum":3`},
		"journal":           {`"journal":"{env.STORAGE_MUX_NO_SUCH}"`, `"journal":"{no.such}"`},
		"read_repair":       {`"read_repair":"nope"`},
		"repair_rate":       {`"repair_rate":-2`},
		"hash":              {`"hash":"nope"`},
		"hedge":             {`"hedge":"nope"`},
		"hedge_max_percent": {`"hedge":"auto","hedge_max_percent":101`, `"hedge_max_percent":1`},
	} {
		for _, row := range rows {
			wantNamed(t, `{"name":"t",`+row+`,"backends":[`+memory+`]}`, `tree "t": `+option+": ")
			wantNamed(t, `{"name":"t","backends":[{"name":"n","type":"mux",`+row+`,"backends":[`+memory+`]}]}`, `tree "t": backend "n": `+option+": ")
		}
	}
	for want, rows := range map[string][]string{
		`tree "t": STORAGE_MUX.BACKEND_NOT_FOUND: no backend`:         {`{"name":"t"}`},
		`tree "t": backend 2: name: `:                                 {`{"name":"t","backends":[` + memory + `,{"name":1,"type":"memory"}]}`},
		`tree "t": backend "m": timeout: `:                            backends(`"name":"m","type":"memory","timeout":"x"`, `"name":"m","type":"memory","timeout":"-1s"`),
		`tree "t": backend "m": health_key: `:                         backends(`"name":"m","type":"memory","health_key":"/"`),
		`tree "t": backend "m": STORAGE_MUX.INVALID_WEIGHT: weight: `: backends(`"name":"m","type":"memory","weight":-1`),
		`tree "t": backend "m": unknown backend type "nope"`:          backends(`"name":"m","type":"nope"`),
		`tree "t": backend "n": timeout: must be a duration`:          backends(`"name":"n","type":"mux","timeout":"x","backends":[` + memory + `]`),
		`tree "t": backend "n": cooldown_max: must be a duration`:     backends(`"name":"n","type":"mux","cooldown_max":"x","backends":[` + memory + `]`),
		`tree "t": backend "n": json: unknown field "nope"`:           backends(`"name":"n","type":"mux","nope":1,"backends":[` + memory + `]`),
		`tree "t": backend "u": unknown storage tree "nope"`:          backends(`"name":"u","type":"use","tree":"nope"`),
		`tree "t": backend "h": tls_ca_file: `:                        backends(https+`,"tls_ca_file":"/nope"`, https+`,"tls_ca_file":"`+bad+`"`),
		`tree "t": backend "h": tls_cert_file: `:                      backends(https + `,"tls_key_file":"` + bad + `"`),
		`tree "t": backend "h": tls_key_file: `:                       backends(https + `,"tls_cert_file":"` + bad + `"`),
		`tree "t": backend "h": tls_cert_file, tls_key_file: `:        backends(https+`,"tls_cert_file":"`+bad+`","tls_key_file":"`+bad+`"`, https+`,"tls_cert_file":"/nope","tls_key_file":"/nope"`),
		`tree "t": backend "h": header: `:                             backends(https + `,"header":{"a b":["x"]}`),
		`tree "t": backend "h": header.A: `:                           backends(https + `,"header":{"A":["{no.such}"]}`),
		`tree "t": backend "h": health_uri: `:                         backends(https + `,"health_uri":"http://[::"`),
		`tree "t": backend "h": base_url: `:                           backends(`"name":"h","type":"http","base_url":"nope"`, `"name":"h","type":"http"`, `"name":"h","type":"http","base_url":"{env.STORAGE_MUX_NO_SUCH}"`),
	} {
		for _, row := range rows {
			wantNamed(t, row, want)
		}
	}
	// What a type says of its own options comes with its module's name.
	for want, row := range map[string]string{
		"max_size":   `"type":"memory","max_size":-1`,
		"root":       `"type":"file"`,
		"mode":       `"type":"file","root":"/x","mode":"0999"`,
		"bucket":     `"type":"s3","bucket":"A B"`,
		"secret_key": `"type":"s3","bucket":"bucket","access_key":"a"`,
		"prefix":     `"type":"s3","bucket":"bucket","prefix":"../x"`,
		"part_size":  `"type":"s3","bucket":"bucket","part_size":1`,
		"user":       `"type":"swift","container":"c"`,
		"container":  `"type":"swift","container":"a/b","auth_url":"http://x","user":"u","key":"k"`,
		"auth_url":   `"type":"swift","container":"c","auth_url":"nope","user":"u","key":"k"`,
		"access_key": `"type":"bunny","zone":"z"`,
		"region":     `"type":"bunny","zone":"z","region":"xx","access_key":"k"`,
		"pull_zone":  `"type":"bunny","zone":"z","region":"de","access_key":"k","pull_zone":"nope"`,
		"tree":       `"type":"use"`,
	} {
		config := backends(`"name":"x",` + row)[0]
		wantNamed(t, config, `tree "t": backend "x": storage_mux.backends.`)
		wantNamed(t, config, ": "+want+": ")
	}
}

// backends are configs of a tree with one backend each.
func backends(rows ...string) (configs []string) {
	for _, row := range rows {
		configs = append(configs, `{"name":"t","backends":[{`+row+`}]}`)
	}
	return configs
}

func wantNamed(t *testing.T, config, want string) {
	t.Helper()
	if _, err := provisionJSON(t, config); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), `tree "t"`) != 1 {
		t.Errorf("%s\ngives %v, want %q, and the tree once", config, err, want)
	}
}
