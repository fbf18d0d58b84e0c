package storetest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Every makes a fault hit every call, in [Faulty.On].
const Every = 0

// Faulty is a store that works like the one it wraps, until its script says otherwise. It counts what is asked of it and
// knows which bodies are still open. It is safe for concurrent use, and the script may change while calls are under way.
type Faulty struct {
	inner muxcore.Store

	mu       sync.Mutex
	script   []line
	calls    map[muxcore.Op]int
	inFlight int
	most     int
	stalled  int
	keys     map[muxcore.Op][]string
	bodies   map[*faultyBody]string // open ones, by how they were opened
	released chan struct{}
	changed  chan struct{} // closed and replaced whenever a count changes
	waits    muxcore.Waits
	caps     *muxcore.Capabilities
}

// line is one line of a script.
type line struct {
	op          muxcore.Op
	key         string // "" any
	first, last int    // numbers of the calls that it hits; last 0: no end
	seen        int    // calls that matched op and key since the line was added
	fault       Fault
}

// NewFaulty wraps inner. Without a script, it does what inner does. It is taken to hang as the worst of stores may
// ([muxcore.WaitsUnbounded]) until SetWaits says otherwise.
func NewFaulty(inner muxcore.Store) *Faulty {
	return &Faulty{
		inner: inner, calls: map[muxcore.Op]int{}, keys: map[muxcore.Op][]string{}, bodies: map[*faultyBody]string{},
		released: make(chan struct{}), changed: make(chan struct{}),
	}
}

// On makes the nth call of op from now on, counted from 1, suffer these faults together; [Every] hits them all.
func (f *Faulty) On(op muxcore.Op, nth int, faults ...Fault) { f.add(op, "", nth, nth, faults) }

// From makes the nth call of op from now on and all after it suffer these faults together.
func (f *Faulty) From(op muxcore.Op, nth int, faults ...Fault) { f.add(op, "", nth, 0, faults) }

// OnKey makes every call of op for key suffer these faults together.
func (f *Faulty) OnKey(op muxcore.Op, key string, faults ...Fault) {
	f.add(op, key, Every, Every, faults)
}

func (f *Faulty) add(op muxcore.Op, key string, first, last int, faults []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = append(f.script, line{op: op, key: key, first: first, last: last, fault: together(faults)})
}

// Break makes every call of every operation fail with err, until Mend.
func (f *Faulty) Break(err error) {
	for op := muxcore.OpGet; op <= muxcore.OpHealth; op++ {
		f.On(op, Every, Fail(err))
	}
}

// Mend forgets the script; calls that stall go on stalling until Release.
func (f *Faulty) Mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = nil
}

// Release lets everything that stalls now go on.
func (f *Faulty) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.released)
	f.released = make(chan struct{})
}

// SetWaits changes what [muxcore.WaitsOf] says of the store.
func (f *Faulty) SetWaits(w muxcore.Waits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waits = w
}

// SetCapabilities changes what [muxcore.CapabilitiesOf] says of the store. What it says it cannot do, it refuses.
func (f *Faulty) SetCapabilities(c muxcore.Capabilities) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caps = &c
}

// Waits implements muxcore.Waiter.
func (f *Faulty) Waits() muxcore.Waits {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waits
}

// Capabilities implements muxcore.Capable.
func (f *Faulty) Capabilities() muxcore.Capabilities {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.caps != nil {
		return *f.caps
	}
	return muxcore.CapabilitiesOf(f.inner)
}

// CheckKey implements muxcore.KeyChecker by the rule of the inner store.
func (f *Faulty) CheckKey(key string) error { return muxcore.CheckKeyOf(f.inner, key) }

// Probe implements muxcore.Prober; its faults are those of [muxcore.OpHealth].
func (f *Faulty) Probe(ctx context.Context) error {
	fault, end := f.begin(muxcore.OpHealth, "")
	defer end()
	if err := fault.before(ctx, f); err != nil {
		return err
	}
	if err := muxcore.Probe(ctx, f.inner, ""); err != nil {
		return err
	}
	return fault.late
}

// Close closes the inner store.
func (f *Faulty) Close() error { return muxcore.Close(f.inner) }

// Get implements muxcore.Store.
func (f *Faulty) Get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, error) {
	fault, end := f.begin(muxcore.OpGet, key)
	defer end()
	if err := fault.before(ctx, f); err != nil {
		return nil, err
	}
	asked := opts
	if fault.ignoreRange {
		asked.Range = muxcore.Range{}
	}
	o, err := f.inner.Get(ctx, key, asked)
	if err != nil {
		return nil, err
	}
	if fault.late != nil {
		o.Body.Close()
		return nil, fault.late
	}
	for _, lie := range fault.info {
		lie(&o.Info)
	}
	for _, lie := range fault.object {
		lie(o)
	}
	o.Body = f.open(ctx, o, &fault)
	return o, nil
}

