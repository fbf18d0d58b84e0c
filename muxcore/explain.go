package muxcore

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// ExplainOptions say which operation a [Mux.Explain] is about.
type ExplainOptions struct {
	Op   Op       // OpGet (also for OpNone), OpStat, OpPut or OpDelete
	Key  string   // "" any key
	Down []string // backends to be taken for down whatever their health, dotted through nested muxes; a mux with all that is in it
}

// Explanation says how a mux would go about an operation as it stands.
type Explanation struct {
	Mode Mode `json:"mode"`

	// Code is the error that the operation fails with as things stand, whatever is asked, and Failure says why; "" it may succeed.
	Code    Code   `json:"code,omitempty"`
	Failure string `json:"failure,omitempty"`

	Backends []Prospect `json:"backends"` // in config order
}

// Prospect is a backend's part in an operation.
type Prospect struct {
	Name string `json:"name"`

	// Turn is when it is asked: 1 at first, those of a higher turn when all before them could not answer, 0 never.
	Turn int `json:"turn"`

	// Share of such operations that it is asked first in, 0 to 1. Where all of a turn are asked at once, each has 1.
	Share float64 `json:"share"`

	Why string       `json:"why"`           // it has that turn
	Mux *Explanation `json:"mux,omitempty"` // of a backend that is a mux: how that would go about it
}

// Explain says which backends an operation would ask, in which order, and why the others not. Nobody is asked for it, and
// nothing changes. Errors have CodeInvalidKey, or CodeBackendNotFound for an unknown name in opts.Down.
func (m *Mux) Explain(opts ExplainOptions) (Explanation, error) {
	if opts.Key != "" {
		if err := CheckStoreKey(opts.Key); err != nil {
			return Explanation{}, err
		}
	}
	var seats []*seat
	top := limbOf(m, nil, &seats)
	for _, name := range opts.Down {
		if name == "" || top.find(name) == nil {
			return Explanation{}, &Error{Code: CodeBackendNotFound, Backend: name}
		}
	}
	return m.explain(&opts, "", false), nil
}

// explain is Explain of a mux whose backends' names have the prefix above, all of them taken for down if the mux is.
func (m *Mux) explain(opts *ExplainOptions, above string, down bool) Explanation {
	x := Explanation{Mode: m.set.Mode, Backends: []Prospect{}}
	v := m.current()
	p := &pool{}
	resort := resort{m: m, op: opts.Op}
	for _, b := range v.all {
		one := Prospect{Name: b.Name}
		dotted := above + b.Name
		taken := down || slices.Contains(opts.Down, dotted)
		if b.nested != nil {
			inner := b.nested.explain(opts, dotted+".", taken)
			one.Mux = &inner
		}
		one.Why = m.bars(b, opts)
		switch {
		case one.Why != "":
		case taken:
			one.Why = "taken for down"
			resort.add(b, true)
		case one.Mux.fails():
			one.Why = "it would fail: " + one.Mux.Failure
		case !b.health(opts.Op).eligible(m.set.Now()):
			one.Why = m.downWhy(b, opts.Op)
			resort.add(b, false)
		case b.Backup:
			p.backups = append(p.backups, b)
		default:
			p.ready = append(p.ready, b)
		}
		x.Backends = append(x.Backends, one)
	}
	if down {
		resort.first = nil
	}
	if opts.Op.Writes() {
		x.writes(m, p, opts)
	} else {
		x.reads(m, p, opts)
	}
	x.foretell(m, v, opts, &resort)
	return x
}

// fails tells whether a mux would fail whoever is well, and ask nobody.
func (x *Explanation) fails() bool { return x != nil && x.Code != "" && !x.asks() }

// asks tells whether anybody is asked.
func (x *Explanation) asks() bool {
	return slices.ContainsFunc(x.Backends, func(one Prospect) bool { return one.Turn > 0 })
}

// bars is why a backend is not asked, whatever its health; "" if it may be.
func (m *Mux) bars(b *backend, opts *ExplainOptions) string {
	everyWriter := opts.Op == OpDelete || m.mode.fanout
	switch stage := b.drain.stage.Load(); {
	case stage == draining:
		return "draining"
	case stage != inService:
		return "drained"
	case opts.Op.Writes() && b.ReadOnly:
		return "read_only"
	case opts.Op.Writes() && !b.writable():
		return "cannot write"
	case b.weight.Load() == 0 && (!opts.Op.Writes() || !everyWriter):
		return "weight 0"
	}
	return ""
}

// downWhy says of a backend that is down what is known of that.
func (m *Mux) downWhy(b *backend, op Op) string {
	hv := b.health(op).view()
	if hv.trial {
		return fmt.Sprintf("down (%v), a trial is under way", hv.err)
	}
	return fmt.Sprintf("down (%v), next trial at %s", hv.err, hv.until.UTC().Format(time.RFC3339))
}

// set gives a backend its part.
func (x *Explanation) set(b *backend, turn int, share float64, why string) {
	for i := range x.Backends {
		if one := &x.Backends[i]; one.Name == b.Name {
			one.Turn, one.Share, one.Why = turn, share, why
		}
	}
}

