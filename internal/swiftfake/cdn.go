package swiftfake

import (
	"net/http"
	"strings"
)

// published is a container at the CDN.
type published struct {
	on  bool
	ttl string
}

// PublicHost is where the CDN serves containers.
const PublicHost = "https://published.example"

// Purged are the objects that were purged, as container/name.
func (c *Cluster) Purged() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.purged...)
}

// TTL is how long the CDN keeps the objects of a container, "" where it is not published.
func (c *Cluster) TTL(container string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.cdn[container]; p != nil && p.on {
		return p.ttl
	}
	return ""
}

// manage serves the management of the CDN.
func (c *Cluster) manage(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/cdn/"+Account+"/")
	container, name, isObject := strings.Cut(path, "/")
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.cdn[container]
	switch {
	case r.Method == http.MethodPut && !isObject && p == nil:
		p = &published{ttl: "259200"}
		c.cdn[container] = p
		p.change(r)
		p.tell(w, container)
		w.WriteHeader(http.StatusCreated)
	case p == nil:
		http.Error(w, "not published", http.StatusNotFound)
	case r.Method == http.MethodPost && !isObject:
		p.change(r)
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodHead && !isObject:
		p.tell(w, container)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodDelete && isObject:
		c.purged = append(c.purged, container+"/"+name)
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "method", http.StatusMethodNotAllowed)
	}
}

func (p *published) change(r *http.Request) {
	if v := r.Header.Get("X-Cdn-Enabled"); v != "" {
		p.on = strings.EqualFold(v, "true")
	}
	if v := r.Header.Get("X-Ttl"); v != "" {
		p.ttl = v
	}
}

func (p *published) tell(w http.ResponseWriter, container string) {
	h := w.Header()
	h.Set("X-Cdn-Enabled", map[bool]string{true: "True", false: "False"}[p.on])
	h.Set("X-Ttl", p.ttl)
	h.Set("X-Cdn-Uri", strings.Replace(PublicHost, "https", "http", 1)+"/"+container)
	h.Set("X-Cdn-Ssl-Uri", PublicHost+"/"+container)
}
