package caddymux

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

const (
	redrawInterval = 100 * time.Millisecond // on a terminal
	tellInterval   = 10 * time.Second       // elsewhere
	barWidth       = 30
)

// meter shows how far something is on standard error: as a bar that is redrawn on a terminal, else as a line now and then. It is
// an io.Writer that counts bytes. All methods are safe for concurrent use.
type meter struct {
	mu    sync.Mutex
	out   io.Writer
	live  bool // a terminal
	quiet bool
	what  string
	unit  string
	total int64 // -1 unknown
	done  int64
	begun time.Time
	shown time.Time
	drawn bool
}

// meter begins to show how far what is. Nothing is shown where data goes to the same terminal.
func (x *call) meter(what string, total int64, data io.Writer) *meter {
	return newMeter(x.errOut, isTerminal(x.errOut), data != nil && isTerminal(data), what, total)
}

func newMeter(out io.Writer, live, quiet bool, what string, total int64) *meter {
	now := time.Now()
	return &meter{out: out, live: live, quiet: quiet, what: visible(what), total: total, begun: now, shown: now}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) //nolint:gosec // descriptors are small
}

// Write counts bytes.
func (b *meter) Write(p []byte) (int, error) {
	b.count(int64(len(p)), "")
	return len(p), nil
}

// count adds n of a unit; "" is bytes.
func (b *meter) count(n int64, unit string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done, b.unit = b.done+n, unit
	b.tell()
}

// at says that n of a unit are done.
func (b *meter) at(n int64, unit string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done, b.unit = n, unit
	b.tell()
}

// tell must be called with b.mu held.
func (b *meter) tell() {
	every := tellInterval
	if b.live {
		every = redrawInterval
	}
	if b.quiet || time.Since(b.shown) < every {
		return
	}
	b.shown = time.Now()
	line := b.text(time.Since(b.begun))
	if b.live {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K", line)
		b.drawn = true
		return
	}
	_, _ = fmt.Fprintln(b.out, line)
}

// text is how far it is after some time.
func (b *meter) text(took time.Duration) string {
	amount := func(n int64) string { return fmt.Sprintf("%d %s", n, b.unit) }
	if b.unit == "" {
		amount = func(n int64) string { return humanize.IBytes(uint64(n)) } //nolint:gosec // never negative
	}
	rate := ""
	if seconds := took.Seconds(); seconds > 0 {
		rate = ", " + amount(int64(float64(b.done)/seconds)) + "/s"
	}
	if b.total <= 0 {
		return fmt.Sprintf("%s: %s%s", b.what, amount(b.done), rate)
	}
	share := min(1, float64(b.done)/float64(b.total))
	full := int(share * barWidth)
	bar := strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
	return fmt.Sprintf("%s: [%s] %3.0f %%, %s of %s%s", b.what, bar, share*100, amount(b.done), amount(b.total), rate)
}

// clear takes the bar away, so that a line can be written.
func (b *meter) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K")
		b.drawn = false
	}
}

// end takes the bar away for good.
func (b *meter) end() {
	b.clear()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quiet = true
}
