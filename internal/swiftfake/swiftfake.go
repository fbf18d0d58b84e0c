// Package swiftfake is a small Swift cluster in memory, for tests: the identity services of versions 1, 2 (Rackspace's form of it
// included) and 3, containers, objects, static and dynamic large ones, and the management of Rackspace's CDN. It does what the vendors'
// documents say of the requests that swiftstore makes, no more; what the real Swift does is tested against the real Swift.
package swiftfake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/fake"
)

// The one account there is.
const (
	User    = "tester"
	Key     = "0123456789abcdef0123456789abcdef"
	Account = "AUTH_test"
	Region  = "LON"
)

// Cluster is a cluster with its identity service. It is safe for concurrent use.
type Cluster struct {
	fake.Server

	mu         sync.Mutex
	tokens     map[string]int // calls left, -1 for ever
	issued     int
	calls      int           // that a new token is good for, 0 for ever
	life       time.Duration // of a new token
	locked     bool
	fail       func(*http.Request) int
	containers map[string]map[string]*object
	cdn        map[string]*published
	purged     []string
}

// New starts a cluster with containers, until the test ends.
func New(tb testing.TB, containers ...string) *Cluster {
	tb.Helper()
	c := &Cluster{
		tokens: make(map[string]int), life: 24 * time.Hour,
		containers: make(map[string]map[string]*object), cdn: make(map[string]*published),
	}
	for _, name := range containers {
		c.containers[name] = make(map[string]*object)
	}
	c.Listen(tb, c)
	return c
}

// AddContainer makes a container.
func (c *Cluster) AddContainer(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.containers[name] = make(map[string]*object)
}

// ExpireAfter makes tokens that are issued from now on good for so many requests.
func (c *Cluster) ExpireAfter(calls int) { fake.Set(&c.mu, &c.calls, calls) }

// ExpireAll ends all tokens that were issued.
func (c *Cluster) ExpireAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.tokens)
}

// Life is what the service says how long tokens live.
func (c *Cluster) Life(d time.Duration) { fake.Set(&c.mu, &c.life, d) }

// Lock makes the identity service refuse the key, or take it again.
func (c *Cluster) Lock(locked bool) { fake.Set(&c.mu, &c.locked, locked) }

// Fail answers requests to the storage for which f gives a status with that; nil ends it.
func (c *Cluster) Fail(f func(*http.Request) int) { fake.Set(&c.mu, &c.fail, f) }

// Logins is the number of tokens issued.
func (c *Cluster) Logins() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.issued
}

// ServeHTTP implements http.Handler.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == "/auth/v1.0":
		c.version1(w, r)
	case path == "/v2.0/tokens":
		c.version2(w, r)
	case path == "/v3/auth/tokens":
		c.version3(w, r)
	case strings.HasPrefix(path, "/v1/"+Account), strings.HasPrefix(path, "/cdn/"+Account):
		c.Note(r)
		c.mu.Lock()
		ok, status := c.admits(r.Header.Get("X-Auth-Token")), 0
		if ok && c.fail != nil {
			status = c.fail(r)
		}
		c.mu.Unlock()
		switch {
		case !ok:
			http.Error(w, "token", http.StatusUnauthorized)
		case status != 0:
			http.Error(w, "as the test wants it", status)
		case strings.HasPrefix(path, "/cdn/"):
			c.manage(w, r)
		default:
			c.store(w, r)
		}
	default:
		http.NotFound(w, r)
	}
}

// admits must be called with c.mu held.
func (c *Cluster) admits(token string) bool {
	left, ok := c.tokens[token]
	switch {
	case !ok, left == 0:
		return false
	case left > 0:
		c.tokens[token] = left - 1
	}
	return true
}

// issue makes a token, if user and key are right.
func (c *Cluster) issue(user, key string) (token string, life time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if user != User || key != Key || c.locked {
		return "", 0, false
	}
	c.issued++
	token = fmt.Sprintf("token-%d", c.issued)
	c.tokens[token] = -1
	if c.calls > 0 {
		c.tokens[token] = c.calls
	}
	return token, c.life, true
}

func (c *Cluster) version1(w http.ResponseWriter, r *http.Request) {
	token, life, ok := c.issue(strings.TrimPrefix(r.Header.Get("X-Auth-User"), "test:"), r.Header.Get("X-Auth-Key"))
	if !ok {
		refuse(w, r.Header.Get("X-Auth-Key"))
		return
	}
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("X-Auth-Token-Expires", fmt.Sprint(int(life.Seconds())))
	w.Header().Set("X-Storage-Url", c.URL+"/v1/"+Account)
	w.Header().Set("X-Cdn-Management-Url", c.URL+"/cdn/"+Account)
}

// refuse says no, and repeats the key as some services do.
func refuse(w http.ResponseWriter, key string) {
	http.Error(w, "no such user and key: "+key, http.StatusUnauthorized)
}

func (c *Cluster) version2(w http.ResponseWriter, r *http.Request) {
	type credentials struct {
		User     string `json:"username"`
		Password string `json:"password"`
		APIKey   string `json:"apiKey"`
	}
	var q struct {
		Auth struct {
			Password *credentials `json:"passwordCredentials"`
			APIKey   *credentials `json:"RAX-KSKEY:apiKeyCredentials"`
		} `json:"auth"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	given := credentials{}
	if q.Auth.APIKey != nil {
		given = *q.Auth.APIKey
	} else if q.Auth.Password != nil {
		given = *q.Auth.Password
	}
	token, life, ok := c.issue(given.User, given.APIKey+given.Password)
	if !ok {
		refuse(w, given.APIKey)
		return
	}
	endpoints := func(base string) (all []map[string]string) {
		for _, region := range []string{Region, "DFW"} {
			at := base
			if region != Region {
				at = "http://192.0.2.1/" // nobody is there
			}
			all = append(all, map[string]string{"region": region, "publicURL": at})
		}
		return all
	}
	fake.JSON(w, http.StatusOK, map[string]any{"access": map[string]any{
		"token": map[string]any{"id": token, "expires": time.Now().Add(life).UTC().Format(time.RFC3339)},
		"user":  map[string]any{"RAX-AUTH:defaultRegion": Region},
		"serviceCatalog": []any{
			map[string]any{"type": "compute", "endpoints": endpoints(c.URL + "/none")},
			map[string]any{"type": "object-store", "endpoints": endpoints(c.URL + "/v1/" + Account)},
			map[string]any{"type": "rax:object-cdn", "endpoints": endpoints(c.URL + "/cdn/" + Account)},
		},
	}})
}

func (c *Cluster) version3(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Auth struct {
			Identity struct {
				Password struct {
					User struct {
						Name, Password string
						Domain         struct{ Name string }
					}
				}
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	user := q.Auth.Identity.Password.User
	token, life, ok := c.issue(user.Name, user.Password)
	if !ok || user.Domain.Name != "Default" {
		refuse(w, user.Password)
		return
	}
	w.Header().Set("X-Subject-Token", token)
	fake.JSON(w, http.StatusCreated, map[string]any{"token": map[string]any{
		"expires_at": time.Now().Add(life).UTC().Format(time.RFC3339),
		"catalog": []any{map[string]any{"type": "object-store", "endpoints": []any{
			map[string]any{"region": Region, "interface": "public", "url": c.URL + "/v1/" + Account},
		}}},
	}})
}

// discard reads what is left of a request.
func discard(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
