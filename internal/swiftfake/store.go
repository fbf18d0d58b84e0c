package swiftfake

import (
	"crypto/md5" // Swift's ETag
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/fake"
)

// object is an object, plain or large.
type object struct {
	body    []byte
	header  http.Header
	at      time.Time
	static  []Segment
	dynamic string // container/prefix
}

// Segment is a part of a static large object.
type Segment struct {
	Name  string `json:"name"` // /container/object
	Bytes int64  `json:"bytes"`
	Hash  string `json:"hash"`
}

const metaPrefix = "X-Object-Meta-"

// PutStatic makes a static large object of segments "container/name" that are there.
func (c *Cluster) PutStatic(container, name string, segments ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := &object{at: time.Now(), header: http.Header{"Content-Type": {"application/octet-stream"}}}
	for _, path := range segments {
		seg := c.find(path)
		made.static = append(made.static, Segment{Name: "/" + path, Bytes: int64(len(seg.body)), Hash: hash(seg.body)})
	}
	c.containers[container][name] = made
}

// PutDynamic makes a dynamic large object of what begins with "container/prefix".
func (c *Cluster) PutDynamic(container, name, prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.containers[container][name] = &object{at: time.Now(), header: http.Header{"Content-Type": {"application/octet-stream"}}, dynamic: prefix}
}

// Put makes a plain object, as somebody else would.
func (c *Cluster) Put(container, name, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.containers[container][name] = &object{at: time.Now(), header: http.Header{"Content-Type": {"text/plain"}}, body: []byte(body)}
}

// Names lists a container.
func (c *Cluster) Names(container string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.containers[container]))
}

// find must be called with c.mu held.
func (c *Cluster) find(path string) *object {
	container, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return c.containers[container][name]
}

func hash(body []byte) string {
	sum := md5.Sum(body)
	return hex.EncodeToString(sum[:])
}

