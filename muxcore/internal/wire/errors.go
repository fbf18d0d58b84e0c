package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// ErrTooEarly is the cause where a service said yes to an upload that it cannot have.
var ErrTooEarly = errors.New("the service answered before it had the whole body")

// TooEarly is the error of a Put that was answered like a success before its whole body was read.
func TooEarly(key string) error {
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: muxcore.OpPut, Key: key, Err: ErrTooEarly}
}

// Begin is what every call begins with.
func Begin(ctx context.Context, op muxcore.Op, key string) error {
	if err := muxcore.CheckStoreKey(key); err != nil {
		return muxcore.At(op, key, err)
	}
	if err := ctx.Err(); err != nil {
		return Broke(ctx, op, key, err)
	}
	return nil
}

// Broke is the error of a request without an answer, or of a body without an end.
func Broke(ctx context.Context, op muxcore.Op, key string, err error) error {
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: op, Key: key, Err: blame(ctx, err)}
}

// UploaderFault is the error of a Put whose body failed: whatever a reader says that has no code of its own, it was not
// the store.
func UploaderFault(key string, err error) error {
	if muxcore.CodeOf(err) != "" {
		return muxcore.At(muxcore.OpPut, key, err)
	}
	return &muxcore.Error{Code: muxcore.CodeBodyMismatch, Op: muxcore.OpPut, Key: key, Err: err}
}

// blame makes err wrap a context error exactly if ctx is to blame. Dial timeouts and the like match context errors too.
func blame(ctx context.Context, err error) error {
	err = unquoted(err)
	ended := ctx.Err()
	switch {
	case ended != nil && errors.Is(err, ended):
		return err
	case ended != nil:
		return fmt.Errorf("%w: %w", ended, err)
	case errors.Is(err, context.DeadlineExceeded):
		return &originError{text: err.Error(), timeout: true}
	case errors.Is(err, context.Canceled):
		return &originError{text: err.Error()}
	}
	return err
}

// unquoted leaves out what net/http repeats of an answer that it could not read: there may be secrets in it.
func unquoted(err error) error {
	before, _, found := strings.Cut(err.Error(), "malformed ")
	if !found || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errors.New(before + "malformed answer")
}

// originError is a timeout or cancellation that is the origin's own. It implements net.Error and wraps nothing.
type originError struct {
	text    string
	timeout bool
}

func (e *originError) Error() string { return e.text }

// Timeout implements net.Error.
func (e *originError) Timeout() bool { return e.timeout }

// Temporary implements net.Error.
func (e *originError) Temporary() bool { return false }

// RetryAfter reads Retry-After: seconds or a date.
func RetryAfter(h http.Header, now func() time.Time) time.Duration {
	v := First(h, "Retry-After")
	if v == "" {
		return 0
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return time.Duration(min(max(n, 0), math.MaxInt64/int64(time.Second))) * time.Second
	}
	when, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return max(when.Sub(now()), 0)
}
