package caddymux

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

// journals holds the journals of all trees, by directory: an old config and a new one, and requests that outlive both, have
// one between them, since only one can have the lock.
var journals = caddy.NewUsagePool()

// keptJournal is a journal while trees use it. Making one touches no disk.
type keptJournal struct {
	*journal.Journal
	health *healthFile // beside it
}

// Destruct implements caddy.Destructor.
func (k keptJournal) Destruct() error { return k.Close() }

// takeJournal takes part in the journal of a directory; giveJournal must follow.
func takeJournal(dir string) keptJournal {
	value, _, _ := journals.LoadOrNew(dir, func() (caddy.Destructor, error) { // making one never fails
		return keptJournal{journal.New(dir, journal.Settings{}), &healthFile{dir: dir}}, nil
	})
	return value.(keptJournal)
}

// journalOf is the journal of a directory that the tree has taken part in.
func journalOf(dir string) *journal.Journal {
	defer func() { _ = giveJournal(dir) }() // the tree's own part stays
	return takeJournal(dir).Journal
}

// healthOf is the file beside it.
func healthOf(dir string) *healthFile {
	defer func() { _ = giveJournal(dir) }()
	return takeJournal(dir).health
}

func giveJournal(dir string) error {
	_, err := journals.Delete(dir)
	return err
}

// journalOff is the word for no journal.
const journalOff = "off"

var (
	errJournalEmpty = errors.New("journal: must be a directory or off, got nothing")
	errJournalOn    = errors.New(`journal: must be a directory or off, got "on"; it is on without the option, and a folder of that name is ./on`)
)

// checkJournal refuses what is hardly meant to be a folder.
func checkJournal(dir string) error {
	if dir == "on" {
		return errJournalOn
	}
	return nil
}

// placeJournals gives every mux of the tree its part of a journal: of its own directory if it names one, else of that of the mux
// it is in. scope is the mux's dotted name in the tree.
func (b *branch) placeJournals(inherited, scope string) error {
	b.scope = scope
	switch b.journal {
	case journalOff:
		b.journal = ""
	case "":
		b.journal = inherited
	default:
		var err error
		if b.journal, err = filepath.Abs(b.journal); err != nil {
			return fieldError{"journal", err}
		}
	}
	for i := range b.members {
		nested := b.members[i].nested
		if nested == nil {
			continue
		}
		if err := nested.placeJournals(b.journal, joinName(scope, b.members[i].Name)); err != nil {
			return err
		}
	}
	return nil
}

// journalDirs lists the directories of the tree's journals, each once.
func (b *branch) journalDirs() []string {
	seen := make(map[string]bool)
	var dirs []string
	b.eachMux(func(one *branch) {
		if one.journal != "" && !seen[one.journal] {
			seen[one.journal] = true
			dirs = append(dirs, one.journal)
		}
	})
	return dirs
}

// eachMux calls f for the branch and every one in it.
func (b *branch) eachMux(f func(*branch)) {
	f(b)
	for i := range b.members {
		if nested := b.members[i].nested; nested != nil {
			nested.eachMux(f)
		}
	}
}

// defaultJournal is where the journal of a tree is unless its config says so.
func defaultJournal(tree string) string {
	return filepath.Join(caddy.AppDataDir(), "storage_mux", tree)
}

// shareJournals is placeJournals for what is added at run time to the mux of that dotted name: it can only have part in a
// journal that the tree has.
func (b *branch) shareJournals(root *branch, mux string) error {
	b.journal = root.journal
	for at, rest := root, mux; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, ".")
		i := slices.IndexFunc(at.members, func(one member) bool { return one.Name == name && one.nested != nil })
		if i < 0 {
			break // added at run time as well
		}
		at = at.members[i].nested
		b.journal = at.journal
	}
	if b.journal == "" {
		b.journal = journalOff
	}
	if err := b.placeJournals("", mux); err != nil {
		return err
	}
	for _, dir := range b.journalDirs() {
		if !slices.Contains(root.journalDirs(), dir) {
			return fmt.Errorf("journal: a mux that is added at run time has that of its tree, or none; got %s", dir)
		}
	}
	return nil
}