// reads gives each its part in a read. p holds who may be asked.
func (x *Explanation) reads(m *Mux, p *pool, opts *ExplainOptions) {
	stale := m.sortOutStale(p, opts.Key)
	turn := x.first(m, p, opts.Key)
	if m.mode.race {
		for _, b := range p.backups {
			x.set(b, turn+1, 0, "a backup: when none before it could answer")
		}
		turn += min(1, len(p.backups))
	} else {
		for _, b := range p.backups {
			turn++
			x.set(b, turn, 0, "a backup: when none before it could answer")
		}
	}
	for _, b := range stale {
		turn++
		x.set(b, turn, 0, "lacks the newest state of the key (a repair is pending): when none before it could answer")
	}
	x.lead()
}

// sortOutStale takes those out of the pool that lack the newest state of the key, or may.
func (m *Mux) sortOutStale(p *pool, key string) []*backend {
	if key == "" || !m.pending() {
		return nil
	}
	mark, marked := m.journal.Lookup(key)
	lacks := m.lacking(&mark, marked, slices.Concat(p.ready, p.backups))
	var stale []*backend
	for _, from := range []*[]*backend{&p.ready, &p.backups} {
		for _, b := range *from {
			if lacks(b) {
				stale = append(stale, b)
			}
		}
		*from = slices.DeleteFunc(*from, lacks)
	}
	return stale
}

// first gives those that are no backups their parts by the mode, and returns the last turn that is given.
func (x *Explanation) first(m *Mux, p *pool, key string) (last int) {
	n := len(p.ready)
	next := "when those before it fail"
	if m.set.OnMissNext {
		next = "when those before it fail or do not have the key"
	}
	switch mode := m.set.Mode; {
	case n == 0:
		return 0
	case mode == Mirror:
		for _, b := range p.ready {
			x.set(b, 1, 1, "all are asked at once, and the first answer wins")
		}
		return 1
	case mode == RoundRobin || mode == StickyByKey && key == "" && !m.set.Rendezvous:
		why := "takes turns with the others"
		if mode == StickyByKey {
			why = "has its share of the keys"
		}
		for _, b := range p.ready {
			x.set(b, 1, 1/float64(n), why)
		}
		return 1
	case mode == Weighted || mode == StickyByKey && key == "":
		sum := 0.0
		for _, b := range p.ready {
			sum += float64(b.weight.Load())
		}
		for _, b := range p.ready {
			x.set(b, 1, float64(b.weight.Load())/sum, fmt.Sprintf("weight %d of %.0f", b.weight.Load(), sum))
		}
		return 1
	case mode == StickyByKey:
		return x.sticky(m, p, key, next)
	}
	for i, b := range p.ready {
		if i > 0 {
			x.set(b, i+1, 0, next)
			continue
		}
		x.set(b, 1, 1, "first in order")
	}
	return n
}

// sticky is first for a key in sticky_by_key.
func (x *Explanation) sticky(m *Mux, p *pool, key, next string) (last int) {
	n := len(p.ready)
	own := 0
	if n > 1 {
		own = ownBackend(m, p, key)
	}
	order := []int{own}
	if rest := restOfKey(m, p, key, own); rest != nil {
		order = append(order, rest...)
	} else {
		for i := 1; i < n; i++ {
			order = append(order, (own+i)%n)
		}
	}
	for turn, i := range order {
		share, why := 0.0, next
		if turn == 0 {
			share, why = 1, "the key's own"
		}
		x.set(p.ready[i], turn+1, share, why)
	}
	return n
}

// lead gives the first turn to whoever is left where none is that would have had it.
func (x *Explanation) lead() {
	least := math.MaxInt
	for i := range x.Backends {
		if turn := x.Backends[i].Turn; turn > 0 {
			least = min(least, turn)
		}
	}
	for i := range x.Backends {
		if one := &x.Backends[i]; one.Turn == least && one.Share == 0 {
			one.Share = 1
		}
	}
}

// writes gives each its part in a write. p holds who may be asked.
func (x *Explanation) writes(m *Mux, p *pool, opts *ExplainOptions) {
	if opts.Op == OpPut && !m.mode.fanout {
		x.put(m, p, opts.Key)
		return
	}
	for _, b := range slices.Concat(p.ready, p.backups) {
		x.set(b, 1, 1, "every writable backend is written to")
	}
	if m.mode.origin && x.Backends[0].Turn > 0 {
		x.Backends[0].Why = whyOrigin
	}
}

const whyOrigin = "the origin: its word decides, and the others commit after it"

// put is writes for a put that goes to one backend.
func (x *Explanation) put(m *Mux, p *pool, key string) {
	turn := x.first(m, p, key)
	for _, b := range p.backups {
		turn++
		x.set(b, turn, 0, "a backup: when none before it takes it")
	}
	x.lead()
	for i := range x.Backends {
		one := &x.Backends[i]
		one.Why = strings.Replace(one.Why, "fail or do not have the key", "fail", 1)
	}
}
