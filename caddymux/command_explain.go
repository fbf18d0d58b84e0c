package caddymux

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

func explainFlags(cmd *cobra.Command) {
	cmd.Flags().String("key", "", "Say who would be asked for this key")
	cmd.Flags().String("op", "get", "The operation: get, put or delete")
	cmd.Flags().StringSlice("down", nil, "Backends to take for down, nested ones dotted: a,eu.b")
}

// explained is a tree, and what it would do.
type explained struct {
	Tree     string             `json:"tree"`
	Op       string             `json:"op"`
	Key      string             `json:"key,omitempty"`
	Mode     muxcore.Mode       `json:"mode"`
	OnMiss   string             `json:"on_miss"`
	Code     muxcore.Code       `json:"code,omitempty"` // of the error that it ends with, whatever is asked
	Failure  string             `json:"failure,omitempty"`
	Backends []explainedBackend `json:"backends"`
}

// explainedBackend is one of its backends.
type explainedBackend struct {
	muxcore.Prospect
	Type         string       `json:"type"`
	Place        string       `json:"place,omitempty"`
	ReadOnly     bool         `json:"read_only,omitempty"`
	Backup       bool         `json:"backup,omitempty"`
	Weight       int          `json:"weight"`
	Capabilities capabilities `json:"capabilities"`
	Mux          *explained   `json:"mux,omitempty"` // in place of that of the prospect
}

// capabilities are what a backend can do.
type capabilities struct {
	Range            bool `json:"range"`
	List             bool `json:"list"`
	Write            bool `json:"write"`
	ConditionalWrite bool `json:"conditional_write"`
	Metadata         bool `json:"metadata"`
	Digests          bool `json:"digests"`
	Purge            bool `json:"purge"`
}

func runExplain(x *call) error {
	ops := map[string]muxcore.Op{"get": muxcore.OpGet, "put": muxcore.OpPut, "delete": muxcore.OpDelete}
	word := x.flag("op")
	op, ok := ops[word]
	if !ok {
		return fmt.Errorf("--op: must be get, put or delete, got %q", word)
	}
	if x.cmd.Flags().Changed("key") {
		if err := muxcore.CheckKey(x.flag("key")); err != nil {
			return err
		}
	}
	opts := muxcore.ExplainOptions{Op: op, Key: x.flag("key"), Down: flagOf(x.cmd.Flags().GetStringSlice, "down")}
	plan, err := x.tree.store.Explain(opts)
	if err != nil {
		return err
	}
	tree := explainBranch(x.tree.root, &plan)
	tree.Tree, tree.Op, tree.Key = x.tree.name, word, opts.Key
	if x.json {
		return x.line(tree)
	}
	if err := x.printf("%s: %s", tree.Tree, tree.words()); err != nil {
		return err
	}
	if err := x.draw(tree, ""); err != nil {
		return err
	}
	return x.outcome(tree)
}

// explainBranch puts together what the config says and what the core would do.
func explainBranch(b *branch, plan *muxcore.Explanation) *explained {
	t := &explained{Mode: plan.Mode, OnMiss: "stop", Code: plan.Code, Failure: plan.Failure, Backends: []explainedBackend{}}
	if b.set.OnMissNext || plan.Mode == muxcore.Mirror {
		t.OnMiss = "next"
	}
	for i := range b.members {
		one := &b.members[i]
		e := explainedBackend{Prospect: plan.Backends[i], Type: one.Type, ReadOnly: one.ReadOnly, Backup: one.Backup, Weight: 1}
		if one.Weight != nil {
			e.Weight = *one.Weight
		}
		if placed, ok := one.module.(Placed); ok {
			e.Place = placed.Place()
		}
		var can muxcore.Capabilities
		if inner := one.inner(); inner != nil {
			e.Mux = explainBranch(inner, plan.Backends[i].Mux)
			can = e.Mux.can()
		} else {
			can = muxcore.CapabilitiesOf(one.store)
		}
		e.Capabilities = capabilities{
			can.Range, can.List, can.Write, can.ConditionalWrite, can.Metadata, can.Digests, can.Purge,
		}
		t.Backends = append(t.Backends, e)
	}
	return t
}

// can is what a mux can do: what one of its backends can.
func (t *explained) can() (all muxcore.Capabilities) {
	for i := range t.Backends {
		c := &t.Backends[i].Capabilities
		all.Range, all.List, all.Write = all.Range || c.Range, all.List || c.List, all.Write || c.Write && !t.Backends[i].ReadOnly
		all.ConditionalWrite, all.Metadata = all.ConditionalWrite || c.ConditionalWrite, all.Metadata || c.Metadata
		all.Digests, all.Purge = all.Digests || c.Digests, all.Purge || c.Purge
	}
	return all
}

// words describes a mux.
func (t *explained) words() string {
	miss := "a missing key ends a read"
	if t.OnMiss == "next" {
		miss = "a missing key has the next asked"
		if t.Mode == muxcore.Mirror {
			miss = "a key is missing when all say so"
		}
	}
	return string(t.Mode) + ", " + miss
}

// draw draws the backends below a line.
func (x *call) draw(t *explained, indent string) error {
	for i := range t.Backends {
		one := &t.Backends[i]
		branch, below := "├─ ", "│  "
		if i == len(t.Backends)-1 {
			branch, below = "└─ ", "   "
		}
		if err := x.printf("%s%s", indent+branch, one.words()); err != nil {
			return err
		}
		if one.Mux != nil {
			if err := x.draw(one.Mux, indent+below); err != nil {
				return err
			}
		}
	}
	return nil
}

// words is a backend on one line.
func (e *explainedBackend) words() string {
	turn := "not asked"
	switch {
	case e.Turn == 1 && e.Share > 0 && e.Share < 1:
		turn = fmt.Sprintf("1st in %.0f %%", e.Share*100)
	case e.Turn > 0:
		turn = ordinal(e.Turn)
	}
	what := []string{e.Type}
	if e.Mux != nil {
		what = []string{e.Mux.words()}
	} else if e.Place != "" {
		what = append(what, e.Place)
	}
	if e.ReadOnly {
		what = append(what, "read_only")
	}
	if e.Backup {
		what = append(what, "backup")
	}
	line := fmt.Sprintf("%s (%s): %s: %s", e.Name, strings.Join(what, " "), turn, e.Why)
	if e.Mux != nil {
		return line
	}
	return line + " [" + e.Capabilities.words() + "]"
}

func ordinal(n int) string {
	switch {
	case n%100/10 != 1 && n%10 == 1:
		return fmt.Sprintf("%dst", n)
	case n%100/10 != 1 && n%10 == 2:
		return fmt.Sprintf("%dnd", n)
	case n%100/10 != 1 && n%10 == 3:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}

// words lists what a backend can.
func (c *capabilities) words() string {
	var words []string
	for _, one := range []struct {
		word string
		can  bool
	}{
		{"range", c.Range},
		{"list", c.List},
		{"write", c.Write},
		{"conditional write", c.ConditionalWrite},
		{"metadata", c.Metadata},
		{"digests", c.Digests},
		{"purge", c.Purge},
	} {
		if one.can {
			words = append(words, one.word)
		}
	}
	if len(words) == 0 {
		return "read"
	}
	return strings.Join(words, ", ")
}

// outcome says what it comes to where it can only fail.
func (x *call) outcome(t *explained) error {
	if t.Code == "" {
		return nil
	}
	return x.printf("%s fails: %s: %s", t.Op, string(t.Code), t.Failure)
}
