package memstore

import (
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
)

var errSeek = errors.New("seek before the beginning, or whence unknown")

// body reads a slice that nobody changes. Closing it ends reading only.
type body struct {
	data   []byte
	at     int64
	closed atomic.Bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, fs.ErrClosed
	}
	if b.at >= int64(len(b.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, b.data[b.at:])
	b.at += int64(n)
	return n, nil
}

// WriteTo implements io.WriterTo: one write of all that is left.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	if b.closed.Load() {
		return 0, fs.ErrClosed
	}
	if b.at >= int64(len(b.data)) {
		return 0, nil
	}
	rest := b.data[b.at:]
	n, err := w.Write(rest)
	b.at += int64(n)
	if n < len(rest) && err == nil {
		err = io.ErrShortWrite
	}
	return int64(n), err
}

// Seek implements io.Seeker, within the part that was opened.
func (b *body) Seek(offset int64, whence int) (int64, error) {
	if b.closed.Load() {
		return 0, fs.ErrClosed
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += int64(len(b.data))
	default:
		return 0, errSeek
	}
	if offset < 0 {
		return 0, errSeek
	}
	b.at = offset
	return offset, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}
