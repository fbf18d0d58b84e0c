package muxcore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore/journal"
)

// memo is what one write has the journal remember. A nil memo remembers nothing. It is begun, and closed, in the key's turn.
type memo struct {
	m       *Mux
	op      Op
	key     string
	write   journal.Write
	seq     uint64 // of what was begun; 0: nothing was
	asks    []string
	open    []string     // were asked before, and may have committed
	done    []string     // have the newest state by now
	missed  []string     // should have it
	took    bool         // a delete has found something
	was     journal.Mark // of the key, before this write; the zero one if there was none
	unsure  bool         // somebody may have committed, and nobody is known to have
	refused error        // why nothing may be committed
}

// memo of a write of the operation's key. Locks live on one backend only, and are nobody else's to have.
func (m *Mux) memo(o *operation) *memo {
	if m.journal == nil || len(o.view.all) < 2 || strings.HasPrefix(o.call.key, LockPrefix) {
		return nil
	}
	n := &memo{m: m, op: o.call.op, key: o.call.key, write: journal.Write{Deleted: o.call.op == OpDelete}}
	if o.call.op == OpPut {
		n.write.ETag = o.call.put.ETag
	}
	return n
}

// begin has it on disk, before anybody commits, that skips will miss the write, and that its end is open for asks, and for those that
// were asked before and may have committed: where something is known to be missed, or the key has a mark already. An error means that
// nobody may commit.
func (n *memo) begin(asks, skips []string) error {
	if n == nil {
		return nil
	}
	first, before := n.asks == nil, n.seq
	n.asks = slices.Concat(n.open, asks)
	n.seq, n.refused = n.m.journal.Begin(n.key, n.write, n.asks, skips)
	n.unsure = n.unsure || n.seq != 0 && len(n.open) > 0
	if first {
		n.was, _ = n.m.journal.Lookup(n.key)
		n.was.Open = slices.DeleteFunc(slices.Clone(n.was.Open), func(i journal.Intent) bool { return i.Seq == n.seq })
	}
	if before != 0 {
		n.m.journal.Withdraw(n.key, before)
	}
	if n.refused != nil {
		n.refused = n.fault(n.refused)
	}
	return n.refused
}

func (n *memo) fault(err error) error {
	return &Error{Code: CodeWriteFanoutPartial, Op: n.op, Key: n.key, Err: fmt.Errorf("remembering what backends miss: %w", err)}
}

// add takes in how the parts of a fan-out ended. mayHave says that whoever was asked may have committed. Those that fail for
// another backend's sake, who decides, have not.
func (n *memo) add(shares []share, mayHave bool) {
	if n == nil {
		return
	}
	decided := len(shares) == 0 || !shares[0].decides || shares[0].class == ClassOK
	for i := range shares {
		switch s := &shares[i]; {
		case !s.skipped && (s.class == ClassOK || n.write.Deleted && isMiss(s.answer.err)):
			n.done = append(n.done, s.b.Name)
		default:
			n.missed = append(n.missed, s.b.Name)
			n.unsure = n.unsure || mayHave && !s.skipped && (decided || s.decides) && s.class.leavesOpen()
			if !s.skipped && s.class.leavesOpen() && s.call.given() {
				n.write.Late = append(n.write.Late, s.b.Name)
			}
		}
	}
}

// failed takes in how the call of who was to decide ended.
func (n *memo) failed(class Class) {
	if n != nil {
		n.unsure = n.unsure || class.leavesOpen()
	}
}

// left takes in how the call of b ended that a Put was to go to, c. Where nothing was begun, nobody else should have it, as yet.
func (n *memo) left(b *backend, class Class, c *call) {
	if n == nil || !class.leavesOpen() {
		return
	}
	if c.given() {
		n.write.Late = append(n.write.Late, b.Name)
	}
	n.open = append(n.open, b.Name)
	n.unsure = n.unsure || n.seq != 0
}

// deleted takes in what became of a delete that was decided, if it had to be, by decided.
func (n *memo) deleted(o *operation, shares []share, decided *backend, took bool) {
	if n == nil {
		return
	}
	if decided != nil {
		n.done = append(n.done, decided.Name)
	}
	n.took = took
	n.add(shares, true)
	n.missing(o.view.away)
}

// missing takes in who was out of service.
func (n *memo) missing(away []*backend) {
	if n != nil {
		n.missed = append(n.missed, namesOf(away)...)
	}
}

// gone tells whether the newest state before this write was, for all that is known, that the key was deleted: what a
// backend still had then was there by mistake.
func (n *memo) gone() bool {
	return n != nil && n.was.Known && n.was.Deleted && len(n.was.Open) == 0
}

// stale tells whether what b held before this write was no object any more, as the key was deleted, which b has missed.
func (n *memo) stale(b *backend) bool { return n.gone() && slices.Contains(n.was.Lacks, b.Name) }

// leavesOpen tells whether a write that ended so may have been committed all the same.
func (c Class) leavesOpen() bool { return c.Counts() || c == ClassAbort }

// over tells whether the write was refused.
func (n *memo) over() bool { return n != nil && n.refused != nil }

