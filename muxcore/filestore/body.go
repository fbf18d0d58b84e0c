package filestore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var (
	errSeek    = errors.New("seek before the beginning, or whence unknown")
	errChanged = errors.New("the file was changed while it was read")
)

// state is by what can be told whether the bytes of an open file are still those that they were. What comes in its place, by a rename,
// leaves them alone; where it has grown, as logs do, the bytes before are taken for what they were.
type state struct {
	size  int64
	mtime time.Time
}

func stateOf(fi fs.FileInfo) state { return state{fi.Size(), fi.ModTime()} }

// body reads a part of a file, from the file's own position on.
type body struct {
	store         *Store
	key           string
	f             *os.File
	is            state // when it was opened
	start, length int64
	at            int64   // within the part
	kept          *cached // what becomes of it if it is read at once; nil: nothing
	closed        atomic.Bool
}

// File implements muxcore.FileBody.
func (b *body) File() *os.File { return b.f }

// Read implements io.Reader. It ends in io.EOF only after all that was opened.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	left := b.length - b.at
	if left <= 0 {
		if b.closed.Load() {
			return 0, fs.ErrClosed
		}
		return 0, io.EOF
	}
	if int64(len(p)) > left {
		p = p[:left]
	}
	n, err := b.f.Read(p)
	if changed := b.changed(); changed != nil {
		return 0, changed
	}
	if b.kept != nil {
		if err == nil && b.at == 0 && int64(n) == b.length {
			b.keep(p[:n])
		}
		b.kept = nil
	}
	b.at += int64(n)
	if errors.Is(err, io.EOF) {
		err = b.fault(io.ErrUnexpectedEOF)
	} else if err != nil {
		err = b.fault(err)
	}
	return n, err
}

// changed looks, after bytes were read and before anybody gets them, whether they are of the file that was opened. Somebody who writes into
// it is not the store's failure.
func (b *body) changed() error {
	fi, err := b.f.Stat()
	if err != nil {
		return b.fault(err)
	}
	if now := stateOf(fi); now.size < b.is.size || now.size == b.is.size && !now.mtime.Equal(b.is.mtime) {
		return &muxcore.Error{Code: muxcore.CodeUnavailable, Op: muxcore.OpGet, Key: b.key, Unsure: true, Err: errChanged}
	}
	return nil
}

// WriteTo implements io.WriterTo, in few and large writes. The file itself is not handed to a writer that could send it without a copy:
// bytes that were changed meanwhile would be gone before anybody knows.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	if b.closed.Load() {
		return 0, fs.ErrClosed
	}
	if b.at >= b.length {
		return 0, nil
	}
	buffer := b.store.buffer()
	defer b.store.buffers.Put(buffer)
	var written int64
	for b.at < b.length {
		n, err := b.Read(*buffer)
		if n > 0 {
			m, werr := w.Write((*buffer)[:n])
			written += int64(m)
			if werr != nil {
				return written, werr
			}
		}
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Seek implements io.Seeker, within the part that was opened.
func (b *body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.length
	default:
		return 0, errSeek
	}
	if offset < 0 {
		return 0, errSeek
	}
	if _, err := b.f.Seek(b.start+offset, io.SeekStart); err != nil {
		return 0, b.fault(err)
	}
	b.at = offset
	return offset, nil
}

// Close implements io.Closer.
func (b *body) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	return b.f.Close()
}

func (b *body) fault(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return err // whoever closed it knows
	}
	return fault(muxcore.OpGet, b.key, err)
}
