package muxcore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// repairWorkers is how many keys a repair works on at a time.
const repairWorkers = 4

// ErrRepairRefused is why a repair that was to delete what the truth does not hold has done nothing: the truth is empty,
// or more than a tenth of the keys would go.
var ErrRepairRefused = errors.New("repair refused")

// RepairOptions say how far a [Mux.Repair] goes.
type RepairOptions struct {
	// Prefix begins the keys that are repaired. "": all, those of Caddy's own storage included.
	Prefix string

	// Truth is the backend, dotted through nested muxes, whose copies the others get. "": that of the mode, the origin
	// in shield, else the newest copy of each key.
	Truth string

	// Delete removes what the truth does not hold. It refuses if the truth is empty or more than a tenth of the keys
	// would go, unless Force is set. What the journal holds as deleted is removed in any case.
	Delete bool
	Force  bool

	// Deep reads the bytes of every copy, so that copies of one length without a digest are told apart, and that one
	// whose bytes have rotted is replaced.
	Deep bool

	// DryRun tells what would be done and does nothing.
	DryRun bool

	// OnKey, if set, is told of each key that was compared, never at the same time, but on another goroutine.
	OnKey func(key string)
}

// RepairAction is what a repair does with a copy.
type RepairAction string

// The actions.
const (
	RepairCopy   RepairAction = "copy"   // from another backend
	RepairDelete RepairAction = "delete" // here
	RepairKeep   RepairAction = "keep"   // as it is, although it differs: it is read-only, or extra and not to be deleted
)

// RepairStep is one thing that a repair has done, or with an error could not do.
type RepairStep struct {
	Key     string       `json:"key"`
	Action  RepairAction `json:"action"`
	Backend string       `json:"backend"`        // whose copy it is about, dotted
	From    string       `json:"from,omitempty"` // where it was copied from, dotted
	State   CopyState    `json:"state"`          // that the copy was in
	Size    int64        `json:"size,omitempty"` // bytes copied
}

// Repair makes the backends agree: those that lack a key of the truth, or hold something else, get a copy, attributes and
// identity included. Read-only backends stay as they are. It compares as [Mux.Verify] does and may run while the tree is
// in use: each copy is committed in its key's turn, and only if neither it nor its source has changed since they were
// looked at. It works on a few keys at a time, so steps come in no order.
//
// An error with a step says why that was not done. One without a step is about a backend that could not be asked, and is
// left alone from there on, or about the whole, which has ended then: [ErrRepairRefused] before anything was done, an
// unknown truth, the end of ctx. Breaking off the loop ends the repair; what is under way is done whole or not at all.
func (m *Mux) Repair(ctx context.Context, opts RepairOptions) iter.Seq2[RepairStep, error] {
	return func(yield func(RepairStep, error) bool) {
		c, err := m.newComparison(opts.Truth, opts.Deep)
		if err == nil {
			err = CheckPrefix(opts.Prefix)
		}
		r := &repairer{c: c, opts: opts, results: make(chan stepResult)}
		if err == nil && opts.Delete && !opts.Force {
			err = r.count(ctx)
		}
		if err != nil {
			yield(RepairStep{}, err)
			return
		}
		r.run(ctx, yield)
	}
}

// repairer is one repair under way.
type repairer struct {
	c       *comparison
	opts    RepairOptions
	results chan stepResult
	room    atomic.Int64 // how much more may be deleted
}

// stepResult is what the loop yields.
type stepResult struct {
	step RepairStep
	err  error
}

