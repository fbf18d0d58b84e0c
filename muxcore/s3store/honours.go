package s3store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Services that do not know conditions take the headers for noise and write all the same. So before the first conditional
// write of a kind the endpoint is tried on an object of our own, which it must refuse to touch.

// kind is one of the ways to write conditionally, which services learnt one by one.
type kind uint8

const (
	kindPut kind = iota
	kindMultipart
	kindDelete
	kinds
)

var kindNames = [kinds]string{"PUT", "CompleteMultipartUpload", "DELETE"}

// The verdicts on a kind, which are for good: only what an endpoint does with a condition, or that it says 501 to it, is one.
const (
	open int32 = iota
	honoured
	ignored
)

const (
	probeKey  = muxcore.ReservedPrefix + "-probe-" // and a random word
	doubtTime = time.Minute                        // after an answer that is none of those, until the endpoint is tried again
	otherTag  = `"00000000000000000000000000000000"`
)

// honours is what is known of an endpoint. It is safe for concurrent use.
type honours struct {
	turn    chan struct{} // of the one who finds out
	verdict [kinds]atomic.Int32
	doubt   [kinds]atomic.Pointer[doubt]
}

// doubt is an answer to a conditional write that may be about the condition, and may be about something else.
type doubt struct {
	err   error
	until time.Time
}

// hopeful tells whether conditional writes may work. That an endpoint honours conditions in one kind of them is enough: those of
// another kind are refused one by one, before they are sent.
func (h *honours) hopeful() bool { return h.verdict[kindPut].Load() != ignored }

// refuses is why writes of a kind are not sent now; nil if they may be.
func (h *honours) refuses(k kind, now time.Time) error {
	if h.verdict[k].Load() == ignored {
		return fmt.Errorf("the endpoint does not honour the conditions of a %s", kindNames[k])
	}
	if d := h.doubt[k].Load(); d != nil && now.Before(d.until) && h.verdict[k].Load() == open {
		return fmt.Errorf("the endpoint may not know the conditions of a %s, and is tried again at %s: %w", kindNames[k], d.until.UTC().Format(time.RFC3339), d.err)
	}
	return nil
}

// checkHonours makes sure, before a conditional write, that the endpoint honours conditions.
func (s *Store) checkHonours(ctx context.Context, op muxcore.Op, key string, k kind) error {
	h := &s.honours
	if h.verdict[k].Load() == open {
		select {
		case h.turn <- struct{}{}:
		case <-ctx.Done():
			return brokeOff(ctx, op, key)
		}
		defer func() { <-h.turn }()
	}
	if h.verdict[k].Load() == open && h.refuses(k, s.now()) == nil {
		verdict, err := s.try(ctx, op, k)
		switch {
		case err == nil:
			h.verdict[k].Store(verdict)
		case statusOf(err) == http.StatusBadRequest && codeIs(err, muxcore.CodeUnavailable):
			h.doubt[k].Store(&doubt{errors.New(err.Error()), s.now().Add(doubtTime)})
		default:
			return fmt.Errorf("trying whether the endpoint honours conditions of a %s: %w", kindNames[k], err)
		}
	}
	if why := h.refuses(k, s.now()); why != nil {
		return &muxcore.Error{Code: muxcore.CodeUnsupported, Op: op, Key: key, Err: why}
	}
	return nil
}

// try finds out on an object of its own.
func (s *Store) try(ctx context.Context, op muxcore.Op, k kind) (int32, error) {
	var word [8]byte
	_, _ = rand.Read(word[:]) // never fails
	c := call{op: op, key: fmt.Sprintf("%s%x", probeKey, word), method: http.MethodPut, body: []byte("probe")}
	_, err := s.finish(ctx, &c)
	if statusOf(err) == 0 || statusOf(err) >= http.StatusInternalServerError { // or it may be there all the same
		late := err != nil
		defer s.clear(ctx, call{op: muxcore.OpDelete, key: c.key, method: http.MethodDelete}, late)
	}
	if err != nil {
		return open, err
	}
	send := s.tryObject
	if k == kindMultipart {
		m := multipart{s: s, op: op, key: c.key}
		if err := m.create(ctx, nil); err != nil {
			return open, err
		}
		defer m.abort(ctx)
		if err := m.sendPart(ctx, &call{body: []byte("again")}, 1); err != nil {
			return open, err
		}
		send = func(ctx context.Context, _ call, guard http.Header) error {
			_, err := m.complete(ctx, guard)
			return err
		}
	}
	guards := []http.Header{{"If-None-Match": {"*"}}, {"If-Match": {otherTag}}}
	if k == kindDelete {
		c.method, c.body = http.MethodDelete, nil
		guards = guards[1:]
	}
	for _, guard := range guards {
		if verdict, err := judge(send(ctx, c, guard)); verdict != honoured {
			return verdict, err
		}
	}
	return honoured, nil
}

// tryObject sends what must be refused.
func (s *Store) tryObject(ctx context.Context, c call, guard http.Header) error {
	c.header, c.sha = guard, ""
	_, err := s.finish(ctx, &c)
	return err
}

// judge reads the answer to a write whose condition does not hold.
func judge(err error) (int32, error) {
	switch {
	case err == nil, statusOf(err) == http.StatusNotImplemented:
		return ignored, nil
	case codeIs(err, muxcore.CodePreconditionFailed):
		return honoured, nil
	}
	return open, err
}

// statusOf is the status of the answer in err; 0: there was none, or it is the service's fault whatever it was.
func statusOf(err error) int {
	if e, ok := errors.AsType[*muxcore.Error](err); ok {
		return e.Status
	}
	return 0
}

func codeIs(err error, code muxcore.Code) bool { return err != nil && muxcore.CodeOf(err) == code }

// guardFor is the condition under which a write changes just what was found: nothing, or the version of an ETag.
func guardFor(f *found) http.Header {
	if f == nil {
		return http.Header{"If-None-Match": {"*"}}
	}
	return http.Header{"If-Match": {f.native}}
}
