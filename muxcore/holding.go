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
	CopyCorrupt CopyState = "corrupt" // its bytes are not those of its own record
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
	stale   bool   // the journal knows of something newer
}

// good tells whether the holding could be a source.
func (h *holding) good() bool { return h.known && h.held && !h.corrupt }

// look asks the backend anew; deep reads the bytes as well. An error leaves the holding unknown.
func (h *holding) look(ctx context.Context, key string, deep bool) (err error) {
	*h = holding{seat: h.seat, stale: h.seat.m.outdated(key, h.seat.b)}
	if deep {
		h.info, h.sum, err = h.seat.checksum(ctx, key)
	} else {
		h.info, err = h.seat.stat(ctx, key, true)
	}
	switch {
	case errors.Is(err, errCorrupt):
		h.known, h.held, h.corrupt = true, true, true
		return nil
	case isMiss(err):
		h.known = true
		return nil
	}
	h.known, h.held = err == nil, err == nil
	return err
}

// checksum reads the object and gives its SHA-256. Bytes that do not match what is recorded of them are errCorrupt.
func (s *seat) checksum(ctx context.Context, key string) (Info, []byte, error) {
	c := &copying{key: key, from: s, rules: copyRules{force: true}}
	defer c.end()
	if err := c.open(ctx); err != nil {
		return Info{}, nil, err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, c.body); err != nil {
		if ctx.Err() != nil {
			return Info{}, nil, s.m.aborted(ctx, &call{op: OpGet, key: key}, 1)
		}
		return c.info, nil, c.broken(ctx)
	}
	return c.info, sum.Sum(nil), nil
}

// compare is the state of a copy against the one that it should equal. What cannot be compared is taken to be the same:
// foreign ETags are each backend's own word, and so are times.
func compare(should, is *holding) CopyState {
	a, b := &should.info, &is.info
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

// newer tells whether a is the better candidate for the truth than b: not known to be out of date, and last modified later. If they
// seem to be of one time, the copy is better that is of a backend not in doubt, or has an identity of ours.
func newer(a, b *holding) bool {
	order := compareTimes(a.info.ModTime, b.info.ModTime)
	switch doubt := a.doubtful(); {
	case a.stale != b.stale:
		return b.stale
	case order != 0:
		return order > 0
	case doubt != b.doubtful():
		return !doubt
	}
	return a.info.ETagStored && !b.info.ETagStored
}

// compareTimes tells which of two modification times is the later one, or 0. Some backends keep whole seconds: those are of one time
// with all others in their second.
func compareTimes(a, b time.Time) int {
	if a.Nanosecond() == 0 || b.Nanosecond() == 0 {
		return cmp.Compare(a.Unix(), b.Unix())
	}
	return a.Compare(b)
}
