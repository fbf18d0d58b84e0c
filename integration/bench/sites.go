package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// object is what the sites serve.
type object struct {
	name  string
	size  int
	body  []byte   // nil: zeros, which are not compared
	paths []string // to ask for in turns, all of which stand for it; none: its own
}

func (o object) path() string { return "/" + o.name + ".bin" }

// store puts the object into a folder. Zeros take no room there.
func (o object) store(dir string) error {
	path := filepath.Join(dir, o.path())
	if o.body != nil {
		return os.WriteFile(path, o.body, 0o600)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(o.size)), f.Close())
}

// sizes are the objects that can be asked for.
var sizes = map[string]int{"1KiB": 1 << 10, "100KiB": 100 << 10, "8MiB": 8 << 20}

// objectsOf makes the objects of the given sizes, of printable bytes, so that
// the largest that respond can serve fits into a Caddyfile.
func objectsOf(names []string) ([]object, error) {
	objects := make([]object, 0, len(names))
	letters := rand.New(rand.NewPCG(1, 2))
	for _, name := range names {
		size, ok := sizes[name]
		if !ok {
			return nil, fmt.Errorf("unknown size %q", name)
		}
		body := make([]byte, size)
		for i := range body {
			body[i] = byte('a' + letters.IntN(26))
		}
		objects = append(objects, object{name: name, size: size, body: body})
	}
	return objects, nil
}

// site is one of the contenders.
type site struct {
	name   string
	port   int // its place among the ports
	config string
}

const origins = "\nbackend a http http://{$ORIGIN}\nbackend b http http://{$ORIGIN}\nbackend c http http://{$ORIGIN}\n"

// Our site and Caddy's own that does the same work stand together.
func allSites() []site {
	return []site{
		{"file_server", 0, "root {$DIR}/files\nfile_server"},
		{"storage_mux file", 1, "storage_mux {\nbackend d file {$DIR}/files\n}"},
		{"respond", 2, ""},
		{"storage_mux memory", 3, "storage_mux {\nwritable\nbackend m memory\n}"},
		{"reverse_proxy", 4, "reverse_proxy {$ORIGIN}"},
		{"storage_mux http", 5, "storage_mux {\nbackend h http http://{$ORIGIN}\n}"},
		{"mirror of 3 origins", 6, "storage_mux mirror {" + origins + "}"},
		{"round_robin of 3 with hedge auto", 7, "storage_mux round_robin {\nhedge auto" + origins + "}"},
		{"failover, the first one dead", 8, "storage_mux failover {\nbackend dead http http://127.0.0.1:1\nbackend h http http://{$ORIGIN}\n}"},
		{"reverse_proxy + relay_breaker", 9, "reverse_proxy {$ORIGIN} {\nlb_policy relay_breaker\ntransport relay_breaker\n}"},
	}
}

// serves tells whether the site can serve the object: respond has its body in
// the config, which is no place for megabytes.
func (s site) serves(o object) bool { return s.name != "respond" || len(o.body) <= 100<<10 }

// caddyfile returns the config of all sites.
func caddyfile(sites []site, objects []object) string {
	var config strings.Builder
	config.WriteString("{\n\tadmin 127.0.0.1:{$ADMIN}\n\tpersist_config off\n\tauto_https off\n\tdefault_bind 127.0.0.1\n\tlog {\n\t\tlevel WARN\n\t}\n}\n")
	for _, s := range sites {
		_, _ = fmt.Fprintf(&config, "http://:{$PORT%d} {\n%s\n", s.port, s.config)
		for _, o := range objects {
			if s.name == "respond" && s.serves(o) {
				// Without the header respond would send the larger ones in chunks.
				_, _ = fmt.Fprintf(&config, "header %[1]s Content-Length %[2]d\nrespond %[1]s %[3]s\n", o.path(), len(o.body), o.body)
			}
		}
		config.WriteString("}\n")
	}
	return config.String()
}
