package muxcore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"time"
)

// CopyState is how what one backend holds at a key stands to what it should hold.
type CopyState string

// The states.
const (
	CopySame    CopyState = "same"    // as it should be, as far as anybody can tell
	CopyAbsent  CopyState = "absent"  // not there, and it need not be
	CopyMissing CopyState = "missing" // not there, and should be
	CopyExtra   CopyState = "extra"   // there, and should not be
	CopySize    CopyState = "size"    // of another length
	CopyDigest  CopyState = "digest"  // of other bytes
	CopyETag    CopyState = "etag"    // of another upload
	CopyCorrupt CopyState = "corrupt" // its bytes are not those of its own record, and nobody seems to have written there
	CopyAltered CopyState = "altered" // somebody has written there without asking us: it is no more what is recorded of it
	CopyUnknown CopyState = "unknown" // the backend could not be asked
)

// Differs tells whether something is wrong with the copy.
func (s CopyState) Differs() bool {
	return s != CopySame && s != CopyAbsent && s != CopyUnknown
}

// holding is what a backend holds at a key.
type holding struct {
	seat    *seat
	known   bool // what follows is
	held    bool
	info    Info
	sum     []byte // SHA-256 of the bytes, if they were read
	corrupt bool   // the bytes do not match what is recorded of them
	altered bool   // nor here, but that somebody has written there shows
	touched bool   // they do, although it does not look so
	stale   bool   // the journal knows of something newer
}

// good tells whether the holding could be a source.
func (h *holding) good() bool { return h.known && h.held && !h.corrupt && !h.altered }

// look asks the backend anew; deep reads the bytes as well. An error leaves the holding unknown.
func (h *holding) look(ctx context.Context, key string, deep bool) (err error) {
	*h = holding{seat: h.seat, stale: h.seat.m.outdated(key, h.seat.b)}
	if !deep {
		h.info, err = h.seat.stat(ctx, key, true)
	}
	if err == nil && (deep || h.suspect()) {
		h.info, h.sum, err = h.seat.checksum(ctx, key)
	}
	switch {
	case errors.Is(err, errCorrupt):
		h.known, h.held = true, true
		h.altered = h.info.Record != nil && h.info.Record.Noticed
		h.corrupt = !h.altered
		return nil
	case isMiss(err):
		h.known = true
		return nil
	}
	h.known, h.held = err == nil, err == nil
	if h.held {
		h.altered = h.info.resized()
		h.touched = h.suspect()
	}
	return err
}

// seen takes in what a list says of the object.
func (h *holding) seen(info *Info) {
	h.known, h.held, h.info = true, true, *info
	h.altered = info.resized()
}

// suspect tells whether only its bytes can say if the object was altered.
func (h *holding) suspect() bool {
	return h.info.Record != nil && !h.info.resized() && !h.info.Record.Digests.Empty()
}

// resized tells whether the length alone says that the object is not what is recorded of it.
func (i *Info) resized() bool {
	return i.Record != nil && i.Size >= 0 && i.Record.Size >= 0 && i.Size != i.Record.Size
}

// recorded is what the holding should be by what is recorded of it, whatever its bytes are now.
func (h *holding) recorded() *Info {
	if h.info.Record != nil {
		return &h.info.Record.Info
	}
	return &h.info
}

// identity describes the holding by what it is: a store that has yet to find out whether the bytes are what it has on record
// says nothing of who they are.
func (h *holding) identity() *Info {
	if h.touched && !h.info.Record.Noticed {
		return &h.info.Record.Info
	}
	return &h.info
}

// modTime is when the bytes of the holding came to be what they are: not when somebody touched it.
func (h *holding) modTime() time.Time {
	if h.touched {
		return h.info.Record.ModTime
	}
	return h.info.ModTime
}

// checksum reads the object and gives its SHA-256. Bytes that do not match what is recorded of them are errCorrupt.
func (s *seat) checksum(ctx context.Context, key string) (Info, []byte, error) {
	c := &copying{key: key, from: s, rules: copyRules{force: true}}
	defer c.end()
	if err := c.open(ctx); err != nil {
		return Info{}, nil, err
	}
	sum := sha256.New()
	var on Digests // record
	if c.info.Record != nil {
		on = c.info.Record.Digests
	}
	// The end of a body that is not what the record says is held back from whoever reads it: the sum is made before.
	record := CheckBody(io.TeeReader(c.body, sum), c.body.size, on)
	if _, err := io.Copy(io.Discard, record); err != nil {
		switch {
		case ctx.Err() != nil:
			return Info{}, nil, s.m.aborted(ctx, &call{op: OpGet, key: key}, 1)
		case c.body.Complete():
			return c.info, sum.Sum(nil), errCorrupt
		}
		return c.info, nil, c.broken(ctx)
	}
	return c.info, sum.Sum(nil), nil
}

// compare is the state of a copy against the one that it should equal. What cannot be compared is taken to be the same:
// foreign ETags are each backend's own word, and so are times.
func compare(should, is *holding) CopyState {
	a, b := should.identity(), is.identity()
	switch {
	case a.Size >= 0 && b.Size >= 0 && a.Size != b.Size:
		return CopySize
	case should.sum != nil && is.sum != nil:
		if !bytes.Equal(should.sum, is.sum) {
			return CopyDigest
		}
	case a.Digests.contradict(&b.Digests):
		return CopyDigest
	}
	if a.ETagStored && b.ETagStored {
		if a.ETag != b.ETag {
			return CopyETag
		}
		return CopySame
	}
	// Of two that both keep what we give them, one has our identity and the other does not: not the same upload.
	if a.ETagStored != b.ETagStored && should.seat.b.abilities().Metadata && is.seat.b.abilities().Metadata {
		return CopyETag
	}
	return CopySame
}

// contradict tells whether a digest that both know differs.
func (d *Digests) contradict(other *Digests) bool {
	for _, both := range [][2][]byte{{d.SHA256, other.SHA256}, {d.SHA512, other.SHA512}, {d.MD5, other.MD5}} {
		if both[0] != nil && both[1] != nil && !bytes.Equal(both[0], both[1]) {
			return true
		}
	}
	return false
}

// doubtful tells whether the backend has missed more than is remembered.
func (h *holding) doubtful() bool {
	return h.seat.m.pending() && h.seat.m.journal.Doubtful(h.seat.b.Name)
}

// newer tells whether a is the better candidate for the truth than b: not known to be out of date, not altered, and last modified later. If they
// seem to be of one time, the copy is better that is of a backend not in doubt, or has an identity of ours.
func newer(a, b *holding) bool {
	order := compareTimes(a.modTime(), b.modTime())
	switch doubt := a.doubtful(); {
	case a.stale != b.stale:
		return b.stale
	case a.altered != b.altered:
		return b.altered
	case order != 0:
		return order > 0
	case doubt != b.doubtful():
		return !doubt
	}
	return a.identity().ETagStored && !b.identity().ETagStored
}

// compareTimes tells which of two modification times is the later one, or 0. Some backends keep whole seconds: those are of one time
// with all others in their second.
func compareTimes(a, b time.Time) int {
	if a.Nanosecond() == 0 || b.Nanosecond() == 0 {
		return cmp.Compare(a.Unix(), b.Unix())
	}
	return a.Compare(b)
}
