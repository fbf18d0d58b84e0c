package httpstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// begin is what every call begins with.
func begin(ctx context.Context, op muxcore.Op, key string) error {
	if err := muxcore.CheckStoreKey(key); err != nil {
		return at(op, key, err)
	}
	if err := ctx.Err(); err != nil {
		return broke(ctx, op, key, err)
	}
	return nil
}

// at says where an error that has a code happened.
func at(op muxcore.Op, key string, err error) error {
	located := muxcore.Error{Code: muxcore.CodeUnavailable, Err: err}
	if e, ok := errors.AsType[*muxcore.Error](err); ok {
		located = *e
		if e != err { //nolint:errorlint // only the outermost can be replaced without losing what wraps it
			located.Err = err
		}
	}
	located.Op, located.Key = op, key
	return &located
}

// broke is the error of a request without an answer, or of a body without an end.
func broke(ctx context.Context, op muxcore.Op, key string, err error) error {
	return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: op, Key: key, Err: blame(ctx, err)}
}

// blame makes err wrap a context error exactly if ctx is to blame. Dial timeouts and the like match context errors too.
func blame(ctx context.Context, err error) error {
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

// lied is the error of an answer that cannot be true.
func lied(op muxcore.Op, key string, resp *http.Response, format string, args ...any) error {
	return &muxcore.Error{
		Code: muxcore.CodeUnavailable, Op: op, Key: key,
		Err: fmt.Errorf("answer %d is wrong: %w", resp.StatusCode, fmt.Errorf(format, args...)),
	}
}

// refused is the error that an answer's status means.
func (s *Store) refused(op muxcore.Op, key string, resp *http.Response) error {
	return &muxcore.Error{
		Code: codeOf(op, resp.StatusCode), Op: op, Key: key, Status: resp.StatusCode,
		RetryAfter: s.retryAfter(resp.Header),
	}
}

// codeOf is the code of a status. One without a code of its own is CodeUnavailable: its status decides its class.
func codeOf(op muxcore.Op, status int) muxcore.Code {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return muxcore.CodeDenied
	case http.StatusRequestURITooLong:
		return muxcore.CodeInvalidKey
	case http.StatusNotFound, http.StatusGone:
		if op != muxcore.OpPut {
			return muxcore.CodeKeyNotFound
		}
	case http.StatusMethodNotAllowed:
		if op.Writes() {
			return muxcore.CodeReadOnly
		}
		return muxcore.CodeUnsupported
	}
	if !op.Writes() {
		return muxcore.CodeUnavailable
	}
	switch status {
	case http.StatusConflict:
		return muxcore.CodeKeyConflict
	case http.StatusRequestEntityTooLarge:
		return muxcore.CodeTooLarge
	case http.StatusNotImplemented, http.StatusLengthRequired, http.StatusUnsupportedMediaType:
		return muxcore.CodeUnsupported
	}
	return muxcore.CodeUnavailable
}

// retryAfter reads Retry-After: seconds or a date.
func (s *Store) retryAfter(h http.Header) time.Duration {
	v := first(h, "Retry-After")
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
	return max(when.Sub(s.now()), 0)
}
