package caddymux

import (
	"errors"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var (
	errNoSlash      = errors.New("path does not begin with a slash")
	errEncodedSlash = errors.New("encoded slash or backslash")
	errEncoding     = errors.New("malformed percent-encoding")
)

// keyOf is the path of a URL, decoded exactly once, without its first slash. It goes by the escaped form where there is
// one, in which an encoded slash can still be told from a slash.
func keyOf(u *url.URL) (string, error) {
	decoded := u.Path
	if u.RawPath != "" {
		escaped := u.EscapedPath()
		if hasEncodedSlash(escaped) {
			return "", badKey(u.Path, errEncodedSlash)
		}
		var err error
		if decoded, err = url.PathUnescape(escaped); err != nil {
			return "", badKey(u.Path, errEncoding)
		}
	}
	if decoded == "" {
		return "", nil // the absolute form without a path means the root
	}
	if !strings.HasPrefix(decoded, "/") {
		return "", badKey(decoded, errNoSlash)
	}
	return decoded[1:], nil
}

func hasEncodedSlash(escaped string) bool {
	for {
		i := strings.IndexByte(escaped, '%')
		if i < 0 || i+2 >= len(escaped) {
			return false
		}
		code := strings.ToLower(escaped[i+1 : i+3])
		if code == "2f" || code == "5c" {
			return true
		}
		escaped = escaped[i+3:]
	}
}

func badKey(key string, why error) error {
	return &muxcore.Error{Code: muxcore.CodeInvalidKey, Key: key, Err: why}
}

// prefix is what the handler puts before every key: "" or something that ends in a slash.
func (x *exchange) prefix() (string, error) {
	p := x.h.Prefix
	if p == "" {
		return "", nil
	}
	if hasPlaceholder(p) {
		var err error
		p, err = x.repl.ReplaceFunc(p, func(variable string, value any) (any, error) {
			if strings.Trim(caddy.ToString(value), "/") == "" {
				return nil, fieldError{"prefix: {" + variable + "}", errEmptyPlaceholder}
			}
			return value, nil
		})
		if err != nil {
			return "", badKey("", err)
		}
	}
	if p = strings.Trim(p, "/"); p == "" {
		return "", nil
	}
	return p + "/", nil
}

// indexFiles are the files to try for a path that ends in a slash.
func (x *exchange) indexFiles() []string {
	if !slices.ContainsFunc(x.h.Index, hasPlaceholder) {
		return x.h.Index
	}
	files := make([]string, 0, len(x.h.Index))
	for _, name := range x.h.Index {
		if name = x.repl.ReplaceAll(name, ""); name != "" {
			files = append(files, name)
		}
	}
	return files
}

// hideList decides which keys are not there.
type hideList struct {
	segments []string // globs for one segment
	keys     []string // globs for the first segments of a key
	dynamic  []string // patterns with placeholders
	roots    []string // folders of the file backends
}

// newHideList sorts patterns; those without placeholders are prepared.
func newHideList(patterns, roots []string) (hideList, error) {
	list := hideList{roots: roots}
	for _, pattern := range patterns {
		if pattern == "" {
			return list, errors.New("hide: empty pattern")
		}
		if hasPlaceholder(pattern) {
			list.dynamic = append(list.dynamic, pattern)
			continue
		}
		if _, err := path.Match(filepath.ToSlash(pattern), ""); err != nil {
			return list, fieldError{"hide: " + pattern, err}
		}
		list.add(pattern)
	}
	return list, nil
}

// add takes a pattern as file_server does: without a separator it is one segment, else a path. A path counts from the
// root of the keys; as a path of the file system, also where it lies below the root of a file backend.
func (l *hideList) add(pattern string) {
	slashed := filepath.ToSlash(pattern)
	if !strings.Contains(slashed, "/") {
		l.segments = append(l.segments, slashed)
		return
	}
	if !strings.HasPrefix(slashed, "./") && !strings.HasPrefix(slashed, "../") {
		l.keys = append(l.keys, strings.Trim(slashed, "/"))
	}
	file, err := caddy.FastAbs(pattern)
	if err != nil {
		return
	}
	for _, root := range l.roots {
		for _, form := range [][2]string{{root, file}, {resolved(root), resolved(file)}} {
			rel, err := filepath.Rel(form[0], form[1])
			rel = filepath.ToSlash(rel)
			if err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../") && !slices.Contains(l.keys, rel) {
				l.keys = append(l.keys, rel)
			}
		}
	}
}

// resolved follows symlinks as far as the path exists.
func resolved(name string) string {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	return name
}

func (l *hideList) empty() bool {
	return len(l.segments) == 0 && len(l.keys) == 0 && len(l.dynamic) == 0
}

// hides tells whether the key, a whole one with the handler's prefix, is hidden.
func (l *hideList) hides(key string, repl *caddy.Replacer) bool {
	if l.empty() {
		return false
	}
	if l.matches(key) {
		return true
	}
	if len(l.dynamic) == 0 {
		return false
	}
	now := hideList{roots: l.roots}
	for _, pattern := range l.dynamic {
		if pattern = repl.ReplaceAll(pattern, ""); pattern != "" {
			now.add(pattern)
		}
	}
	return now.matches(key)
}

func (l *hideList) matches(key string) bool {
	key = strings.TrimSuffix(key, "/") // of a rolled-up prefix
	for _, pattern := range l.keys {
		head := firstSegments(key, strings.Count(pattern, "/")+1)
		if ok, _ := path.Match(pattern, head); ok || head == pattern {
			return true
		}
	}
	if len(l.segments) == 0 {
		return false
	}
	for segment := range strings.SplitSeq(key, "/") {
		for _, pattern := range l.segments {
			if ok, _ := path.Match(pattern, segment); ok {
				return true
			}
		}
	}
	return false
}

// firstSegments is the beginning of key that has n segments.
func firstSegments(key string, n int) string {
	for i := range len(key) {
		if key[i] == '/' {
			if n--; n == 0 {
				return key[:i]
			}
		}
	}
	return key
}
