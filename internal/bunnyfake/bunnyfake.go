// Package bunnyfake is a storage zone of Bunny's Edge Storage in memory, for tests, with the API that purges a pull zone. It
// does what the vendor's OpenAPI documents and its own client (npm @bunny.net/storage-sdk) expect, which a test in
// integration/ runs against it.
package bunnyfake

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/fake"
)

// What a client needs.
const (
	AccessKey = "0123abcd-zone-password"
	APIKey    = "account-api-key"
)

// Zones are storage zones at one endpoint. It is safe for concurrent use.
type Zones struct {
	fake.Server

	mu      sync.Mutex
	zones   map[string]map[string]*file // by zone and path; a folder's ends in a slash
	made    int
	void    bool
	whole   bool
	swap    func(path string)
	purged  []string
	refused bool
}

type file struct {
	guid    string
	body    []byte
	kind    string
	created time.Time
	at      time.Time
}

// New starts an endpoint with zones, until the test ends. Purges go there as well.
func New(tb testing.TB, zones ...string) *Zones {
	tb.Helper()
	z := &Zones{zones: make(map[string]map[string]*file)}
	for _, name := range zones {
		z.zones[name] = make(map[string]*file)
	}
	z.Listen(tb, z)
	return z
}

// AddZone makes a zone.
func (z *Zones) AddZone(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.zones[name] = make(map[string]*file)
}

// Void makes writes answer 201 and store nothing, as at the endpoint of another region.
func (z *Zones) Void(on bool) { fake.Set(&z.mu, &z.void, on) }

// Whole makes ranges be ignored.
func (z *Zones) Whole(on bool) { fake.Set(&z.mu, &z.whole, on) }

// Refuse makes every key be refused.
func (z *Zones) Refuse(on bool) { fake.Set(&z.mu, &z.refused, on) }

// BeforeGet is called before an object is read, without locks; nil ends it.
func (z *Zones) BeforeGet(f func(path string)) { fake.Set(&z.mu, &z.swap, f) }

// Put makes a file, as somebody else would.
func (z *Zones) Put(zone, path, body string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.store(z.zones[zone], path, []byte(body), "text/plain")
}

// Paths lists a zone, folders included.
func (z *Zones) Paths(zone string) []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	var paths []string
	for path := range z.zones[zone] {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

// Purged are the URLs that were purged.
func (z *Zones) Purged() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.Clone(z.purged)
}

// ServeHTTP implements http.Handler.
func (z *Zones) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	path = strings.TrimLeft(path, "/") // the vendor's client sends two slashes after the zone
	z.Note(r)
	z.mu.Lock()
	files, ok := z.zones[name]
	before, refused := z.swap, z.refused
	z.mu.Unlock()
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/purge":
		z.purge(w, r)
	case !ok || refused || r.Header.Get("AccessKey") != AccessKey:
		say(w, http.StatusUnauthorized, "Unauthorized")
	case r.Method == "DESCRIBE":
		z.describe(w, files, name, path)
	case r.Method == http.MethodGet && (path == "" || strings.HasSuffix(path, "/")):
		z.list(w, files, name, path)
	case r.Method == http.MethodGet:
		if before != nil {
			before(path)
		}
		z.get(w, r, files, path)
	case r.Method == http.MethodPut:
		z.put(w, r, files, path)
	case r.Method == http.MethodDelete:
		z.delete(w, files, path)
	default:
		say(w, http.StatusMethodNotAllowed, "Method Not Allowed")
	}
}

