package caddymux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

// commandTrees are the trees of a config, provisioned alone.
type commandTrees struct {
	app   *App
	doors []*door // of inline trees
	admin string  // address of a Caddy that may run with the config

	patience time.Duration // with the admin API

	running bool  // a Caddy answers there that has the opened tree
	unsure  error // why that is not known; then it may
	note    error // what else is to be said of who answers there

	parked []string // backends of the opened tree that live in another process, dotted
}

// silence has Caddy's own log say nothing from here on.
func silence() {
	_, _, _ = caddy.BufferedLog() // for what is logged while the log is replaced
}

var silent = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
	caddy.DefaultLoggerName: {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output": "discard"}`)}},
}}

// loadTrees provisions the trees of a config, and nothing else of it.
func loadTrees(file, adapter, address string) (*commandTrees, error) {
	silence()
	config, used, _, err := caddycmd.LoadConfig(file, adapter)
	if err != nil {
		return nil, err
	}
	if len(config) == 0 {
		return nil, errors.New("no config: name one by --config, or change to a folder with a Caddyfile")
	}
	var whole any
	if err := json.Unmarshal(config, &whole); err != nil {
		return nil, fmt.Errorf("config %s: %w", used, err)
	}
	named, inline, err := findTrees(whole)
	if err != nil {
		return nil, fmt.Errorf("config %s: %w", used, err)
	}
	if address, err = caddycmd.DetermineAdminAPIAddress(address, config, used, ""); err != nil {
		return nil, err
	}
	appJSON, err := json.Marshal(&App{Trees: named})
	if err != nil {
		return nil, err
	}
	ctx, err := caddy.ProvisionContext(&caddy.Config{Logging: silent, AppsRaw: caddy.ModuleMap{appID: appJSON}})
	if err != nil {
		return nil, err
	}
	app, err := appOf(ctx)
	if err != nil {
		return nil, err
	}
	all := &commandTrees{app: app, admin: address, patience: adminPatience}
	for _, one := range inline {
		d := new(door)
		if _, err := d.enter(ctx, app, "", one.name, one.Mux); err != nil {
			return nil, errors.Join(err, all.close())
		}
		all.doors = append(all.doors, d)
	}
	return all, nil
}

func (all *commandTrees) close() error {
	var errs []error
	for _, d := range all.doors {
		errs = append(errs, d.leave())
	}
	return errors.Join(append(errs, all.app.Cleanup())...)
}

// inlineTree is a tree that is written where it is used.
type inlineTree struct {
	name string
	Mux
}

// findTrees finds the trees of a config: those of the app, and wherever a module of ours has backends.
func findTrees(config any) (named map[string]*Mux, inline []inlineTree, err error) {
	whole, _ := config.(map[string]any)
	apps, _ := whole["apps"].(map[string]any)
	var app App
	if err := remarshal(apps[appID], &app); err != nil {
		return nil, nil, fmt.Errorf("app %s: %w", appID, err)
	}
	inline, err = inlineTrees(config)
	return app.Trees, inline, err
}

// inlineTrees walks the config.
func inlineTrees(value any) (found []inlineTree, err error) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			more, err := inlineTrees(one)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		}
	case map[string]any:
		if isOurs(v) {
			var one inlineTree
			if err := remarshal(v, &one.Mux); err != nil {
				return nil, fmt.Errorf("storage_mux: %w", err)
			}
			one.name, _ = v["name"].(string)
			return []inlineTree{one}, nil
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			more, err := inlineTrees(v[key])
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		}
	}
	return found, nil
}

// isOurs tells whether a module's config has a tree in it: a handler, a file system or the certificate storage.
func isOurs(v map[string]any) bool {
	backends, _ := v["backends"].([]any)
	return len(backends) > 0 && (v["handler"] == appID || v["backend"] == appID || v["module"] == appID)
}

// remarshal decodes a value of JSON anew.
func remarshal(from, into any) error {
	if from == nil {
		return nil
	}
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// open opens a tree. act says that it is to be read or written: then what lives in another process is out of service.
func (all *commandTrees) open(ctx context.Context, name string, act bool) (*tree, error) {
	known := all.app.all()
	names := make([]string, len(known))
	for i, t := range known {
		names[i] = t.name
	}
	switch i := slices.Index(names, name); {
	case len(known) == 0:
		return nil, errors.New("the config has no storage tree")
	case name == "" && len(known) > 1:
		return nil, fmt.Errorf("the config has several storage trees: choose one by --tree: %s", strings.Join(names, ", "))
	case name != "" && i < 0:
		return nil, fmt.Errorf("unknown storage tree %q, known are %s", name, strings.Join(names, ", "))
	default:
		t := known[max(i, 0)]
		return t, all.prepare(ctx, t, act)
	}
}

// prepare opens the tree, and has it know what its journals say.
func (all *commandTrees) prepare(ctx context.Context, t *tree, act bool) error {
	trees := append(t.root.usedTrees(), t) // each has its own journals
	for _, one := range trees {
		for _, dir := range one.root.journalDirs() {
			if err := journalOf(dir).Load(); act && err != nil && !errors.Is(err, journal.ErrLocked) {
				return err
			}
		}
	}
	for _, one := range trees {
		one.alone.Store(true)
	}
	if _, err := t.acquire(); err != nil { //nolint:contextcheck // a tree outlives whoever opens it
		return err
	}
	if !act {
		return nil
	}
	for _, one := range trees {
		running, err := all.runs(ctx, one)
		if ctx.Err() != nil {
			t.release()
			return context.Cause(ctx)
		}
		all.running, all.unsure = running, err // of t in the end
		for _, dir := range one.root.journalDirs() {
			handOver(journalOf(dir), one.name, running, func(method, uri string, body io.Reader) (*http.Response, error) {
				return all.ask(context.WithoutCancel(ctx), all.patience, method, uri, body) // what is done is told, whatever becomes of the command
			})
		}
	}
	if err := all.park(t, t.root, ""); err != nil { //nolint:contextcheck // nothing is in flight to wait for
		t.release()
		return err
	}
	return nil
}

// park takes the backends out of service that live in another process.
func (all *commandTrees) park(t *tree, b *branch, above string) error {
	for i := range b.members {
		one := &b.members[i]
		name := above + one.Name
		if inner := one.inner(); inner != nil {
			if err := all.park(t, inner, name+"."); err != nil {
				return err
			}
			continue
		}
		if lives, ok := one.module.(InProcess); ok && lives.InProcess() {
			all.parked = append(all.parked, name)
			if err := t.store.Drain(context.Background(), name); err != nil { // nothing is in flight
				return err
			}
		}
	}
	return nil
}

// leftOut tells whether an error is that a backend was taken out of service by park.
func (all *commandTrees) leftOut(err error) bool {
	e, ok := errors.AsType[*muxcore.Error](err)
	return ok && e.Code == muxcore.CodeBackendDraining && slices.Contains(all.parked, e.Backend)
}