// store serves a container or an object.
func (c *Cluster) store(w http.ResponseWriter, r *http.Request) {
	container, name, isObject := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/"+Account+"/"), "/")
	c.mu.Lock()
	objects, ok := c.containers[container]
	c.mu.Unlock()
	switch {
	case !ok:
		discard(r)
		http.Error(w, "no such container", http.StatusNotFound)
	case isObject && r.Method == http.MethodPut:
		c.put(w, r, objects, name)
	case isObject && r.Method == http.MethodDelete:
		c.delete(w, r, objects, name)
	case isObject:
		c.get(w, r, objects, name)
	case r.Method == http.MethodGet:
		c.list(w, r, objects)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (c *Cluster) put(w http.ResponseWriter, r *http.Request, objects map[string]*object, name string) {
	made := &object{header: make(http.Header)}
	total := 0
	for field, values := range r.Header {
		if strings.HasPrefix(field, metaPrefix) {
			total += len(field) - len(metaPrefix) + len(values[0])
			if len(values[0]) > 256 {
				total = 1 << 20
			}
			made.header[field] = values
		}
	}
	fake.Keep(made.header, r.Header)
	if total > 4096 || len(name) > 1024 {
		http.Error(w, "limits", http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(499)
		return
	}
	if want := r.Header.Get("Etag"); want != "" && want != hash(body) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	made.body, made.at = body, time.Now().Truncate(time.Second)
	c.mu.Lock()
	objects[name] = made
	c.mu.Unlock()
	w.Header()["Etag"] = []string{hash(body)}
	w.Header().Set("Last-Modified", made.at.UTC().Format(http.TimeFormat))
	w.WriteHeader(http.StatusCreated)
}

// whole is the content of an object and its ETag, or nil where a segment is missing. It must be called with c.mu held.
func (c *Cluster) whole(o *object) (body []byte, tag string) {
	switch {
	case o.static != nil:
		var tags strings.Builder
		for _, seg := range o.static {
			part := c.find(seg.Name)
			if part == nil {
				return nil, ""
			}
			body = append(body, part.body...)
			tags.WriteString(seg.Hash)
		}
		return body, `"` + hash([]byte(tags.String())) + `"`
	case o.dynamic != "":
		container, prefix, _ := strings.Cut(o.dynamic, "/")
		var tags strings.Builder
		for _, name := range slices.Sorted(maps.Keys(c.containers[container])) {
			if strings.HasPrefix(name, prefix) {
				part := c.containers[container][name].body
				body = append(body, part...)
				tags.WriteString(hash(part))
			}
		}
		return append([]byte{}, body...), `"` + hash([]byte(tags.String())) + `"`
	}
	return o.body, hash(o.body)
}

func (c *Cluster) get(w http.ResponseWriter, r *http.Request, objects map[string]*object, name string) {
	c.mu.Lock()
	o := objects[name]
	var body []byte
	var tag string
	if o != nil {
		body, tag = c.whole(o)
	}
	c.mu.Unlock()
	switch {
	case o == nil:
		http.Error(w, "no such object", http.StatusNotFound)
		return
	case o.static != nil && r.URL.Query().Get("multipart-manifest") == "get":
		fake.JSON(w, http.StatusOK, o.static)
		return
	case o.static != nil && tag == "":
		http.Error(w, "a segment is missing", http.StatusConflict)
		return
	}
	maps.Copy(w.Header(), o.header)
	w.Header()["Etag"] = []string{tag}
	if o.static != nil {
		w.Header().Set("X-Static-Large-Object", "True")
	}
	if o.dynamic != "" {
		w.Header().Set("X-Object-Manifest", o.dynamic)
	}
	if len(body) == 0 && r.Header.Get("Range") != "" {
		w.Header().Set("Content-Range", "bytes */0")
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		return
	}
	fake.Content(w, r, o.at, body)
}

func (c *Cluster) delete(w http.ResponseWriter, r *http.Request, objects map[string]*object, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := objects[name]
	if o == nil {
		http.Error(w, "no such object", http.StatusNotFound)
		return
	}
	if r.URL.Query().Get("multipart-manifest") == "delete" {
		for _, seg := range o.static {
			container, part, _ := strings.Cut(strings.TrimPrefix(seg.Name, "/"), "/")
			delete(c.containers[container], part)
		}
		delete(objects, name)
		fake.JSON(w, http.StatusOK, map[string]any{"Response Status": "200 OK", "Number Deleted": len(o.static) + 1, "Errors": [][]string{}})
		return
	}
	delete(objects, name)
	w.WriteHeader(http.StatusNoContent)
}

// list serves a page as JSON.
func (c *Cluster) list(w http.ResponseWriter, r *http.Request, objects map[string]*object) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit > 10000 {
		http.Error(w, "limit", http.StatusPreconditionFailed)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	page, last := []any{}, ""
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if !strings.HasPrefix(name, q.Get("prefix")) || name <= q.Get("marker") {
			continue
		}
		if len(page) == limit {
			break
		}
		if d := q.Get("delimiter"); d != "" {
			if i := strings.Index(name[len(q.Get("prefix")):], d); i >= 0 {
				sub := name[:len(q.Get("prefix"))+i+len(d)]
				if sub != last && sub > q.Get("marker") {
					page = append(page, map[string]any{"subdir": sub})
				}
				last = sub
				continue
			}
		}
		page = append(page, c.listed(name, objects[name]))
	}
	text, _ := json.Marshal(page)
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(text)
}

func (c *Cluster) listed(name string, o *object) map[string]any {
	size := len(o.body)
	for _, seg := range o.static {
		size += int(seg.Bytes)
	}
	return map[string]any{
		"name": name, "bytes": size, "hash": hash(o.body), "content_type": o.header.Get("Content-Type"),
		"last_modified": fmt.Sprintf("%s000", o.at.UTC().Format("2006-01-02T15:04:05.000")),
	}
}
