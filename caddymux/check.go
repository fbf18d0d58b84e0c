package caddymux

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// maxNameLength is the longest name of a tree or a backend.
const maxNameLength = 64

// The checks of this file hold for Caddyfile and JSON alike. Those of single words run where the word stands, so that
// the error can name its line; the others run over a mux as a whole.

// checkName tells whether name can name a tree or a backend.
func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: name is missing", what)
	case len(name) > maxNameLength, strings.ContainsFunc(name, func(r rune) bool { return !nameRune(r) }):
		return fmt.Errorf("%s: name %q: must be 1 to %d letters, digits, _ and -", what, name, maxNameLength)
	}
	if mode, err := muxcore.ParseMode(name); err == nil {
		return fmt.Errorf("%s: name %q: is the mode %s, choose another name", what, name, mode)
	}
	return nil
}

// checkWeight tells whether weight is one.
func checkWeight(backend string, weight *int) error {
	switch {
	case weight == nil:
		return nil
	case *weight < 0:
		return coded(muxcore.CodeInvalidWeight, "weight: must be >= 0, got %d (backend %q)", *weight, backend)
	case *weight > muxcore.MaxWeight:
		return coded(muxcore.CodeInvalidWeight, "weight: must be at most %d, got %d (backend %q)", muxcore.MaxWeight, *weight, backend)
	}
	return nil
}

// checkUnique tells whether name is new among the backends of one mux, and makes it known.
func checkUnique(name string, taken map[string]bool) error {
	if taken[name] {
		return coded(muxcore.CodeBackendNameConflict, "two backends named %q", name)
	}
	taken[name] = true
	return nil
}

// checkDepth tells whether one more mux may stand in a chain of depth muxes.
func checkDepth(depth int) error {
	if depth > muxcore.MaxDepth {
		return coded(muxcore.CodeRecursionDepthExceeded, "more than %d muxes in a chain", muxcore.MaxDepth)
	}
	return nil
}

// checkAlone tells whether nothing says what a tree is, where one is used by its name.
func checkAlone(name string, m *Mux) error {
	if name != "" || !reflect.ValueOf(*m).IsZero() {
		return errors.New("use: serves a tree that is declared elsewhere: no name, mode, location, backend or option of a tree may stand beside it")
	}
	return nil
}

// checkWord tells whether word is one of those that an option knows.
func checkWord(option, word string, known ...string) error {
	if word == "" || slices.Contains(known, word) {
		return nil
	}
	return fmt.Errorf("%s: unknown word %q, known are %s", option, word, strings.Join(known, ", "))
}

// quorumOf reads a write quorum.
func quorumOf(word string) (muxcore.Quorum, error) {
	switch word {
	case "":
		return 0, nil
	case "majority":
		return muxcore.QuorumMajority, nil
	case "all":
		return muxcore.QuorumAll, nil
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("write_quorum: must be a number >= 1, majority or all, got %q", word)
	}
	return muxcore.Quorum(n), nil
}

var errQuorum = errors.New("is more than there are backends")

// checkMembers holds for the backends of a mux as a whole.
func checkMembers(mode muxcore.Mode, quorum muxcore.Quorum, members []*Backend) error {
	weighted := func(b *Backend) bool { return b.Weight != nil }
	chosen := func(b *Backend) bool { return b.Weight == nil || *b.Weight > 0 }
	switch {
	case mode == muxcore.Shield && (len(members) == 0 || members[0].Backup):
		return coded(muxcore.CodeMirrorOriginRequired, "shield has no origin: it is the first backend, which must be there and no backup")
	case len(members) == 0:
		return coded(muxcore.CodeBackendNotFound, "no backend")
	case int(quorum) > len(members):
		return fmt.Errorf("write_quorum: %d %w, %d", quorum, errQuorum, len(members))
	case mode == muxcore.Weighted && !slices.ContainsFunc(members, weighted):
		return coded(muxcore.CodeWeightedRequiresWeights, "weighted, and no backend has a weight")
	case mode == muxcore.Weighted && !slices.ContainsFunc(members, chosen):
		return coded(muxcore.CodeWeightedRequiresWeights, "weighted, and all weights are 0")
	}
	return nil
}

// strays tells whether a write to a mux may go where a read of the key does not look.
func strays(set *muxcore.Settings) bool {
	switch set.Mode {
	case muxcore.RoundRobin, muxcore.Weighted, muxcore.StickyByKey:
		return !set.OnMissNext
	default:
		return false
	}
}

// coded makes a load error that carries one of the codes.
func coded(code muxcore.Code, format string, args ...any) error {
	return &muxcore.Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// hasPlaceholder tells whether s must be looked at again once its placeholders are replaced.
func hasPlaceholder(s string) bool {
	open := strings.IndexByte(s, '{')
	return open >= 0 && strings.IndexByte(s[open:], '}') > 0
}

// errEmptyPlaceholder is why a placeholder in a credential, in an address, or in a prefix, is refused.
var errEmptyPlaceholder = errors.New("placeholder evaluates to nothing")
