package muxcore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
)

func status(s int) error { return &Error{Code: CodeUnavailable, Status: s} }

// The rows of the table in section 4 of the storage-mux seed, and what the contract says beyond it (1.2, "Answering is
// health, having is not").
func TestClassifyFollowsTheTable(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
		want Class
	}{
		{"no error", nil, ClassOK},
		{"seeds: key not found", ErrKeyNotFound, ClassSemantic},
		{"seeds: invalid key", ErrInvalidKey, ClassSemantic},
		{"contract: credential expired is denied", &Error{Code: CodeCredentialExpired}, ClassDenied},
		{"seeds: the mux's own timeout", &Error{Code: CodeBackendTimeout}, ClassTimeout},
		{"seeds: connection reset", fmt.Errorf("reading: %w", syscall.ECONNRESET), ClassTransient},
		{"seeds: connection refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, ClassTransient},
		{"seeds: connection timed out", &net.OpError{Op: "read", Err: syscall.ETIMEDOUT}, ClassTimeout},
		{"seeds: no such host", &net.DNSError{Err: "no such host", IsNotFound: true}, ClassTransient},
		{"seeds: an unknown error", errors.New("who knows"), ClassTransient},
		{"seeds: draining", &Error{Code: CodeBackendDraining}, ClassTransient},
		{"a short body", io.ErrUnexpectedEOF, ClassTransient},
		{"a deadline of the backend", context.DeadlineExceeded, ClassTimeout},
		{"a deadline of a connection", os.ErrDeadlineExceeded, ClassTimeout},
		{"a deadline behind a code that says nothing of it", &Error{Code: CodeUnavailable, Err: context.DeadlineExceeded}, ClassTimeout},
		{"a cancellation that is not the caller's", context.Canceled, ClassTransient},
		{"an unavailable store", &Error{Code: CodeUnavailable}, ClassTransient},
		{"an unavailable store whose root is missing", &Error{Code: CodeUnavailable, Err: fs.ErrNotExist}, ClassTransient},
		{"all backends of a nested mux down", ErrAllBackendsDown, ClassTransient},
		{"a code that nobody knows", &Error{Code: "OTHER.CODE"}, ClassTransient},
		{"a missing file", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, ClassSemantic},
		{"a denied file", &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, ClassDenied},
		{"denied", &Error{Code: CodeDenied}, ClassDenied},
		{"unsupported", errors.ErrUnsupported, ClassSemantic},
		{"a client's wrong body", ErrBodyMismatch, ClassSemantic},
		{"a client's large body", &Error{Code: CodeTooLarge}, ClassSemantic},
		{"not modified", ErrNotModified, ClassSemantic},
		{"precondition failed", ErrPreconditionFailed, ClassSemantic},
		{"range not satisfiable", ErrRangeNotSatisfiable, ClassSemantic},
		{"the outermost code counts", &Error{Code: CodeUnavailable, Err: ErrKeyNotFound}, ClassTransient},
	} {
		if got := Classify(t.Context(), row.err); got != row.want {
			t.Errorf("%s: Classify(%v) = %v, want %v", row.name, row.err, got, row.want)
		}
	}
}

func TestClassifyKnowsEveryStatus(t *testing.T) {
	for s := 100; s < 600; s++ {
		want := ClassTransient
		switch {
		case s == 401, s == 403, s == 407:
			want = ClassDenied
		case s == 408, s == 429:
		case s >= 400 && s < 500:
			want = ClassSemantic
		}
		if got := Classify(t.Context(), status(s)); got != want {
			t.Errorf("Classify(status %d) = %v, want %v", s, got, want)
		}
		coded := &Error{Code: CodeKeyNotFound, Status: s}
		if got := Classify(t.Context(), coded); got != ClassSemantic {
			t.Errorf("Classify(%v) = %v: a code that says all beats the status", coded, got)
		}
	}
}

func TestNothingThatComesAfterTheCallerLeftIsTheBackendsFault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range randomErrors(200) {
		if got := Classify(ctx, err); got != ClassAbort {
			t.Errorf("Classify(%v) after the caller left = %v, want abort", err, got)
		}
	}
	if got := Classify(ctx, nil); got != ClassOK {
		t.Errorf("Classify(nil) after the caller left = %v, want ok", got)
	}
}

func TestWrappingDoesNotChangeTheClass(t *testing.T) {
	for _, err := range randomErrors(500) {
		want := Classify(t.Context(), err)
		if got := Classify(t.Context(), fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("Classify(wrapped %v) = %v, bare it is %v", err, got, want)
		}
		if got := Classify(t.Context(), errors.Join(err)); got != want {
			t.Errorf("Classify(joined %v) = %v, bare it is %v", err, got, want)
		}
	}
}

// randomErrors are chains of causes and codes.
func randomErrors(n int) []error {
	leaves := []error{
		io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, fs.ErrNotExist, fs.ErrPermission, syscall.ECONNRESET, syscall.ETIMEDOUT,
		os.ErrDeadlineExceeded, errors.ErrUnsupported, errors.New("x"),
	}
	codes := []Code{"", "UNKNOWN", CodeUnavailable}
	for code := range codeClasses {
		codes = append(codes, code)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var all []error
	for range n {
		err := leaves[rnd.IntN(len(leaves))]
		for range rnd.IntN(4) {
			err = &Error{Code: codes[rnd.IntN(len(codes))], Status: []int{0, 0, 404, 500, 403, 429}[rnd.IntN(6)], Err: err}
		}
		all = append(all, err)
	}
	return all
}

func TestEveryClassHasANameAndAnOutcome(t *testing.T) {
	for class, want := range map[Class]struct {
		name, outcome  string
		counts, moveOn bool
	}{
		ClassOK:        {"ok", "ok", false, false},
		ClassTransient: {"transient", "transient", true, true},
		ClassTimeout:   {"timeout", "timeout", true, true},
		ClassSemantic:  {"semantic", "semantic", false, false},
		ClassDenied:    {"denied", "semantic", false, true},
		ClassAbort:     {"abort", "abort", false, false},
	} {
		if class.String() != want.name || class.Outcome() != want.outcome || class.Counts() != want.counts || class.MovesOn() != want.moveOn {
			t.Errorf("class %d: %q, %q, counts %t, moves on %t, want %+v", class, class, class.Outcome(), class.Counts(), class.MovesOn(), want)
		}
	}
}