// say answers as Bunny does: in JSON, with the status in it.
func say(w http.ResponseWriter, status int, message string) {
	fake.JSON(w, status, map[string]any{"HttpCode": status, "Message": message})
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// described is what Bunny says of a file or folder.
func described(zone, path string, f *file) map[string]any {
	dir, name := "", strings.TrimSuffix(path, "/")
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		dir, name = name[:i+1], name[i+1:]
	}
	d := map[string]any{
		"Guid": f.guid, "StorageZoneName": zone, "Path": "/" + zone + "/" + dir, "ObjectName": name, "Length": len(f.body),
		"LastChanged": f.at.UTC().Format("2006-01-02T15:04:05.000"), "DateCreated": f.created.UTC().Format("2006-01-02T15:04:05.000"),
		"IsDirectory": strings.HasSuffix(path, "/"), "ServerId": 1, "StorageZoneId": 7, "UserId": "u", "ContentType": f.kind,
		"Checksum": checksum(f.body), "ReplicatedZones": nil,
	}
	if strings.HasSuffix(path, "/") {
		d["Checksum"] = nil
	}
	return d
}

func (z *Zones) describe(w http.ResponseWriter, files map[string]*file, zone, path string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, at := range []string{path, path + "/"} {
		if f := files[at]; f != nil {
			fake.JSON(w, http.StatusOK, described(zone, at, f))
			return
		}
	}
	say(w, http.StatusNotFound, "Object Not Found")
}

func (z *Zones) list(w http.ResponseWriter, files map[string]*file, zone, dir string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	all := []any{}
	for path, f := range files {
		if rest := strings.TrimPrefix(path, dir); strings.HasPrefix(path, dir) && rest != "" && !strings.Contains(strings.TrimSuffix(rest, "/"), "/") {
			all = append(all, described(zone, path, f))
		}
	}
	fake.JSON(w, http.StatusOK, all)
}

func (z *Zones) get(w http.ResponseWriter, r *http.Request, files map[string]*file, path string) {
	z.mu.Lock()
	f, whole := files[path], z.whole
	z.mu.Unlock()
	if f == nil {
		say(w, http.StatusNotFound, "Object Not Found")
		return
	}
	if whole {
		r.Header.Del("Range")
	}
	w.Header().Set("Content-Type", f.kind)
	http.ServeContent(w, r, "", f.at, bytes.NewReader(f.body))
}

func (z *Zones) put(w http.ResponseWriter, r *http.Request, files map[string]*file, path string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	for i, c := range path {
		if c == '/' && files[path[:i]] != nil {
			say(w, http.StatusBadRequest, "Invalid path")
			return
		}
	}
	switch want := r.Header.Get("Checksum"); {
	case want != "" && want != checksum(body):
		say(w, http.StatusBadRequest, "Checksum does not match")
		return
	case files[path+"/"] != nil:
		say(w, http.StatusBadRequest, "A folder of that name is there")
		return
	case !z.void:
		kind := r.Header.Get("Override-Content-Type")
		if kind == "" {
			kind = "application/octet-stream"
		}
		z.store(files, path, body, kind)
	}
	say(w, http.StatusCreated, "File uploaded.")
}

// store must be called with z.mu held.
func (z *Zones) store(files map[string]*file, path string, body []byte, kind string) {
	z.made++
	f := &file{guid: fmt.Sprintf("guid-%d", z.made), body: body, kind: kind, at: time.Now(), created: time.Now()}
	if old := files[path]; old != nil {
		f.created = old.created
	}
	for i, c := range path {
		if dir := path[:i] + "/"; c == '/' && files[dir] == nil {
			files[dir] = &file{guid: "folder-" + dir, at: time.Now(), created: time.Now()}
		}
	}
	files[path] = f
}

func (z *Zones) delete(w http.ResponseWriter, files map[string]*file, path string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if files[path] == nil && files[path+"/"] != nil {
		path += "/" // Bunny deletes it with all that is in it
	}
	if files[path] == nil {
		say(w, http.StatusNotFound, "Object Not Found")
		return
	}
	for other := range files {
		if other == path || strings.HasSuffix(path, "/") && strings.HasPrefix(other, path) {
			delete(files, other)
		}
	}
	say(w, http.StatusOK, "File deleted successfully.")
}

func (z *Zones) purge(w http.ResponseWriter, r *http.Request) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.refused || r.Header.Get("AccessKey") != APIKey {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	z.purged = append(z.purged, r.URL.Query().Get("url"))
	w.WriteHeader(http.StatusOK)
}