// Stat implements muxcore.Store.
func (f *Faulty) Stat(ctx context.Context, key string, cond muxcore.Conditions) (muxcore.Info, error) {
	fault, end := f.begin(muxcore.OpStat, key)
	defer end()
	if err := fault.before(ctx, f); err != nil {
		return muxcore.Info{}, err
	}
	info, err := f.inner.Stat(ctx, key, cond)
	if err == nil {
		err = fault.late
	}
	if err != nil {
		return muxcore.Info{}, err
	}
	for _, lie := range fault.info {
		lie(&info)
	}
	return info, nil
}

// Put implements muxcore.Store.
func (f *Faulty) Put(ctx context.Context, key string, body io.Reader, size int64, opts muxcore.PutOptions) (muxcore.PutResult, error) {
	fault, end := f.begin(muxcore.OpPut, key)
	defer end()
	if err := fault.before(ctx, f); err != nil {
		return muxcore.PutResult{}, err
	}
	if fault.shapesBody() {
		shaped := f.shape(ctx, body, &fault)
		res, err := f.inner.Put(ctx, key, shaped, size, opts)
		if cause := shaped.failure(); cause != nil {
			return muxcore.PutResult{}, cause // the store's own failure, not the uploader's
		}
		return f.put(res, err, &fault)
	}
	res, err := f.inner.Put(ctx, key, body, size, opts)
	return f.put(res, err, &fault)
}

func (f *Faulty) put(res muxcore.PutResult, err error, fault *Fault) (muxcore.PutResult, error) {
	if err == nil {
		err = fault.late
	}
	if err != nil {
		return muxcore.PutResult{}, err
	}
	for _, lie := range fault.info {
		lie(&res.Info)
	}
	return res, nil
}

// Delete implements muxcore.Store.
func (f *Faulty) Delete(ctx context.Context, key string, opts muxcore.DeleteOptions) (muxcore.DeleteResult, error) {
	fault, end := f.begin(muxcore.OpDelete, key)
	defer end()
	if err := fault.before(ctx, f); err != nil {
		return muxcore.DeleteResult{}, err
	}
	res, err := f.inner.Delete(ctx, key, opts)
	if err == nil {
		err = fault.late
	}
	return res, err
}

// List implements muxcore.Store. A list is in flight while it is walked. What cuts, stalls and drips bodies at a byte
// does so to a list at an entry.
func (f *Faulty) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		fault, end := f.begin(muxcore.OpList, opts.Prefix)
		defer end()
		if err := fault.before(ctx, f); err != nil {
			yield(muxcore.Entry{}, err)
			return
		}
		n := int64(0)
		for e, err := range f.inner.List(ctx, opts) {
			if err == nil {
				if stop := fault.at(ctx, f, n); stop != nil {
					if stop != io.EOF { //nolint:errorlint // the mark of a clean end, not an error
						yield(muxcore.Entry{}, stop)
					}
					return
				}
				for _, lie := range fault.info {
					lie(&e.Info)
				}
			}
			if !yield(e, err) {
				return
			}
			n++
		}
		if fault.late != nil {
			yield(muxcore.Entry{}, fault.late)
		}
	}
}

// begin counts a call and picks what is to happen to it.
func (f *Faulty) begin(op muxcore.Op, key string) (fault Fault, end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	f.keys[op] = append(f.keys[op], key)
	f.inFlight++
	f.most = max(f.most, f.inFlight)
	f.notify()
	if f.caps != nil {
		fault.err = refusal(op, key, *f.caps)
	}
	for i := range f.script {
		l := &f.script[i]
		if l.op != op || l.key != "" && l.key != key {
			continue
		}
		l.seen++
		if l.first == Every || l.seen >= l.first && (l.last == 0 || l.seen <= l.last) {
			fault = together([]Fault{fault, l.fault})
		}
	}
	return fault, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.inFlight--
		f.notify()
	}
}

func refusal(op muxcore.Op, key string, c muxcore.Capabilities) error {
	if op.Writes() && !c.Write || op == muxcore.OpList && !c.List {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: op, Key: key, Err: fmt.Errorf("this store cannot %s", op)}
	}
	return nil
}

// notify wakes who waits for a count. It must be called with f.mu held.
func (f *Faulty) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}
