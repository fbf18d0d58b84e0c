package muxcore

import (
	"context"
	"errors"
)

// mendTries is how often a key is looked at that keeps changing while it is repaired.
const mendTries = 5

// mending is the repair of one key under way.
type mending struct {
	r       *repairer
	row     *row
	deleted bool         // the journal holds the key as deleted
	rotten  map[int]Info // versions that proved rotten while they were copied, by seat
	again   bool         // something has changed meanwhile
	kept    []stepResult // told of when nothing changes any more
}

// mend brings what the backends hold at one key in line.
func (r *repairer) mend(ctx context.Context, row *row) {
	d := &mending{r: r, row: row, rotten: make(map[int]Info)}
	for range mendTries {
		d.look(ctx)
		d.act(ctx)
		if ctx.Err() != nil {
			return
		}
		if !d.again {
			for _, res := range d.kept {
				r.results <- res
			}
			return
		}
	}
	r.results <- stepResult{RepairStep{Key: row.key, Action: RepairKeep, State: CopyUnknown}, errChanged}
}

// look asks all backends anew. One that cannot be asked is left alone.
func (d *mending) look(ctx context.Context) {
	d.again, d.kept = false, nil
	for i, err := range d.r.c.look(ctx, d.row) {
		h := &d.row.at[i]
		if err != nil && ctx.Err() == nil {
			d.r.results <- stepResult{d.step(RepairKeep, h, CopyUnknown), err}
		}
		if was, ok := d.rotten[i]; ok && h.held && sameVersion(&was, &h.info) {
			h.corrupt = true
		}
	}
	d.deleted = d.r.c.deleted(d.row.key)
}

// act does what follows from what was seen.
func (d *mending) act(ctx context.Context) {
	v := judge(d.row, d.r.c.truth, false)
	for i := range d.row.at {
		h := &d.row.at[i]
		switch state := v.states[i]; {
		case ctx.Err() != nil || d.again:
			return
		case d.deleted:
			if h.held {
				d.delete(ctx, h, CopyExtra)
			}
		case state == CopyCorrupt && !v.decided:
			d.kept = append(d.kept, stepResult{d.step(RepairKeep, h, state), errCorrupt})
		case state == CopyAltered && !v.decided:
			d.kept = append(d.kept, stepResult{d.step(RepairKeep, h, state), errAltered})
		case !state.Differs():
		case state == CopyExtra && d.r.opts.Delete:
			d.delete(ctx, h, state)
		case state == CopyExtra:
			d.keep(h, state)
		default:
			d.copy(ctx, v.source, h, state)
		}
	}
	if from := v.source; d.r.c.truth.name != "" && from != nil && from.altered && from.seat.writable() && !d.deleted && !d.again && ctx.Err() == nil {
		d.copy(ctx, from, from, CopyAltered) // so that what is on record of it is what was named as the truth
	}
}

func (d *mending) step(action RepairAction, h *holding, state CopyState) RepairStep {
	return RepairStep{Key: d.row.key, Action: action, Backend: h.seat.name(), State: state}
}

// keep leaves a copy as it is.
func (d *mending) keep(h *holding, state CopyState) {
	d.kept = append(d.kept, stepResult{step: d.step(RepairKeep, h, state)})
}

// done takes in how a step ended. What has changed meanwhile is looked at again.
func (d *mending) done(ctx context.Context, step RepairStep, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errChanged), errors.Is(err, ErrPreconditionFailed):
		d.again = true
	default:
		d.r.results <- stepResult{step, err}
	}
}

