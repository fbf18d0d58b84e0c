package caddybreaker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// verdict is what a call says about its path.
type verdict struct {
	outcome    breaker.Outcome
	cause      string
	retryAfter time.Duration
}

// brokenRequest is why a call that the client did not finish is neutral.
const brokenRequest = "the request body broke off"

var wentWell = verdict{outcome: breaker.Success}

func neutral(cause string) verdict { return verdict{outcome: breaker.Neutral, cause: cause} }

func failure(cause string) verdict { return verdict{outcome: breaker.Failure, cause: cause} }

// firstStatus is the lowest there is.
const firstStatus = 100

// classes says what each status means, by number.
type classes [600]breaker.Outcome

func newClasses(o Options) classes {
	var c classes // zero: success
	mark := func(words []string, as breaker.Outcome) {
		for _, word := range words {
			first, last, err := parseStatus(word)
			for s := first; err == nil && s <= last; s++ {
				c[s] = as
			}
		}
	}
	mark(o.FailureStatus, breaker.Failure)
	mark(o.IgnoreStatus, breaker.Neutral)
	return c
}

// status judges an answer by its status and header alone. A 429 or 503 that says
// when to come back is a failure, whether failure_status lists it or not: there
// is no other way to do what it asks for. ignore_status is the way not to.
func (c *classes) status(code int, header http.Header) verdict {
	switch {
	case code < firstStatus: // not HTTP: Caddy cannot pass it on
		return failure("status " + strconv.Itoa(code))
	case code >= len(c):
		return wentWell
	}
	v := verdict{outcome: c[code]}
	if v.outcome != breaker.Neutral && (code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable) {
		var asked bool
		if v.retryAfter, asked = parseRetryAfter(header.Get("Retry-After")); asked {
			v.outcome = breaker.Failure
		}
	}
	switch v.outcome {
	case breaker.Failure:
		v.cause = "status " + strconv.Itoa(code)
	case breaker.Neutral:
		v.cause = "ignored status " + strconv.Itoa(code)
	default:
	}
	return v
}

// broken judges a call that ended in err. Whatever our side did is neutral: a
// client that left, a request body that the client did not finish, or a reload.
func broken(ctx context.Context, err error, up *upload, doing string) verdict {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(ctx.Err(), context.Canceled):
		return neutral("the client went away")
	case up.failed():
		return neutral(brokenRequest)
	case lostToReload(err):
		return neutral("a reload closed the connection")
	}
	cause := err.Error()
	// Of the usual nest of wrappers, operators need the innermost.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		cause = op.Op + ": " + op.Err.Error()
	}
	return failure(doing + cause)
}

// parseStatus reads a code or a class, as the range it stands for.
func parseStatus(word string) (first, last int, err error) {
	class, isClass := strings.CutSuffix(strings.ToLower(word), "xx")
	n, convErr := strconv.Atoi(or(class, "?"))
	switch {
	case convErr == nil && isClass && len(class) == 1 && n >= 1 && n <= 5:
		return n * 100, n*100 + 99, nil
	case convErr == nil && !isClass && len(word) == 3 && n >= 100 && n <= 599:
		return n, n, nil
	}
	return 0, 0, fmt.Errorf("must be a status from 100 to 599 or a class from 1xx to 5xx, got '%s'", word)
}

// parseRetryAfter reads seconds, however many, or a date, and reports whether it
// is one of these. What is over by now is 0.
func parseRetryAfter(value string) (wait time.Duration, ok bool) {
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		const most = uint64(math.MaxInt64 / time.Second)
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil || seconds > most { // more than can be said
			seconds = most
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return max(0, time.Until(at)), true
}
