package breaker

import "time"

// Code says why a call was refused or what went wrong.
type Code string

// The codes of this package.
const (
	// CodePathOpen refuses a call because the path is open.
	CodePathOpen Code = "CB.PATH_OPEN"
	// CodePathHalfOpenRejected refuses a call because all trials are taken.
	CodePathHalfOpenRejected Code = "CB.PATH_HALF_OPEN_REJECTED"
	// CodePathFull refuses a call because Settings.MaxConcurrent calls are on their way.
	CodePathFull Code = "CB.PATH_FULL"
	// CodeProbeFailed marks what a failed probe reports.
	CodeProbeFailed Code = "CB.PROBE_FAILED"
	// CodeRegistryPathNotFound marks a path that a registry does not hold.
	CodeRegistryPathNotFound Code = "CB.REGISTRY_PATH_NOT_FOUND"
)

// Sentinels for errors.Is; each matches every [Error] of its code.
var (
	ErrPathOpen             error = &Error{Code: CodePathOpen}
	ErrPathHalfOpenRejected error = &Error{Code: CodePathHalfOpenRejected}
	ErrPathFull             error = &Error{Code: CodePathFull}
	ErrProbeFailed          error = &Error{Code: CodeProbeFailed}
	ErrRegistryPathNotFound error = &Error{Code: CodeRegistryPathNotFound}
)

// Error is the one error type of this package. Values that Allow returns are
// shared between callers and must not be changed.
type Error struct {
	// Code says what happened.
	Code Code
	// Path is the path it happened on.
	Path string
	// RetryAt is when the next trial is due; zero where that is not known.
	RetryAt time.Time
	// Err is the cause, if there is one.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	msg := string(e.Code)
	if e.Path != "" {
		msg += ": " + e.Path
	}
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is matches errors of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error) // one link: errors.Is does the unwrapping
	return ok && t.Code == e.Code && (t.Path == "" || t.Path == e.Path)
}