// copy replaces what one backend holds by the copy of another.
func (d *mending) copy(ctx context.Context, from, to *holding, state CopyState) {
	if !to.seat.writable() {
		d.keep(to, state)
		return
	}
	step := d.step(RepairCopy, to, state)
	step.From, step.Size = from.seat.name(), max(0, from.info.Size)
	if d.r.opts.DryRun {
		d.done(ctx, step, nil)
		return
	}
	still := func(ctx context.Context, copied *Info) error {
		if d.r.c.deleted(d.row.key) {
			return errChanged
		}
		return errors.Join(unchanged(ctx, d.row.key, from.seat, copied, true), unchanged(ctx, d.row.key, to.seat, to.version(), true))
	}
	rules := copyRules{source: &from.info, target: to.guard(), force: true, still: still}
	rules.stored = func() { to.seat.m.madeGood(d.row.key, to.seat.b) }
	res, err := copyObject(ctx, d.row.key, from.seat, to.seat, rules)
	switch {
	case errors.Is(err, errCorrupt): // it must not win
		d.rotten[from.seat.index] = from.info
		d.again = true
		return
	case err == nil:
		step.Size = res.Size
		d.tell(OpPut, from, to)
	}
	d.done(ctx, step, err)
}

// delete removes a copy that should not be there.
func (d *mending) delete(ctx context.Context, h *holding, state CopyState) {
	if !h.seat.writable() {
		d.keep(h, state)
		return
	}
	step := d.step(RepairDelete, h, state)
	if d.r.opts.DryRun {
		d.done(ctx, step, nil)
		return
	}
	bounded := !d.deleted && !d.r.opts.Force
	if bounded && d.r.room.Add(-1) < 0 {
		d.r.room.Add(1)
		d.done(ctx, step, ErrRepairRefused)
		return
	}
	err := d.remove(ctx, h)
	switch {
	case err == nil:
		d.tell(OpDelete, nil, h)
	case bounded:
		d.r.room.Add(1)
	}
	d.done(ctx, step, err)
}

// remove deletes in the key's turn, if nothing has changed. What is gone already is no error.
func (d *mending) remove(ctx context.Context, h *holding) error {
	unlock, err := h.seat.lock(ctx, d.row.key)
	if err != nil {
		return err // the caller gave up
	}
	defer unlock()
	if err = d.mayDelete(ctx, h); err == nil {
		err = h.seat.remove(ctx, d.row.key, h.guard(), true)
	}
	if isMiss(err) {
		err = nil
	}
	if err == nil {
		h.seat.m.madeGood(d.row.key, h.seat.b)
	}
	return err
}

// mayDelete asks once more, in the key's turn.
func (d *mending) mayDelete(ctx context.Context, h *holding) error {
	if d.r.c.deleted(d.row.key) != d.deleted {
		return errChanged
	}
	var errs []error
	for i := range d.row.at {
		if other := &d.row.at[i]; !d.deleted && d.r.c.truth.decider().has(other.seat) {
			errs = append(errs, unchanged(ctx, d.row.key, other.seat, nil, true))
		}
	}
	return errors.Join(append(errs, unchanged(ctx, d.row.key, h.seat, h.version(), true))...)
}

// tell has observers know.
func (d *mending) tell(op Op, from, to *holding) {
	e := Event{Kind: EventRepaired, Op: op, Key: d.row.key, Name: to.seat.b.Name, Cause: CauseRepair}
	if from != nil {
		e.From = from.seat.name()
	}
	to.seat.m.emit(e)
}

// version is what the backend holds; nil: nothing.
func (h *holding) version() *Info {
	if h.held {
		return &h.info
	}
	return nil
}

// guard is the condition under which the holding is as it was seen, as far as its backend can decide one.
func (h *holding) guard() Conditions {
	switch {
	case !h.seat.b.abilities().ConditionalWrite:
	case !h.held:
		return Conditions{IfNoneMatch: "*"}
	case IsStrong(h.info.ETag):
		return Conditions{IfMatch: h.info.ETag}
	}
	return Conditions{}
}

// unchanged is errChanged if a backend does not hold the version given any more; nil is none. force asks it in a cooldown.
func unchanged(ctx context.Context, key string, s *seat, was *Info, force bool) error {
	is, err := s.stat(ctx, key, force)
	switch {
	case isMiss(err) && was == nil:
		return nil
	case isMiss(err), err == nil && (was == nil || !sameVersion(was, &is)):
		return errChanged
	}
	return err
}
