package caddybreaker

import (
	"sync"

	"github.com/caddyserver/caddy/v2"
)

// ledgers holds the totals of every label that was ever counted. They are never
// given back: a counter must not fall before the process ends, whatever was
// reloaded, edited or removed meanwhile. Labels come from configs, so there are
// few.
var ledgers = caddy.NewUsagePool()

type ledgerKey struct{ registry, label string }

// ledger adds up the breakers that were ever counted under one label.
type ledger struct {
	mu sync.Mutex

	past totals            // of those that are gone
	live map[*entry]totals // what each had counted before it came
}

// Destruct implements caddy.Destructor. It is never called.
func (*ledger) Destruct() error { return nil }

// ledgerOf returns the ledger of a label, a new one at first.
func ledgerOf(key ledgerKey) *ledger {
	v, _, _ := ledgers.LoadOrNew(key, func() (caddy.Destructor, error) {
		return &ledger{live: make(map[*entry]totals)}, nil
	})
	return v.(*ledger)
}

func (l *ledger) join(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[e] = e.totals()
}

func (l *ledger) leave(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.past.add(e.totals(), l.live[e])
	delete(l.live, e)
}

// sum returns the totals as they stand.
func (l *ledger) sum() totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.past
	for e, before := range l.live {
		t.add(e.totals(), before)
	}
	return t
}

// totals are the numbers of one label.
type totals struct {
	rejected    uint64
	transitions [3]uint64 // by new state
	calls       [3]uint64 // by outcome
}

// add adds what was counted since before.
func (t *totals) add(now, before totals) {
	t.rejected += now.rejected - before.rejected
	for i := range t.calls {
		t.calls[i] += now.calls[i] - before.calls[i]
		t.transitions[i] += now.transitions[i] - before.transitions[i]
	}
}

// totals returns what e has counted in its life. It takes no lock.
func (e *entry) totals() totals {
	t := totals{rejected: e.breaker.Rejected()}
	for i := range t.calls {
		t.calls[i] = e.calls[i].Load()
		t.transitions[i] = e.transitions[i].Load()
	}
	return t
}

// countIn has e counted under the label of l from now on.
func (e *entry) countIn(l *ledger) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ledger == l {
		return
	}
	if e.ledger != nil {
		e.ledger.leave(e)
	}
	e.ledger = l
	l.join(e)
}

// retire ends the counting.
func (e *entry) retire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ledger != nil {
		e.ledger.leave(e)
		e.ledger = nil
	}
}
