package storetest

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Harness says how a kind of store is tested. Only New is required.
type Harness struct {
	// New makes a store without objects. What it needs, it registers for clean-up on tb.
	New func(tb testing.TB) muxcore.Store

	// Seed puts an object into a store that cannot be written. Default: what reads and lists such a store is left out.
	Seed func(tb testing.TB, s muxcore.Store, key, body string)

	// TimeResolution is the step in which the store keeps modification times. Default: 1ns.
	TimeResolution time.Duration

	// FoldsNames says that keys which differ only in case or in Unicode normalisation may be one object, as in the
	// file systems of macOS and Windows. Default: false.
	FoldsNames bool

	// Gaps says that a read beside an overwrite may find no object, as in Swift of one replica: its server takes the older file away
	// while a reader that has seen its name is about to open it. Such a read is made again. Default: false.
	Gaps bool

	// Skip leaves checks out: the reason by the check's name, as [Checks] gives it. Default: none.
	Skip map[string]string

	// Quick limits what is not [Thorough] to these checks, as [Checks] names them: for a second run of a store that
	// differs from a first one in few respects. Default: all.
	Quick []string

	// LongList is how many objects are more than the store lists in one step. [Thorough] tests try 600. Default: 100.
	LongList int

	// Timeout is the longest that one check may take, on the busiest of machines. Default: 2m.
	Timeout time.Duration

	// Parallel runs the checks beside each other, for a store that spends its time waiting for a peer; New must then be
	// safe for concurrent use. Default: false.
	Parallel bool
}

// need is what a check needs of a store.
type need uint8

const (
	needWrite need = 1 << iota
	needList
	needConditional
	needMetadata
	needObjects // objects to read, however they got there
)

type check struct {
	name  string
	needs need
	run   func(p *probe)
}

// checks are all checks, in the order in which they run.
func checks() []check {
	return slices.Concat(keyChecks, readChecks, rangeChecks, conditionChecks, bodyChecks, writeChecks, metadataChecks,
		conditionalWriteChecks, concurrentChecks, contextChecks, listChecks)
}

// Checks names every check, for Harness.Skip.
func Checks() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// Beneath are checks for Harness.Quick in which a store that is below something, as a mux or a prefix, meets it in each
// kind of operation. What the store itself makes of keys, bodies and conditions is checked without that.
func Beneath() []string {
	return []string{
		"a failed read carries the contract's error", "the internal prefix holds objects", "keys that look alike are different objects",
		"objects of every size are read whole", "if-range decides between part and whole", "a short or long body changes nothing",
		"an overwrite replaces the whole object", "a deleted object is gone", "attributes come back as they were",
		"conditions of writes hold or change nothing", "one of many conditional deletes succeeds",
		"pages give each entry once", "what an entry says is true", "a list whose context ends is whole or ends in that error",
	}
}

// Times is how often to do what proves more the more often it is done: quick, or thorough if the tests are [Thorough].
func Times(quick, thorough int) int {
	if Thorough {
		return thorough
	}
	return quick
}

// Run runs the suite, each check as a subtest. What a store cannot do, by [muxcore.CapabilitiesOf], is skipped.
func Run(t *testing.T, h Harness) {
	t.Helper()
	names := Checks()
	for field, listed := range map[string][]string{"Skip": slices.Sorted(maps.Keys(h.Skip)), "Quick": h.Quick} {
		for _, name := range listed {
			if !slices.Contains(names, name) {
				t.Errorf("Harness.%s: no check is named %q", field, name)
			}
		}
	}
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if h.Parallel {
				t.Parallel()
			}
			if reason, ok := h.Skip[c.name]; ok {
				t.Skip(reason)
			}
			if !Thorough && h.Quick != nil && !slices.Contains(h.Quick, c.name) {
				t.Skip("left to tests that are thorough")
			}
			problems, skipped := examine(t, &h, c)
			if skipped != "" {
				t.Skip(skipped)
			}
			for _, problem := range problems {
				t.Error(problem)
			}
		})
	}
}

// stop ends a check that cannot go on.
type stop struct{}

// examine runs one check on a store of its own and gives what is wrong with it.
func examine(tb testing.TB, h *Harness, c check) (problems []string, skipped string) {
	tb.Helper()
	timeout := h.Timeout
	if timeout == 0 {
		timeout = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(tb.Context(), timeout)
	defer cancel()
	p := &probe{ctx: ctx, tb: tb, h: h, store: h.New(tb)}
	p.caps = muxcore.CapabilitiesOf(p.store)
	if lacks := p.lacks(c.needs); lacks != "" {
		return nil, "the store cannot: " + lacks
	}
	if c.needs&needWrite == 0 && !p.caps.Write && h.Seed == nil && c.needs&needObjects != 0 {
		return nil, "the store cannot be written, and Harness.Seed is not set"
	}
	done, late := make(chan struct{}), ""
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil && r != (stop{}) {
				p.errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		c.run(p)
	}()
	timer := time.NewTimer(timeout + time.Second)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		late = fmt.Sprintf("a call did not return within %v; does the store hold a lock while it yields, or while a body is open?", timeout)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	problems = slices.Clone(p.problems)
	if late != "" {
		problems = append(problems, late)
	}
	return problems, ""
}

// probe is a check under way: a store, and what was found wrong with it.
type probe struct {
	ctx   context.Context //nolint:containedctx // it lives exactly as long as the check
	tb    testing.TB
	h     *Harness
	store muxcore.Store
	caps  muxcore.Capabilities

	mu       sync.Mutex
	problems []string
	summed   string          // the body that was asked about last
	sums     muxcore.Digests // its digests
}

// lacks names what the store cannot do of what is needed.
func (p *probe) lacks(needs need) string {
	var lacks []string
	for _, n := range []struct {
		need need
		has  bool
		name string
	}{
		{needWrite, p.caps.Write, "write"},
		{needList, p.caps.List, "list"},
		{needConditional, p.caps.ConditionalWrite, "write conditionally"},
		{needMetadata, p.caps.Metadata, "hold metadata"},
	} {
		if needs&n.need != 0 && !n.has {
			lacks = append(lacks, n.name)
		}
	}
	return strings.Join(lacks, ", ")
}

// errorf reports a problem. It is safe for concurrent use.
func (p *probe) errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.problems) < 50 {
		p.problems = append(p.problems, fmt.Sprintf(format, args...))
	}
}

// fatalf reports a problem and ends the check. It must be called on the goroutine of the check.
func (p *probe) fatalf(format string, args ...any) {
	p.errorf(format, args...)
	panic(stop{})
}

// parallel runs f for 0 to n-1, each on a goroutine, and waits for all.
func (p *probe) parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil && r != (stop{}) {
					p.errorf("panic: %v\n%s", r, debug.Stack())
				}
			}()
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}
