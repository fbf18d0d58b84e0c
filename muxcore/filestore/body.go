package filestore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var errSeek = errors.New("seek before the beginning, or whence unknown")

// body reads a part of a file, from the file's own position on.
type body struct {
	store         *Store
	key           string
	f             *os.File
	start, length int64
	at            int64 // within the part
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
	b.at += int64(n)
	if errors.Is(err, io.EOF) {
		err = b.fault(io.ErrUnexpectedEOF)
	} else if err != nil {
		err = b.fault(err)
	}
	return n, err
}

// WriteTo implements io.WriterTo. A writer that can take a file gets it.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	if b.closed.Load() {
		return 0, fs.ErrClosed
	}
	if b.at >= b.length {
		return 0, nil
	}
	part := io.LimitedReader{R: b.f, N: b.length - b.at}
	buffer := b.store.buffer()
	n, err := io.CopyBuffer(w, &part, *buffer)
	b.store.buffers.Put(buffer)
	b.at += n
	if err == nil && b.at < b.length {
		err = b.fault(io.ErrUnexpectedEOF)
	}
	return n, err
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
