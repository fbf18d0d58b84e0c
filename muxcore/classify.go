package muxcore

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
)

// Class says what the end of a call means: for the operation, and for the health of the backend.
type Class uint8

// The classes.
const (
	ClassOK        Class = iota
	ClassTransient       // the backend failed: move on, and count it
	ClassTimeout         // the backend made no progress: as transient
	ClassSemantic        // the backend answered, and the answer is no: final, by rule, and never its fault
	ClassDenied          // the backend answers, but could not be asked: it will not let us, or is not sure. Move on, do not count it
	ClassAbort           // the caller gave up: final, never anybody's fault
)

var classNames = [...]string{"ok", "transient", "timeout", "semantic", "denied", "abort"}

// String is the class's name in events and stats.
func (c Class) String() string { return classNames[c] }

// Outcome is the class as spans and metrics name it: ok, transient, semantic, abort or timeout.
func (c Class) Outcome() string {
	if c == ClassDenied {
		return ClassSemantic.String()
	}
	return c.String()
}

// Counts tells whether the backend is to blame.
func (c Class) Counts() bool { return c == ClassTransient || c == ClassTimeout }

// MovesOn tells whether another backend is to be asked.
func (c Class) MovesOn() bool { return c.Counts() || c == ClassDenied }

var codeClasses = map[Code]Class{
	CodeAllBackendsDown:         ClassTransient,
	CodeBackendTimeout:          ClassTimeout,
	CodeBackendAborted:          ClassAbort,
	CodeBackendDraining:         ClassTransient,
	CodeHealthcheckFailed:       ClassTransient,
	CodeWriteFanoutPartial:      ClassTransient,
	CodeRecursionDepthExceeded:  ClassSemantic,
	CodeInvalidWeight:           ClassSemantic,
	CodeWeightedRequiresWeights: ClassSemantic,
	CodeBackendNameConflict:     ClassSemantic,
	CodeBackendNotFound:         ClassSemantic,
	CodeMirrorOriginRequired:    ClassSemantic,
	CodeKeyNotFound:             ClassSemantic,
	CodeInvalidKey:              ClassSemantic,
	CodeKeyConflict:             ClassSemantic,
	CodeReadOnly:                ClassSemantic,
	CodePreconditionFailed:      ClassSemantic,
	CodeNotModified:             ClassSemantic,
	CodeRangeNotSatisfiable:     ClassSemantic,
	CodeBodyMismatch:            ClassSemantic,
	CodeTooLarge:                ClassSemantic,
	CodeUnsupported:             ClassSemantic,
	CodeDenied:                  ClassDenied,
	CodeCredentialExpired:       ClassDenied,
}

// Classify is the one place that decides what an error means. caller is the context of whoever asked the mux, not the
// one under which the backend was called: once caller has ended, whatever comes is an abort; a cancellation while it has
// not is somebody else's, and the backend's failure. The order: nil, the caller's end, timeouts by the mux, the code and
// status of the outermost [*Error], what the standard library's errors say; the unknown is transient.
func Classify(caller context.Context, err error) Class {
	if err == nil {
		return ClassOK
	}
	if caller.Err() != nil {
		return ClassAbort
	}
	e, coded := errors.AsType[*Error](err)
	if coded {
		if e.Unsure {
			return ClassDenied
		}
		if class, ok := codeClasses[e.Code]; ok {
			return class
		}
		if e.Status != 0 {
			return classifyStatus(e.Status)
		}
	}
	var nerr net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &nerr) && nerr.Timeout():
		return ClassTimeout
	case coded:
		return ClassTransient
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid), errors.Is(err, errors.ErrUnsupported):
		return ClassSemantic
	case errors.Is(err, fs.ErrPermission):
		return ClassDenied
	}
	return ClassTransient
}

// classifyStatus is the row of the table for HTTP answers.
func classifyStatus(status int) Class {
	switch {
	case status == 401, status == 403, status == 407:
		return ClassDenied
	case status == 408, status == 429:
		return ClassTransient
	case status >= 400 && status < 500:
		return ClassSemantic
	}
	return ClassTransient
}

// codeOf is the code for an error that came without one.
func codeOf(err error) Code {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return CodeKeyNotFound
	case errors.Is(err, fs.ErrInvalid):
		return CodeInvalidKey
	case errors.Is(err, fs.ErrPermission):
		return CodeDenied
	case errors.Is(err, errors.ErrUnsupported):
		return CodeUnsupported
	}
	return CodeUnavailable
}

// isMiss tells whether err says that there is no such object.
func isMiss(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code == CodeKeyNotFound
	}
	return errors.Is(err, fs.ErrNotExist)
}

// provesLife tells whether the end of a call is a word of the backend itself, so that a trial has succeeded. What a store
// refuses before it asks anybody is not, nor what became of the uploader's body.
func provesLife(class Class, err error) bool {
	if class == ClassAbort {
		return false
	}
	switch CodeOf(err) { //nolint:exhaustive // all others are answers
	case CodeInvalidKey, CodeUnsupported, CodeReadOnly, CodeBodyMismatch:
		return false
	}
	return true
}
