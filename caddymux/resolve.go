package caddymux

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// branch is one mux of a config, checked and with its modules loaded: what a tree is built from.
type branch struct {
	name     string // of the tree; dotted for a nested mux
	set      muxcore.Settings
	members  []member
	journal  string          // directory; "" none
	byDoors  bool            // read repair only while a writable handler serves the tree
	scope    string          // of the journal: the dotted name in the tree
	resolved json.RawMessage // the config without placeholders, in a form that is equal for equal configs
}

// member is a backend of a branch.
type member struct {
	Backend
	module BackendType // nil for a mux
	nested *branch
	used   *used
	store  muxcore.Store // made of module

	canonical json.RawMessage // its config without placeholders, equal for equal configs
	raw       json.RawMessage // its config as it was given, if it was added at run time
}

// inner is the mux that the member is, nested or used; nil if it is none.
func (one *member) inner() *branch {
	if one.used != nil {
		return one.used.root
	}
	return one.nested
}

// timeout in place of the mux's.
func (one *member) timeout() time.Duration { return time.Duration(one.Timeout) }

// resolver makes branches of configs. app, which finds the named trees, is nil where there is no config.
type resolver struct {
	ctx  caddy.Context
	repl *caddy.Replacer
	app  *App
}

func newResolver(ctx caddy.Context, app *App) resolver {
	return resolver{ctx, caddy.NewReplacer(), app}
}

// tree makes the branch of a whole tree, and gives it its name.
func (r resolver) tree(name string, m Mux) (*branch, error) {
	name, err := replaceString(r.repl, "name", name, false)
	if err != nil {
		return nil, err
	}
	root, err := r.mux(m, 1)
	if err != nil {
		return nil, ofTree(name, err)
	}
	if name == "" {
		name = root.defaultName()
	}
	if err := checkName("tree", name); err != nil {
		return nil, err
	}
	root.rename(name)
	if err := root.placeJournals(defaultJournal(name), ""); err != nil {
		return nil, ofTree(name, err)
	}
	return root, nil
}

// ofTree says which tree an error is about, if it has a name by then.
func ofTree(name string, err error) error {
	if name == "" {
		return err
	}
	return fmt.Errorf("tree %q: %w", name, err)
}

// mux makes the branch of a mux in which depth muxes stand in a chain, this one included.
func (r resolver) mux(m Mux, depth int) (*branch, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	set, err := m.settings(r.repl)
	if err != nil {
		return nil, err
	}
	b := &branch{set: set, journal: m.Journal, byDoors: m.ReadRepair == ""}
	var shared []*Backend
	var canonical []json.RawMessage
	taken := make(map[string]bool)
	for i, raw := range m.Backends {
		one, err := r.backend(raw, depth)
		if err != nil {
			return nil, fmt.Errorf("backend %s: %w", nameOr(one.Name, i), err)
		}
		if err := checkUnique(one.Name, taken); err != nil {
			return nil, err
		}
		b.members = append(b.members, one)
		shared = append(shared, &one.Backend)
		canonical = append(canonical, one.canonical)
	}
	if err := checkMembers(set.Mode, set.WriteQuorum, shared); err != nil {
		return nil, err
	}
	m.Mode = string(set.Mode)
	m.Backends = canonical
	b.resolved, err = json.Marshal(m)
	return b, err
}

// nameOr names a backend in an error.
func nameOr(name string, i int) string {
	if name == "" {
		return fmt.Sprintf("%d", i+1)
	}
	return fmt.Sprintf("%q", name)
}

// backend makes a member of a backend's JSON.
func (r resolver) backend(raw json.RawMessage, depth int) (one member, err error) {
	var own map[string]json.RawMessage
	if one.Backend, own, err = splitBackend(raw); err != nil {
		return one, err
	}
	for field, value := range map[string]*string{"name": &one.Name, "health_key": &one.HealthKey} {
		if *value, err = replaceString(r.repl, field, *value, false); err != nil {
			return one, err
		}
	}
	if err := one.check(); err != nil {
		return one, err
	}
	if one.Type == muxType {
		return r.nested(one, own, depth)
	}
	kind, err := newBackendType(one.Type)
	if err != nil {
		return one, err
	}
	if err := replaceFields(r.repl, own, append(credentialsOf(kind), addressesOf(kind)...)); err != nil {
		return one, err
	}
	config, err := json.Marshal(own)
	if err != nil {
		return one, err
	}
	loaded, err := r.ctx.LoadModuleByID(backendNamespace+"."+one.Type, config)
	if err != nil {
		if named := strictjson.Decode(config, kind); named != nil { // Caddy does not say which field
			err = named
		}
		return one, err
	}
	one.module = loaded.(BackendType) // newBackendType has seen to that
	if use, ok := one.module.(*UseBackend); ok {
		if one.used, err = r.use(use.Tree, depth); err != nil {
			return one, err
		}
		own["of"] = one.used.canonical() // so that the tree is made anew when that one changes
	}
	if reader, ok := one.module.(FileReader); ok {
		if own["(files)"], err = contents(reader.ReadsFiles()); err != nil { // no option has such a name
			return one, err
		}
	}
	one.canonical, err = joinBackend(&one.Backend, own)
	return one, err
}