// count refuses a repair that would delete too much.
func (r *repairer) count(ctx context.Context) error {
	keys, extra, held := int64(0), int64(0), false
	var lost error
	fault := func(err error) bool {
		if e, ok := errors.AsType[*Error](err); ok && !errors.Is(err, ErrUnsupported) && r.c.truth.decider().find(e.Backend) != nil {
			lost = err
		}
		return lost == nil
	}
	err := r.c.rows(ctx, r.opts.Prefix, fault, func(row *row) bool {
		v := judge(row, r.c.truth, false)
		keys++
		held = held || v.source != nil
		if v.decided && v.source == nil && !r.c.deleted(row.key) {
			extra++
		}
		return true
	})
	switch {
	case err != nil:
		return err
	case lost != nil:
		return lost
	case extra > 0 && !held:
		return fmt.Errorf("%w: the truth is empty, and all %d keys would go", ErrRepairRefused, extra)
	case extra*maxDeleted > keys:
		return fmt.Errorf("%w: %d of %d keys would go, more than a tenth", ErrRepairRefused, extra, keys)
	}
	r.room.Store(keys / maxDeleted)
	return nil
}

// maxDeleted is the part of the keys that a repair deletes at most, one in so many.
const maxDeleted = 10

// run compares, repairs and yields, each on goroutines of its own, and returns when all have ended.
func (r *repairer) run(ctx context.Context, yield func(RepairStep, error) bool) {
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	full := r.opts.Prefix == "" && !r.opts.DryRun
	if full {
		r.c.top.compare()
	}
	rows := make(chan *row)
	var work sync.WaitGroup
	work.Go(func() {
		defer close(rows)
		r.feed(own, rows)
	})
	for range repairWorkers {
		work.Go(func() {
			for row := range rows {
				r.mend(own, row)
			}
		})
	}
	go func() {
		work.Wait()
		close(r.results)
	}()
	stopped := false
	var failed []string
	for res := range r.results { // to its end, so that nobody waits for us
		if res.err != nil {
			failed = append(failed, res.blames())
		}
		if !stopped && ctx.Err() == nil && !yield(res.step, res.err) {
			stopped = true
			cancel()
		}
	}
	switch {
	case stopped:
	case ctx.Err() != nil:
		yield(RepairStep{}, context.Cause(ctx))
	case full:
		if err := r.c.top.compared(failed); err != nil {
			yield(RepairStep{}, fmt.Errorf("writing down what was compared: %w", err))
		}
	}
}

// blames names the backend that was not brought in line; "" may be any.
func (r *stepResult) blames() string {
	if r.step.Backend != "" {
		return r.step.Backend
	}
	if e, ok := errors.AsType[*Error](r.err); ok {
		return e.Backend
	}
	return ""
}

// compare has the journals of a tree know that all of it is going to be compared.
func (l *limb) compare() {
	if l.seat != nil {
		return
	}
	for _, part := range l.parts {
		part.compare()
	}
	if l.m.journal != nil {
		l.m.journal.Compare(l.members(nil))
	}
}

// compared has them know which backends were found to agree, or made to: those in which nothing failed.
func (l *limb) compared(failed []string) error {
	if l.seat != nil {
		return nil
	}
	var errs []error
	for _, part := range l.parts {
		errs = append(errs, part.compared(failed))
	}
	if l.m.journal != nil && l.m.journal.Pending() {
		errs = append(errs, l.m.journal.Compared(l.members(failed)...))
	}
	return errors.Join(errs...)
}

// members are the names of the backends of a mux, without those in which something failed.
func (l *limb) members(failed []string) []string {
	var names []string
	for _, part := range l.parts {
		if !slices.ContainsFunc(failed, func(name string) bool { return name == "" || part.find(name) != nil }) {
			names = append(names, part.name[strings.LastIndexByte(part.name, '.')+1:])
		}
	}
	return names
}

// feed compares, and hands on what needs work.
func (r *repairer) feed(ctx context.Context, rows chan<- *row) {
	fault := func(err error) bool {
		r.results <- stepResult{err: err}
		return ctx.Err() == nil
	}
	_ = r.c.rows(ctx, r.opts.Prefix, fault, func(row *row) bool { // that ctx has ended, run tells
		if r.opts.OnKey != nil {
			r.opts.OnKey(row.key)
		}
		v := judge(row, r.c.truth, false)
		if !v.differs() && !r.c.deep && !row.suspect() && !r.c.deleted(row.key) {
			return true
		}
		select {
		case rows <- row:
			return true
		case <-ctx.Done():
			return false
		}
	})
}
