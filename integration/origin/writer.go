package origin

import (
	"net/http"
	"strconv"
	"time"
)

// waiter waits for the end of a fault: the client left, the script changed or
// the origin closed.
type waiter struct {
	done []<-chan struct{} // client gone, faults changed, origin closed
}

// wait returns when the fault is over.
func (w waiter) wait() {
	select {
	case <-w.done[0]:
	case <-w.done[1]:
	case <-w.done[2]:
	}
}

// pause waits for d, or less when the fault is over before.
func (w waiter) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.done[0]:
	case <-w.done[1]:
	case <-w.done[2]:
	}
}

// faultyWriter breaks the answer's body as the faults say. It hides the
// optional methods of the writer below, so that every byte passes Write.
type faultyWriter struct {
	http.ResponseWriter
	f           *Faults
	over        waiter
	sent        int64
	wroteHeader bool
}

// Unwrap lets http.ResponseController reach the connection.
func (w *faultyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the header, with a length that lies or is missing if asked for.
func (w *faultyWriter) WriteHeader(status int) {
	if w.wroteHeader {
		return
	}
	w.wroteHeader = true
	h := w.Header()
	if w.f.Chunked {
		h.Del("Content-Length")
	}
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && w.f.ShortBy > 0 {
		h.Set("Content-Length", strconv.FormatInt(n+w.f.ShortBy, 10))
	}
	w.ResponseWriter.WriteHeader(status)
	if w.f.Chunked {
		w.flush() // or net/http would count a small body and declare its length after all
	}
}

// Write sends p piece by piece, up to the offset where the body breaks.
func (w *faultyWriter) Write(p []byte) (int, error) {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	written := 0
	for len(p) > 0 {
		n := w.next(int64(len(p)))
		m, err := w.ResponseWriter.Write(p[:n])
		written += m
		w.sent += int64(m)
		if err != nil {
			return written, err
		}
		p = p[n:]
		w.breakOff()
		if w.f.Drip > 0 && len(p) > 0 {
			w.flush()
			w.over.pause(w.dripEvery())
		}
	}
	return written, nil
}

// next returns how many of n bytes go out before something happens.
func (w *faultyWriter) next(n int64) int64 {
	for _, at := range []int64{w.f.ResetAfter, w.f.CutAfter, w.f.StallAfter} {
		if at > w.sent {
			n = min(n, at-w.sent)
		}
	}
	if w.f.Drip > 0 {
		n = min(n, w.f.Drip)
	}
	return n
}

// breakOff ends the answer when its offset is reached.
func (w *faultyWriter) breakOff() {
	switch {
	case w.f.ResetAfter > 0 && w.sent >= w.f.ResetAfter:
		w.flush()
		reset(w)
	case w.f.CutAfter > 0 && w.sent >= w.f.CutAfter:
		w.flush()
		panic(http.ErrAbortHandler)
	case w.f.StallAfter > 0 && w.sent >= w.f.StallAfter:
		w.flush()
		w.over.wait()
		panic(http.ErrAbortHandler)
	}
}

func (w *faultyWriter) dripEvery() time.Duration {
	if w.f.DripEvery > 0 {
		return w.f.DripEvery
	}
	return defaultDripEvery
}

func (w *faultyWriter) flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
