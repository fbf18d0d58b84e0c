package breaker

import "time"

// windowBuckets is how finely the rolling window forgets: a tenth at a time.
const windowBuckets = 10

// window counts calls and failures over the last while. It must be used with
// the breaker's lock held.
type window struct {
	width   time.Duration // of one bucket
	start   time.Time     // of the bucket at head
	head    int
	buckets [windowBuckets]struct{ calls, failures int }
	calls   int
	failed  int
}

func newWindow(length time.Duration, now time.Time) *window {
	return &window{width: max(length/windowBuckets, 1), start: now}
}

// add books one call, after dropping what is too old.
func (w *window) add(now time.Time, failed bool) {
	w.roll(now)
	w.buckets[w.head].calls++
	w.calls++
	if failed {
		w.buckets[w.head].failures++
		w.failed++
	}
}

// roll moves head to the bucket of now and empties the ones it passes.
func (w *window) roll(now time.Time) {
	behind := now.Sub(w.start) / w.width
	if behind <= 0 {
		return
	}
	w.start = w.start.Add(behind * w.width)
	for range min(behind, windowBuckets) {
		w.head = (w.head + 1) % windowBuckets
		w.calls -= w.buckets[w.head].calls
		w.failed -= w.buckets[w.head].failures
		w.buckets[w.head].calls, w.buckets[w.head].failures = 0, 0
	}
}
