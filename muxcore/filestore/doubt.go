package filestore

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// A file that was written in place can have the size and the modification time that it had before; only the time of its last change
// (ctime) tells. That also moves with whatever does not touch the bytes: a change of owner or mode, a link made by a backup. So it raises
// a doubt, which the recorded digest ends.

const (
	// settleTime is how long a Put may take from when it writes the metadata to when the file has its name: it changes the file itself.
	// When it was done is known of the Puts of this process alone.
	settleTime = 2 * time.Minute

	// hashAtOnce is the largest file that is read to end a doubt while somebody waits.
	hashAtOnce = 256 << 10

	maxDoubts = 4096
)

// verdict is whether a file has the bytes that its metadata was written for.
type verdict int

const (
	unknown verdict = iota
	same
	other
)

// version is a state of a file's bytes.
type version struct {
	inode uint64
	ctime int64
}

// doubts are those about files of one root, and how they ended.
type doubts struct {
	mu     sync.Mutex
	ended  map[version]verdict
	placed map[uint64]placing // by inode

	// Guarded by Store.mu.
	queue  []string // keys of files to be read
	queued map[string]bool
	busy   bool
}

// placing is how we left a file.
type placing struct {
	written int64 // what its metadata says of its change time
	ctime   int64 // what that was in the end
}

// place notes how we left a file.
func (d *doubts) place(inode uint64, p placing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.placed == nil || len(d.placed) >= maxDoubts {
		d.placed = make(map[uint64]placing)
	}
	d.placed[inode] = p
}

// doubtful tells whether the file was changed since we left it, in whatever way.
func (d *rootDir) doubtful(is fingerprint, text string) bool {
	_, line, ok := strings.Cut(text, "\nchanged:")
	line, _, _ = strings.Cut(line, "\n")
	at, err := strconv.ParseInt(line, 10, 64)
	if !ok || err != nil || is.ctime == 0 {
		return false
	}
	d.doubts.mu.Lock()
	left, known := d.doubts.placed[is.inode]
	d.doubts.mu.Unlock()
	if known && left.written == at {
		return is.ctime != left.ctime
	}
	return is.ctime < at || is.ctime-at > int64(settleTime)
}

// judge ends the doubt about an open file, if that takes no long; else the file is read in the background, and until then has no
// identity. It is called with what its metadata says in info.
func (d *rootDir) judge(key string, f *os.File, is fingerprint, text string, side bool, info *muxcore.Info) verdict {
	if sum, _ := recorded(info); sum == nil {
		return unknown
	}
	v := version{is.inode, is.ctime}
	if known := d.doubts.of(v); known != unknown {
		return known
	}
	if info.Size > hashAtOnce {
		d.store.readLater(d, key)
		return unknown
	}
	return d.compare(f, is, text, side, info)
}

func (d *doubts) of(v version) verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended[v]
}

func (d *doubts) end(v version, how verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil || len(d.ended) >= maxDoubts {
		d.ended = make(map[version]verdict)
	}
	d.ended[v] = how
}

// recorded is the best digest that is recorded, and the hash that makes it; nil: none.
func recorded(info *muxcore.Info) (want []byte, sum hash.Hash) {
	switch d := &info.Digests; {
	case d.SHA256 != nil:
		return d.SHA256, sha256.New()
	case d.SHA512 != nil:
		return d.SHA512, sha512.New()
	case d.MD5 != nil:
		return d.MD5, md5.New()
	}
	return nil, nil
}

// compare reads the file.
func (d *rootDir) compare(f *os.File, is fingerprint, text string, side bool, info *muxcore.Info) verdict {
	want, sum := recorded(info)
	if _, err := io.Copy(sum, closable{io.NewSectionReader(f, 0, info.Size), d.store.closing}); err != nil {
		return unknown
	}
	if fi, err := f.Stat(); err != nil || fingerprintOf(f, fi) != is {
		return unknown
	}
	how := other
	if bytes.Equal(sum.Sum(nil), want) {
		how = same
		if !side {
			d.settle(f, is, text)
		}
	}
	d.doubts.end(version{is.inode, is.ctime}, how)
	return how
}

// settle has the metadata of a file that is as it should be say so, for the next process. Only a store that has written here does.
func (d *rootDir) settle(f *os.File, is fingerprint, text string) {
	fi, err := f.Stat()
	if err != nil || !d.store.writes(d) || f.Chmod(fi.Mode()) != nil { // so that the file system says what time it is
		return
	}
	if fi, err = f.Stat(); err != nil {
		return
	}
	now := fingerprintOf(f, fi)
	before, after, _ := strings.Cut(text, "\nchanged:")
	_, after, more := strings.Cut(after, "\n")
	text = before + "\nchanged:" + strconv.FormatInt(now.ctime, 10)
	if more {
		text += "\n" + after
	}
	if now.String() != is.String() || d.setAttribute(f, text) != nil {
		return
	}
	if fi, err = f.Stat(); err == nil {
		d.doubts.place(is.inode, placing{written: now.ctime, ctime: changeTime(fi)})
	}
}

// writes tells whether the store has written to the root.
func (s *Store) writes(d *rootDir) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.swept
}

// readLater has a file read in the background, one at a time.
func (s *Store) readLater(d *rootDir, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &d.doubts
	if s.closed || q.queued[key] || len(q.queue) >= maxDoubts {
		return
	}
	if q.queued == nil {
		q.queued = make(map[string]bool)
	}
	q.queue, q.queued[key] = append(q.queue, key), true
	if q.busy {
		return
	}
	q.busy = true
	d.refs++
	s.sweeps.Go(func() {
		defer s.release(d)
		for key, ok := s.nextToRead(d); ok; key, ok = s.nextToRead(d) {
			d.reread(key)
			s.mu.Lock()
			delete(q.queued, key)
			s.mu.Unlock()
		}
	})
}

func (s *Store) nextToRead(d *rootDir) (key string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &d.doubts
	if s.closed || len(q.queue) == 0 {
		q.busy = false
		return "", false
	}
	key, q.queue = q.queue[0], q.queue[1:]
	return key, true
}

// reread ends the doubt about the file at key.
func (d *rootDir) reread(key string) {
	f, err := d.OpenFile(key, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return
	}
	is := fingerprintOf(f, fi)
	text, side, err := d.loadMeta(key, f, is)
	info := muxcore.Info{Size: fi.Size()}
	if err != nil || !parseMeta(string(text), is, &info) || !d.doubtful(is, string(text)) {
		return
	}
	if sum, _ := recorded(&info); sum != nil && d.doubts.of(version{is.inode, is.ctime}) == unknown {
		d.compare(f, is, string(text), side, &info)
	}
}

// closable reads until the store closes.
type closable struct {
	src     io.Reader
	closing <-chan struct{}
}

var errClosing = errors.New("the store is closing")

// Read implements io.Reader.
func (c closable) Read(p []byte) (int, error) {
	select {
	case <-c.closing:
		return 0, errClosing
	default:
		return c.src.Read(p)
	}
}
