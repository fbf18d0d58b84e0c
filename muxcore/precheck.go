package muxcore

import "context"

// CheckPut tells, before the body is asked for, whether a Put with these options would be refused as things stand: by the
// mux, or by conditions that do not hold on the backend that decides them. nil is no promise, since what is stored may
// change until the commit, which alone decides.
func (m *Mux) CheckPut(ctx context.Context, key string, opts PutOptions) error {
	if err := m.CheckKey(key); err != nil {
		return err
	}
	o := m.begin(OpPut, key)
	defer o.end()
	if err := m.canPut(ctx, o, &opts); err != nil {
		return err
	}
	b := m.wouldDecide(o)
	if b == nil || opts.Conditions.Empty() {
		return nil
	}
	o.call.put = opts
	if err := m.heldBefore(ctx, o, b); err != nil {
		return err
	}
	p, ok := m.admit(b, OpStat, false)
	if !ok {
		return nil
	}
	defer m.release(b)
	var a answer
	stat := call{op: OpStat, key: key}
	switch class := m.attempt(ctx, b, p, &stat, b.Timeout, 0, &a); {
	case class == ClassOK:
		return opts.Conditions.CheckWrite(key, &a.info)
	case isMiss(a.err):
		return opts.Conditions.CheckWrite(key, nil)
	}
	return nil
}

// wouldDecide is the backend that would be asked first about conditions, nil where that depends on the key.
func (m *Mux) wouldDecide(o *operation) *backend {
	switch p := o.walk.p; {
	case m.mode.origin:
		return o.view.all[0]
	case m.set.Mode == StickyByKey:
		return nil
	case len(p.ready) > 0:
		return p.ready[0]
	}
	return nil
}
