package muxcore

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"
)

// Code names a kind of error. Operators see it in logs, placeholders and answers.
type Code string

// Codes of the mux.
const (
	CodeAllBackendsDown         Code = "STORAGE_MUX.ALL_BACKENDS_DOWN"         // no backend could be asked, or none of those asked answered
	CodeBackendTimeout          Code = "STORAGE_MUX.BACKEND_TIMEOUT"           // the last attempt made no progress within its timeout
	CodeBackendAborted          Code = "STORAGE_MUX.BACKEND_ABORTED"           // the caller gave up
	CodeBackendDraining         Code = "STORAGE_MUX.BACKEND_DRAINING"          // internal: chosen, but draining by now
	CodeHealthcheckFailed       Code = "STORAGE_MUX.HEALTHCHECK_FAILED"        // cause of a backend marked down by an active check
	CodeWriteFanoutPartial      Code = "STORAGE_MUX.WRITE_FANOUT_PARTIAL"      // a write reached some backends, and that is not enough
	CodeRecursionDepthExceeded  Code = "STORAGE_MUX.RECURSION_DEPTH_EXCEEDED"  // muxes nested deeper than MaxDepth, or in a cycle
	CodeInvalidWeight           Code = "STORAGE_MUX.INVALID_WEIGHT"            // negative weight
	CodeWeightedRequiresWeights Code = "STORAGE_MUX.WEIGHTED_REQUIRES_WEIGHTS" // weighted without any positive weight
	CodeBackendNameConflict     Code = "STORAGE_MUX.BACKEND_NAME_CONFLICT"     // two backends of one name
	CodeBackendNotFound         Code = "STORAGE_MUX.BACKEND_NOT_FOUND"         // no backend of that name
	CodeMirrorOriginRequired    Code = "STORAGE_MUX.MIRROR_ORIGIN_REQUIRED"    // shield without an origin
)

// Codes of stores.
const (
	CodeKeyNotFound         Code = "STORAGE.KEY_NOT_FOUND"
	CodeInvalidKey          Code = "STORAGE.INVALID_KEY"
	CodeKeyConflict         Code = "STORAGE.KEY_CONFLICT" // a key below an object, or an object above keys
	CodeReadOnly            Code = "STORAGE.READ_ONLY"
	CodePreconditionFailed  Code = "STORAGE.PRECONDITION_FAILED"
	CodeNotModified         Code = "STORAGE.NOT_MODIFIED"          // the read's conditions say that the caller has it
	CodeRangeNotSatisfiable Code = "STORAGE.RANGE_NOT_SATISFIABLE" // the range lies past the end; Info.Size says where that is
	CodeBodyMismatch        Code = "STORAGE.BODY_MISMATCH"         // a write's body is not what was declared: length or digest
	CodeTooLarge            Code = "STORAGE.TOO_LARGE"             // larger than the store takes
	CodeUnsupported         Code = "STORAGE.UNSUPPORTED"           // the store cannot do this at all
	CodeDenied              Code = "STORAGE.DENIED"                // the store answers, but will not let us: 401, 403, 407, EACCES
	CodeUnavailable         Code = "STORAGE.UNAVAILABLE"           // the store failed: 5xx, 408, 429, a broken connection, an I/O error
	CodeCredentialExpired   Code = "STORAGE_CDN.CREDENTIAL_EXPIRED"
)

// Sentinels for [errors.Is]: an [*Error] of the same code matches, wherever it stands in the chain.
var (
	ErrAllBackendsDown     error = &Error{Code: CodeAllBackendsDown}
	ErrKeyNotFound         error = &Error{Code: CodeKeyNotFound} // such errors match fs.ErrNotExist as well
	ErrInvalidKey          error = &Error{Code: CodeInvalidKey}
	ErrKeyConflict         error = &Error{Code: CodeKeyConflict}
	ErrReadOnly            error = &Error{Code: CodeReadOnly}
	ErrPreconditionFailed  error = &Error{Code: CodePreconditionFailed}
	ErrNotModified         error = &Error{Code: CodeNotModified}
	ErrRangeNotSatisfiable error = &Error{Code: CodeRangeNotSatisfiable}
	ErrBodyMismatch        error = &Error{Code: CodeBodyMismatch}
	ErrUnsupported         error = &Error{Code: CodeUnsupported} // such errors match errors.ErrUnsupported as well
)

// Error is the one error type of stores and muxes: what went wrong (Code), where (Op, Backend, Key), and why (Err).
// All fields but Code are optional.
type Error struct {
	Code     Code
	Op       Op
	Backend  string // dotted through nested muxes: "eu.a"
	Key      string
	Attempts int // calls made to backends, by a mux

	// Status is the HTTP status with which a remote store answered, 0 where there was none.
	Status int

	// RetryAfter is how long to wait before asking again, 0 where nobody knows.
	RetryAfter time.Duration

	// Unsure says, with CodeAllBackendsDown, that somebody answered and does not have the key, but not everybody who
	// could have it could be asked: the answer is open, and nobody's failure.
	Unsure bool

	// Info describes the object as far as an answer without a body still tells it: with CodeNotModified,
	// CodePreconditionFailed and CodeRangeNotSatisfiable.
	Info *Info

	Err error
}

// Error joins what is known, most general first: op, key, backend, code, cause.
func (e *Error) Error() string { return e.text(OpNone, "") }

// text leaves out what the error around this one has said: what was done, and to which key.
func (e *Error) text(op Op, key string) string {
	var b strings.Builder
	if e.Op != OpNone && e.Op != op {
		b.WriteString(e.Op.String())
		b.WriteByte(' ')
	}
	if e.Key != "" && e.Key != key {
		b.WriteString(strconv.Quote(e.Key))
		b.WriteByte(' ')
	}
	if e.Backend != "" {
		b.WriteString("(backend ")
		b.WriteString(strconv.Quote(e.Backend))
		b.WriteString(") ")
	}
	b.WriteString(string(e.Code))
	if e.Status != 0 {
		b.WriteString(" (status ")
		b.WriteString(strconv.Itoa(e.Status))
		b.WriteByte(')')
	}
	if inner, ok := e.Err.(*Error); ok && inner != nil { //nolint:errorlint // what is wrapped has a text of its own
		b.WriteString(": ")
		b.WriteString(inner.text(e.Op, e.Key))
	} else if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors of one code equal, and lets people who never met this package test for absence and lack of support.
func (e *Error) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Code == CodeKeyNotFound
	case errors.ErrUnsupported:
		return e.Code == CodeUnsupported
	}
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Err == nil && t.Key == "" && t.Backend == ""
}

// At is the error with which a store says where something went wrong. What has a code keeps it, with all that it tells; any
// other error is the cause of CodeUnavailable. err must not be nil.
func At(op Op, key string, err error) *Error {
	located := Error{Code: CodeUnavailable, Err: err}
	if e, ok := errors.AsType[*Error](err); ok {
		located = *e
		if e != err { //nolint:errorlint // only the outermost can be replaced without losing what wraps it
			located.Err = err
		}
	}
	located.Op, located.Key = op, key
	return &located
}

// CodeOf is the code of the outermost [*Error] in err's chain, or "" without one.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// InfoOf is what err tells of the object, or nil.
func InfoOf(err error) *Info {
	for err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return nil
		}
		if e.Info != nil {
			return e.Info
		}
		err = e.Err
	}
	return nil
}
