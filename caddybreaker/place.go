package caddybreaker

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// place is where a handler without a path-id stands. Its name must not change
// with what else is in the Caddyfile, or a reload would give it the state of
// another path: so it is the site's first address and the handler's matcher, as
// in handler@example.com/api/*. Only handlers that have both in common are
// numbered.
type place struct{ site, matcher string }

// names are those given in one Caddyfile.
type names map[string]int

// name returns the path-id of the next handler at this place. No upstream can
// have it: an address holds no @.
func (p place) name(state map[string]any) string {
	given, ok := state[appName].(names)
	if !ok {
		given = make(names)
		state[appName] = given
	}
	id := "handler@" + p.site
	if p.isMatched() {
		id += p.matcher
	}
	given[id]++
	if n := given[id]; n > 1 {
		return fmt.Sprintf("%s-%d", id, n)
	}
	return id
}

// isMatched reports whether the first word is a matcher, and not the path-id.
func (p place) isMatched() bool {
	return strings.HasPrefix(p.matcher, "/") || strings.HasPrefix(p.matcher, "@")
}

// siteOf returns the first address of the site that h stands in. Caddy shows the
// site to directives of its own package only. Where it cannot be seen, handlers
// are told apart by their matchers alone.
func siteOf(h httpcaddyfile.Helper) string {
	block := reflect.ValueOf(h).FieldByName("parentBlock")
	if !block.IsValid() || block.Kind() != reflect.Struct {
		return ""
	}
	keys := block.FieldByName("Keys")
	if !keys.IsValid() || keys.Kind() != reflect.Slice || keys.Len() == 0 {
		return ""
	}
	key := keys.Index(0)
	if key.Kind() == reflect.Struct {
		key = key.FieldByName("Text")
	}
	if !key.IsValid() || key.Kind() != reflect.String {
		return ""
	}
	return key.String()
}