// close has the journal know how the write ended. An error means that what was missed could not be remembered.
func (n *memo) close() error {
	if n == nil {
		return nil
	}
	j := n.m.journal
	switch {
	case n.over(): // nobody was given the end of the body
	case len(n.done) > 0:
		if err := j.Settle(n.key, n.seq, n.write, n.done, n.missed); err != nil {
			return n.fault(err)
		}
	case n.unsure && n.seq == 0:
		skips := slices.DeleteFunc(n.missed, func(name string) bool { return slices.Contains(n.asks, name) })
		_ = j.LeaveOpen(n.key, n.write, n.asks, skips) // the write has failed in any case
	case n.unsure:
		j.Leave(n.key, n.seq)
	case n.seq != 0:
		j.Withdraw(n.key, n.seq)
	}
	return nil
}

// standing tells who of those that a write should reach can be asked, and who cannot.
func (m *Mux) standing(o *operation) (asks, skips []string) {
	now := m.set.Now()
	for _, b := range o.view.writers {
		if b.health(o.call.op).eligible(now) || m.set.LastResort {
			asks = append(asks, b.Name)
		} else {
			skips = append(skips, b.Name)
		}
	}
	return asks, append(skips, namesOf(o.view.away)...)
}

// standingOf is standing of a fan-out whose parts are given out.
func standingOf(shares []share, away []*backend) (asks, skips []string) {
	for i := range shares {
		if shares[i].skipped {
			skips = append(skips, shares[i].b.Name)
		} else {
			asks = append(asks, shares[i].b.Name)
		}
	}
	return asks, append(skips, namesOf(away)...)
}

func namesOf(backends []*backend) []string {
	var names []string
	for _, b := range backends {
		names = append(names, b.Name)
	}
	return names
}

// preferred are the writable backends, in service or not, that would have got a Put instead of b if all were well.
func (m *Mux) preferred(o *operation, b *backend) []*backend {
	var first, last []*backend
	for _, other := range o.view.all {
		switch {
		case other.weight.Load() == 0:
		case other.Backup:
			last = append(last, other)
		default:
			first = append(first, other)
		}
	}
	var before []*backend
	switch {
	case m.set.Mode == Failover:
		all := slices.Concat(first, last)
		before = all[:max(0, slices.Index(all, b))]
	case m.set.Mode == StickyByKey && m.set.Rendezvous:
		own := b.score(o.call.key)
		for _, other := range first {
			if b.Backup || other.score(o.call.key) > own {
				before = append(before, other)
			}
		}
	case m.set.Mode == StickyByKey && len(first) > 0:
		if owner := first[ownBackend(m, &pool{ready: first}, o.call.key)]; owner != b {
			before = append(before, owner)
		}
	}
	return slices.DeleteFunc(slices.Clone(before), func(other *backend) bool { return !other.writable() })
}

// pending tells whether the journal has anything to say.
func (m *Mux) pending() bool { return m.journal != nil && m.journal.Pending() }

// consult has the operation ask those last that lack the newest state of its key.
func (m *Mux) consult(o *operation) {
	mark, marked := m.journal.Lookup(o.call.key)
	o.gone = marked && mark.Known && mark.Deleted
	o.exists = marked && mark.Known && !mark.Deleted
	lacks := m.lacking(&mark, marked, o.walk.p.members)
	if !slices.ContainsFunc(o.walk.p.members, lacks) {
		return
	}
	p := &pool{members: o.walk.p.members}
	for _, b := range o.walk.p.ready {
		if lacks(b) {
			p.stale = append(p.stale, b)
		} else {
			p.ready = append(p.ready, b)
		}
	}
	for _, b := range o.walk.p.backups {
		if lacks(b) {
			p.stale = append(p.stale, b)
		} else {
			p.backups = append(p.backups, b)
		}
	}
	if m.set.Mode == Weighted && len(p.ready) > 0 {
		p.alias = newAliasTable(p.ready)
	}
	o.walk.p = p
	o.stale = p.stale
}

// lacking tells of each member whether it lacks the newest state of a key, or may: one that is to be compared in full,
// unless that holds for all of them.
func (m *Mux) lacking(mark *journal.Mark, marked bool, members []*backend) func(*backend) bool {
	var doubtful []*backend
	for _, b := range members {
		if m.journal.Doubtful(b.Name) {
			doubtful = append(doubtful, b)
		}
	}
	if len(doubtful) == len(members) {
		doubtful = nil
	}
	return func(b *backend) bool {
		return marked && mark.LackedBy(b.Name) || slices.Contains(doubtful, b)
	}
}

// notFound is the answer for a key whose newest state is that it was deleted.
func (o *operation) notFound() error {
	return &Error{Code: CodeKeyNotFound, Op: o.call.op, Key: o.call.key}
}

// tombstoned tells whether the newest that the journal knows of the key is that it was deleted.
func (m *Mux) tombstoned(key string) bool {
	if !m.pending() {
		return false
	}
	mark, ok := m.journal.Lookup(key)
	return ok && mark.Known && mark.Deleted
}

// outdated tells whether the journal knows that b lacks the newest state of the key.
func (m *Mux) outdated(key string, b *backend) bool {
	if !m.pending() {
		return false
	}
	mark, ok := m.journal.Lookup(key)
	return ok && mark.Known && mark.LackedBy(b.Name)
}

// madeGood has the journal forget what the backend missed of the key. It is called in the key's turn.
func (m *Mux) madeGood(key string, b *backend) {
	if !m.pending() {
		return
	}
	if mark, ok := m.journal.Lookup(key); ok && mark.Known && slices.Contains(mark.Lacks, b.Name) {
		_ = m.journal.Repaired(key, mark.Seq, b.Name) // if that cannot be written down, it is repaired once more
	}
}