// contents tells apart what is in files. One that cannot be read is an error of whoever needs it.
func contents(files []string) (json.RawMessage, error) {
	sums := make(map[string]string)
	for _, name := range files {
		sums[name] = ""
		if text, err := os.ReadFile(name); err == nil {
			sum := sha256.Sum256(text)
			sums[name] = hex.EncodeToString(sum[:])
		}
	}
	return json.Marshal(sums)
}

func (r resolver) nested(one member, own map[string]json.RawMessage, depth int) (member, error) {
	config, err := json.Marshal(own)
	if err != nil {
		return one, err
	}
	var inner Mux
	if err := strictjson.Decode(config, &inner); err != nil {
		return one, err
	}
	if one.nested, err = r.mux(inner, depth+1); err != nil {
		return one, err
	}
	one.canonical, err = joinBackend(&one.Backend, one.nested.resolved)
	return one, err
}

// check holds for the shared options of a backend.
func (b *Backend) check() error {
	if err := checkName("backend", b.Name); err != nil {
		return err
	}
	if err := checkWeight(b.Name, b.Weight); err != nil {
		return err
	}
	if b.Timeout < 0 {
		return errors.New("timeout: must not be negative")
	}
	if b.HealthKey != "" {
		if err := muxcore.CheckKey(b.HealthKey); err != nil {
			return fieldError{"health_key", err}
		}
	}
	return nil
}

// defaultName is the first backend's name and a hash over what tells trees apart: the mode and the backends' names, types
// and first arguments. Other options do not change it.
func (b *branch) defaultName() string {
	sum := sha256.New()
	b.identify(sum)
	suffix := "-" + hex.EncodeToString(sum.Sum(nil)[:4])
	first := b.members[0].Name
	return first[:min(len(first), maxNameLength-len(suffix))] + suffix
}

func (b *branch) identify(w io.Writer) {
	_, _ = fmt.Fprintf(w, "%q(", b.set.Mode)
	for i := range b.members {
		one := &b.members[i]
		place := ""
		if placed, ok := one.module.(Placed); ok {
			place = placed.Place()
		}
		_, _ = fmt.Fprintf(w, "%q %q %q", one.Name, one.Type, place)
		if one.nested != nil {
			one.nested.identify(w)
		}
	}
	_, _ = fmt.Fprint(w, ")")
}

// rename gives the branch the name of its tree, and the branches in it dotted ones.
func (b *branch) rename(name string) {
	b.name, b.set.Name = name, name
	for i := range b.members {
		if nested := b.members[i].nested; nested != nil {
			nested.rename(name + "." + b.members[i].Name)
		}
	}
}

// hash tells configs apart.
func (b *branch) hash() string {
	sum := sha256.Sum256(b.resolved)
	return string(sum[:])
}

// replaceFields replaces the placeholders in all strings of a JSON object; in the needed ones none may evaluate to nothing.
func replaceFields(repl *caddy.Replacer, fields map[string]json.RawMessage, needed []string) error {
	needs := make(map[string]bool)
	for _, name := range needed {
		needs[name] = true
	}
	for name, raw := range fields {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		var value any
		if err := dec.Decode(&value); err != nil {
			return fieldError{name, err}
		}
		value, err := replaceValue(repl, name, value, needs[name])
		if err != nil {
			return err
		}
		if fields[name], err = json.Marshal(value); err != nil {
			return fieldError{name, err}
		}
	}
	return nil
}

func replaceValue(repl *caddy.Replacer, path string, value any, needed bool) (any, error) {
	var err error
	switch v := value.(type) {
	case string:
		return replaceString(repl, path, v, needed)
	case []any:
		for i := range v {
			if v[i], err = replaceValue(repl, path, v[i], needed); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range v {
			if v[key], err = replaceValue(repl, path+"."+key, v[key], needed); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// replaceString replaces the placeholders of a string when its config is provisioned. One that is unknown is an error,
// which names the field and not the value; in what is needed, as a credential is, also one that evaluates to nothing.
func replaceString(repl *caddy.Replacer, field, value string, needed bool) (string, error) {
	if !strings.Contains(value, "{") {
		return value, nil
	}
	out, err := repl.ReplaceFunc(value, func(variable string, found any) (any, error) {
		if _, known := repl.Get(variable); !known {
			return nil, fmt.Errorf("unknown placeholder {%s}; those of requests work in prefix, hide and index only", variable)
		}
		if needed && caddy.ToString(found) == "" {
			return nil, fmt.Errorf("{%s}: %w", variable, errEmptyPlaceholder)
		}
		return found, nil
	})
	if err != nil {
		return "", fieldError{field, err}
	}
	return out, nil
}

func credentialsOf(kind BackendType) []string {
	if c, ok := kind.(Credentialed); ok {
		return c.Credentials()
	}
	return nil
}

func addressesOf(kind BackendType) []string {
	if a, ok := kind.(Addressed); ok {
		return a.Addresses()
	}
	return nil
}
