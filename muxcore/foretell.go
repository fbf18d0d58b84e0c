package muxcore

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// resort finds who is tried where nobody else can be asked, by [Settings.LastResort]: of those that are down the one due back first.
type resort struct {
	m     *Mux
	op    Op
	first *backend
	at    time.Time
}

// add takes in a backend that is down, or taken for down, which then has just failed for the first time.
func (r *resort) add(b *backend, taken bool) {
	hv := b.health(r.op).view()
	at := hv.until
	switch {
	case !r.m.set.LastResort || hv.trial || r.m.mode.origin && r.op.Writes():
		return
	case taken && !hv.down:
		at = r.m.set.Now().Add(r.m.set.Cooldown)
	}
	inOrder := r.m.mode.fanout && r.op.Writes() || r.op == OpDelete
	if r.first == nil || at.Before(r.at) || at.Equal(r.at) && r.first.Backup && !b.Backup && !inOrder {
		r.first, r.at = b, at
	}
}

// foretell says what the operation comes to, as far as that can be known before anybody is asked.
func (x *Explanation) foretell(m *Mux, v *view, opts *ExplainOptions, resort *resort) {
	if opts.Op.Writes() && x.refuses(m, v, opts) {
		return
	}
	if !x.asks() && resort.first != nil {
		x.set(resort.first, 1, 1, "the last resort, as nobody else can be asked: it is due back first")
	}
	if !x.asks() {
		x.fail(CodeAllBackendsDown, "none of its backends can be asked")
	}
	if opts.Op.Writes() {
		x.short(m, v, opts)
	} else if opts.Key != "" {
		x.unfit(m, v, opts)
	}
}

// fail has the operation fail before anybody is asked.
func (x *Explanation) fail(code Code, why string) {
	x.Code, x.Failure = code, why
	for i := range x.Backends {
		if one := &x.Backends[i]; one.Turn > 0 {
			one.Turn, one.Share, one.Why = 0, 0, "nobody is asked, as the operation fails"
		}
	}
}

// refuses tells whether a write is refused, and by which rule.
func (x *Explanation) refuses(m *Mux, v *view, opts *ExplainOptions) bool {
	origin := v.all[0]
	var unfit error
	if opts.Op == OpPut && opts.Key != "" {
		unfit = m.CheckKey(opts.Key)
	}
	switch {
	case !v.canWrite:
		x.fail(CodeReadOnly, "none of its backends can be written to")
	case m.mode.origin && !origin.writable():
		x.fail(CodeReadOnly, errOriginReadOnly.Error())
	case unfit != nil:
		x.fail(CodeOf(unfit), unfit.Error())
	case m.mode.origin && x.Backends[0].Turn == 0:
		hv := origin.health(opts.Op).view()
		if m.set.LastResort && !origin.drain.out() && !hv.trial && !x.Backends[0].Mux.fails() {
			x.set(origin, 1, 1, whyOrigin+"; it is tried as the last resort")
			return false
		}
		x.fail(CodeAllBackendsDown, "the origin cannot be asked")
	default:
		return false
	}
	return true
}

// short says whether a write that goes to all reaches too few.
func (x *Explanation) short(m *Mux, v *view, opts *ExplainOptions) {
	if opts.Op == OpPut && !m.mode.fanout || x.Code != "" {
		return
	}
	var lack []string
	for _, b := range v.writers {
		if i := slices.IndexFunc(x.Backends, func(one Prospect) bool { return one.Name == b.Name }); i >= 0 && x.Backends[i].Turn == 0 {
			lack = append(lack, b.Name)
		}
	}
	up, need := len(v.writers)-len(lack), m.quorumOf(opts.Op, len(v.writers))
	switch {
	case up < need && !m.set.LastResort:
		x.fail(CodeWriteFanoutPartial, fmt.Sprintf("write_quorum: %d backends are needed, %d are up", need, up))
	case up < need:
		x.Code, x.Failure = CodeWriteFanoutPartial, fmt.Sprintf("write_quorum: %d backends are needed, %d are written to", need, up)
	case m.set.FailPartialWrites && len(lack) > 0:
		x.Code, x.Failure = CodeWriteFanoutPartial, "partial_writes fail: it is missed by "+strings.Join(lack, ", ")
	}
}

// unfit says of who is asked, and can never hold the key, that this is no answer, and what it comes to where nobody else is asked.
func (x *Explanation) unfit(m *Mux, v *view, opts *ExplainOptions) {
	var no error
	unfits, fits := 0, 0
	for _, b := range v.reads.members {
		i := slices.IndexFunc(x.Backends, func(one Prospect) bool { return one.Name == b.Name })
		if i < 0 || x.Backends[i].Turn == 0 {
			continue
		}
		err := CheckKeyOf(b.Store, opts.Key)
		if err == nil || b.nested != nil {
			fits++
			continue
		}
		unfits, no = unfits+1, m.annotate(err, &call{op: OpGet, key: opts.Key}, b, 0)
		x.Backends[i].Why += "; it can never hold this key, which ends no read"
	}
	switch {
	case x.Code != "" || fits > 0 || unfits == 0:
	case unfits == len(v.reads.members):
		x.Code, x.Failure = CodeOf(no), no.Error()
	default:
		x.Code, x.Failure = CodeAllBackendsDown, "those that could hold this key cannot be asked"
	}
}
