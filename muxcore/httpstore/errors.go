package httpstore

import (
	"fmt"
	"net/http"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

// lied is the error of an answer that cannot be true.
func lied(op muxcore.Op, key string, resp *http.Response, format string, args ...any) error {
	return &muxcore.Error{
		Code: muxcore.CodeUnavailable, Op: op, Key: key,
		Err: fmt.Errorf("answer %d is wrong: %w", resp.StatusCode, fmt.Errorf(format, args...)),
	}
}

// refused is the error that an answer's status means.
func (s *Store) refused(op muxcore.Op, key string, resp *http.Response) *muxcore.Error {
	return &muxcore.Error{
		Code: codeOf(op, resp.StatusCode), Op: op, Key: key, Status: resp.StatusCode,
		RetryAfter: wire.RetryAfter(resp.Header, s.now),
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
