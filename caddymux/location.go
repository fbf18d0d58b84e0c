package caddymux

import (
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// locate turns a location into a module of the type that knows its form.
func locate(location string) (BackendType, error) {
	scheme := schemeOf(location)
	var forms []string
	for _, info := range caddy.GetModules(backendNamespace) {
		module, ok := info.New().(BackendType)
		if !ok {
			continue
		}
		locator, ok := module.(Locator)
		if !ok {
			continue
		}
		for _, s := range locator.Schemes() {
			if s == scheme && (s != "" || isPath(location)) {
				return module, locator.UnmarshalLocation(location)
			}
			if s != "" {
				forms = append(forms, s+":")
			}
		}
	}
	shown := strconv.Quote(location)
	if strings.Contains(location, "@") {
		shown = "this word" // there may be a password in it
	}
	return nil, fmt.Errorf("%s is neither a mode (%s) nor a location, which begins with /, ./, ../ or one of %s",
		shown, modeList(), strings.Join(forms, " "))
}

// schemeOf is what stands before the colon of a location, "" if it is a path.
func schemeOf(location string) string {
	if isPath(location) {
		return ""
	}
	scheme, _, ok := strings.Cut(location, ":")
	if !ok {
		return ""
	}
	return strings.ToLower(scheme)
}

// isPath tells whether a location is a path of the file system.
func isPath(location string) bool {
	return strings.HasPrefix(location, "/") || strings.HasPrefix(location, "./") || strings.HasPrefix(location, "../") ||
		location == "." || location == ".."
}

// locationName names the backend at a location after its host and port, or the last segment of its path.
func locationName(location, kind string, taken map[string]bool) string {
	name := location
	if u, err := url.Parse(location); err == nil && !isPath(location) {
		switch {
		case u.Host != "":
			name = strings.Trim(u.Host, "[]")
		case u.Opaque != "":
			name = path.Base(u.Opaque)
		case u.Path != "":
			name = path.Base(u.Path)
		default:
			name = u.Scheme
		}
	} else {
		name = path.Base(name)
	}
	name = strings.Map(nameByte, name)
	name = name[:min(len(name), maxNameLength-len("-2"))]
	if strings.Trim(name, "-") == "" {
		name = kind
	}
	if _, err := muxcore.ParseMode(name); err == nil {
		name = kind + "-" + name
	}
	unique := name
	for n := 2; taken[unique]; n++ {
		unique = fmt.Sprintf("%.*s-%d", maxNameLength-4, name, n)
	}
	return unique
}

// nameByte keeps what a name may hold and makes all else a hyphen.
func nameByte(r rune) rune {
	if nameRune(r) {
		return r
	}
	return '-'
}

func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

func modeList() string {
	var names []string
	for _, mode := range muxcore.Modes() {
		names = append(names, string(mode))
	}
	return strings.Join(names, ", ")
}
