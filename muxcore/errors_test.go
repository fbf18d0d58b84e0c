package muxcore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

func TestErrorsMatchByCode(t *testing.T) {
	deep := fmt.Errorf("serving: %w", &Error{Code: CodeKeyNotFound, Op: OpGet, Backend: "eu.a", Key: "k", Err: errors.New("no such file")})
	for name, row := range map[string]struct {
		err, target error
		want        bool
	}{
		"its own sentinel":            {deep, ErrKeyNotFound, true},
		"another sentinel":            {deep, ErrInvalidKey, false},
		"fs.ErrNotExist":              {deep, fs.ErrNotExist, true},
		"not fs.ErrNotExist":          {ErrInvalidKey, fs.ErrNotExist, false},
		"errors.ErrUnsupported":       {&Error{Code: CodeUnsupported}, errors.ErrUnsupported, true},
		"not errors.ErrUnsupported":   {deep, errors.ErrUnsupported, false},
		"the cause":                   {&Error{Code: CodeUnavailable, Err: context.Canceled}, context.Canceled, true},
		"a code below another":        {&Error{Code: CodeAllBackendsDown, Err: deep}, ErrKeyNotFound, true},
		"a target that is more exact": {deep, &Error{Code: CodeKeyNotFound, Key: "other"}, false},
	} {
		if got := errors.Is(row.err, row.target); got != row.want {
			t.Errorf("%s: errors.Is(%v, %v) = %t, want %t", name, row.err, row.target, got, row.want)
		}
	}
	if e, ok := errors.AsType[*Error](deep); !ok || e.Backend != "eu.a" || e.Key != "k" {
		t.Errorf("errors.AsType gives %+v, %t", e, ok)
	}
}

func TestErrorsSayWhatIsKnown(t *testing.T) {
	for want, e := range map[string]*Error{
		"STORAGE.KEY_NOT_FOUND": {Code: CodeKeyNotFound},
		`get "k" (backend "eu.a") STORAGE.UNAVAILABLE (status 503): try later`: {
			Code: CodeUnavailable, Op: OpGet, Key: "k", Backend: "eu.a", Status: 503, Err: errors.New("try later"),
		},
		`put "a\nb" STORAGE.INVALID_KEY`: {Code: CodeInvalidKey, Op: OpPut, Key: "a\nb"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("Error() = %q, want %q", got, want)
		}
	}
}

// What the error around it has said already, an error does not repeat.
func TestErrorsRepeatNothing(t *testing.T) {
	inner := &Error{Code: CodeDenied, Op: OpGet, Key: "k", Status: 403, Err: errors.New("why")}
	for want, outer := range map[string]*Error{
		`get "k" (backend "b") STORAGE.DENIED: STORAGE.DENIED (status 403): why`: {Code: CodeDenied, Op: OpGet, Key: "k", Backend: "b", Err: inner},
		`stat "k" STORAGE.DENIED: get STORAGE.DENIED (status 403): why`:          {Code: CodeDenied, Op: OpStat, Key: "k", Err: inner},
		`get "l" STORAGE.DENIED: "k" STORAGE.DENIED (status 403): why`:           {Code: CodeDenied, Op: OpGet, Key: "l", Err: inner},
	} {
		if got := outer.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestCodeAndInfoComeFromTheChain(t *testing.T) {
	info := &Info{Key: "k", Size: 7}
	inner := &Error{Code: CodeNotModified, Info: info}
	outer := fmt.Errorf("twice: %w", &Error{Code: CodeAllBackendsDown, Err: fmt.Errorf("wrapped: %w", inner)})
	if got := CodeOf(outer); got != CodeAllBackendsDown {
		t.Errorf("CodeOf = %q, want that of the outermost", got)
	}
	if got := InfoOf(outer); got != info {
		t.Errorf("InfoOf = %v, want that of the inner error", got)
	}
	if CodeOf(nil) != "" || CodeOf(errors.New("x")) != "" || InfoOf(nil) != nil || InfoOf(errors.New("x")) != nil || InfoOf(&Error{Code: CodeReadOnly}) != nil {
		t.Error("CodeOf or InfoOf of errors without any gives something")
	}
}

func TestAtKeepsWhatAnErrorTells(t *testing.T) {
	cause := errors.New("why")
	known := &Error{Code: CodeDenied, Op: OpGet, Key: "old", Status: 403, Err: cause}
	wrapped := fmt.Errorf("reading: %w", known)
	for want, err := range map[string]error{
		`put "k" STORAGE.UNAVAILABLE: why`:                                                         cause,
		`put "k" STORAGE.DENIED (status 403): why`:                                                 known,
		`put "k" STORAGE.DENIED (status 403): reading: get "old" STORAGE.DENIED (status 403): why`: wrapped,
	} {
		if got := At(OpPut, "k", err); got.Error() != want || !errors.Is(got, cause) {
			t.Errorf("At(put, %q, %v) = %v, want %s, because of %v", "k", err, got, want, cause)
		}
	}
	if known.Op != OpGet || known.Key != "old" {
		t.Errorf("At changed the error that it was given: %v", known)
	}
}

func TestOpsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for op := OpNone; op <= OpHealth; op++ {
		if name := op.String(); name == "" || seen[name] || strings.ToLower(name) != name {
			t.Errorf("Op(%d).String() = %q", op, name)
		}
		seen[op.String()] = true
		if got, want := op.Writes(), op == OpPut || op == OpDelete; got != want {
			t.Errorf("%v.Writes() = %t, want %t", op, got, want)
		}
	}
}
