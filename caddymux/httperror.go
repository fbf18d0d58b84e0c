package caddymux

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// statusClientGone is what nginx and Caddy log for a client that went away; nobody receives it.
const statusClientGone = 499

var statuses = map[muxcore.Code]int{
	muxcore.CodeAllBackendsDown:     http.StatusServiceUnavailable,
	muxcore.CodeBackendTimeout:      http.StatusGatewayTimeout,
	muxcore.CodeBackendAborted:      statusClientGone,
	muxcore.CodeBackendDraining:     http.StatusServiceUnavailable,
	muxcore.CodeHealthcheckFailed:   http.StatusServiceUnavailable,
	muxcore.CodeWriteFanoutPartial:  http.StatusBadGateway,
	muxcore.CodeBackendNameConflict: http.StatusConflict,
	muxcore.CodeBackendNotFound:     http.StatusNotFound,
	muxcore.CodeInvalidWeight:       http.StatusBadRequest,
	muxcore.CodeKeyNotFound:         http.StatusNotFound,
	muxcore.CodeInvalidKey:          http.StatusBadRequest,
	muxcore.CodeKeyConflict:         http.StatusConflict,
	muxcore.CodeReadOnly:            http.StatusMethodNotAllowed,
	muxcore.CodePreconditionFailed:  http.StatusPreconditionFailed,
	muxcore.CodeNotModified:         http.StatusNotModified,
	muxcore.CodeRangeNotSatisfiable: http.StatusRequestedRangeNotSatisfiable,
	muxcore.CodeBodyMismatch:        http.StatusBadRequest,
	muxcore.CodeTooLarge:            http.StatusRequestEntityTooLarge,
	muxcore.CodeUnsupported:         http.StatusNotImplemented,
	muxcore.CodeDenied:              http.StatusBadGateway,
	muxcore.CodeCredentialExpired:   http.StatusBadGateway,
}

// statusOf is the one place that decides which status an error becomes: by its code, else by its class, for which an
// upstream's own 4xx is relayed.
func statusOf(err error, class muxcore.Class) int {
	if class == muxcore.ClassAbort {
		return statusClientGone
	}
	e, ok := errors.AsType[*muxcore.Error](err)
	if ok {
		if status, known := statuses[e.Code]; known {
			return status
		}
	}
	switch class {
	case muxcore.ClassTimeout:
		return http.StatusGatewayTimeout
	case muxcore.ClassSemantic:
		if ok && e.Status >= 400 && e.Status < 500 {
			return e.Status
		}
		return http.StatusBadGateway
	case muxcore.ClassDenied:
		return http.StatusBadGateway
	default:
		if ok && e.Op.Writes() {
			return http.StatusBadGateway // it was begun on a backend, and could not go on elsewhere
		}
		return http.StatusServiceUnavailable
	}
}

// errMissing says that the object to read does not exist, and that pass_thru has the next handler called for it.
var errMissing = errors.New("object does not exist")

// fail turns an error that came before the first byte of the answer into Caddy's, for handle_errors to handle.
func (x *exchange) fail(err error) error {
	x.erred(err)
	return x.failed(err)
}

// failed is fail for an error whose class is known already.
func (x *exchange) failed(err error) error {
	if earlier, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		return earlier // of a handler before this one, such as request_body
	}
	status := statusOf(err, x.result.class)
	h := x.w.Header()
	switch status {
	case http.StatusNotFound:
		if x.h.PassThru && (x.method == http.MethodGet || x.method == http.MethodHead) {
			return errMissing
		}
	case http.StatusMethodNotAllowed:
		h.Set("Allow", "GET, HEAD")
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", retryAfter(err))
	case http.StatusRequestedRangeNotSatisfiable:
		if info := muxcore.InfoOf(err); info != nil && info.Size >= 0 {
			h.Set("Content-Range", "bytes */"+strconv.FormatInt(info.Size, 10))
		}
	}
	return caddyhttp.Error(status, err)
}

// retryAfter is how long to wait in whole seconds, rounded up, at least 1.
func retryAfter(err error) string {
	wait := time.Duration(0)
	if e, ok := errors.AsType[*muxcore.Error](err); ok {
		wait = e.RetryAfter
	}
	seconds := max(1, (wait+time.Second-1)/time.Second)
	return strconv.FormatInt(int64(seconds), 10)
}

// missing is the error of a key that is not there, or not for anyone.
func (x *exchange) missing(key string) error {
	return x.fail(&muxcore.Error{Code: muxcore.CodeKeyNotFound, Key: key})
}

// refuse is an answer for which there is no code of a store: what the client sent makes no sense as HTTP.
func (x *exchange) refuse(status int, format string, args ...any) error {
	x.result.latency = time.Since(x.started)
	x.result.class = muxcore.ClassSemantic
	return caddyhttp.Error(status, fmt.Errorf(format, args...))
}

// notAllowed refuses the method.
func (x *exchange) notAllowed(allow string) error {
	x.w.Header().Set("Allow", allow)
	x.result.code = muxcore.CodeReadOnly
	return x.refuse(http.StatusMethodNotAllowed, "method not allowed")
}

// errNoTree is for a request that finds no tree: the rare one that reaches the handler after its config is gone and nothing took its
// place, and those to a tree that cannot be opened, which says why.
func errNoTree(w http.ResponseWriter, err error) error {
	w.Header().Set("Retry-After", "1")
	if errors.Is(err, errClosed) {
		err = errors.New("the config of this handler was unloaded")
	}
	return caddyhttp.Error(http.StatusServiceUnavailable, err)
}
