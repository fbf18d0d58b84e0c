package filestore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	readChunk = 512

	// pageSize is how many names of one directory are held at once: a larger one is read several times.
	pageSize = 50_000

	// beyond, after a prefix, is greater than every key with it: keys are UTF-8, which has no such byte.
	beyond = "\xff"

	// lostAndFound is what file systems put into their root, for their own use.
	lostAndFound = "lost+found"
)

// List implements muxcore.Store. Without details, entries tell no more than keys: anything else costs an open for each.
func (s *Store) List(ctx context.Context, opts muxcore.ListOptions) iter.Seq2[muxcore.Entry, error] {
	return func(yield func(muxcore.Entry, error) bool) {
		if err := s.list(ctx, &opts, yield); err != nil {
			yield(muxcore.Entry{}, fault(muxcore.OpList, opts.Prefix, err))
		}
	}
}

func (s *Store) list(ctx context.Context, opts *muxcore.ListOptions, yield func(muxcore.Entry, error) bool) error {
	if err := muxcore.CheckPrefix(opts.Prefix); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for retried := false; ; retried = true {
		w := &walk{ctx: ctx, opts: opts, yield: yield, pageSize: pageSize, cursor: opts.After}
		if opts.Limit > 0 {
			w.pageSize = min(max(opts.Limit, readChunk), pageSize)
		}
		err := s.walk(w)
		if errors.Is(err, errDone) {
			return nil
		}
		if retried || !errors.Is(err, errRootChanged) {
			return err
		}
	}
}

func (s *Store) walk(w *walk) (err error) {
	if w.d, err = s.acquire(); err != nil {
		return err
	}
	defer s.release(w.d)
	folder := folderOf(w.opts.Prefix)
	if !strings.HasPrefix(folder, muxcore.ReservedPrefix) && w.d.leadsToPrivate(folder) {
		return nil
	}
	if err := w.folder(folder); err != nil || w.count > 0 {
		return err
	}
	return s.current(w.d) // that nothing is there is only said of the root
}

// walk is a list under way, in the order of keys: that of names with a slash after those of folders.
type walk struct {
	ctx      context.Context //nolint:containedctx // it lives exactly as long as the call
	d        *rootDir
	opts     *muxcore.ListOptions
	yield    func(muxcore.Entry, error) bool
	pageSize int // of the first page of a directory; the next ones are larger

	cursor string // what is not greater is not of interest
	count  int    // entries given
}

// name is an entry of a directory as it is ordered, a folder with a slash at its end.
type name struct {
	text string
	link bool
}

func byText(a, b name) int { return strings.Compare(a.text, b.text) }

// errDone ends a walk that has given all that was asked for.
var errDone = errors.New("done")

// folder lists what lies below dir, "" or with a slash at its end.
func (w *walk) folder(dir string) error {
	from := ""
	for size := w.pageSize; ; size = min(4*size, pageSize) {
		names, more, err := w.page(dir, from, size)
		if err != nil {
			return w.skipped(dir, err)
		}
		for _, n := range names {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			if err := w.name(dir+n.text, n.link); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		from = names[len(names)-1].text
	}
}

// skipped decides about a folder that cannot be read. One that has vanished is no error; one that is denied is, for a
// list that lacks a part and does not say so makes others believe that there is nothing.
func (w *walk) skipped(dir string, err error) error {
	if w.d.noObject(err) || errors.Is(err, errNotFolder) {
		return nil
	}
	if dir == lostAndFound+"/" && errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// name lists one name: a file, or all below a folder.
func (w *walk) name(full string, link bool) error {
	folder := strings.HasSuffix(full, "/")
	if folder && full+beyond <= w.cursor || !folder && full <= w.cursor {
		return nil
	}
	group, rolled := w.opts.RollUp(full)
	switch {
	case rolled && folder:
		if group <= w.cursor {
			return nil
		}
		if found, err := w.holdsObject(full); !found || err != nil {
			return err
		}
	case folder:
		return w.folder(full)
	case link && !w.leadsToObject(full):
		return nil
	case !rolled:
		return w.object(full)
	}
	if group <= w.cursor {
		return nil
	}
	w.cursor = group + beyond
	return w.give(muxcore.Entry{Info: muxcore.Info{Key: group}, IsPrefix: true})
}

// object gives a file, with what is known of it if that was asked for. One that has vanished meanwhile is left out; one
// that cannot be looked at is there all the same.
func (w *walk) object(key string) error {
	info := muxcore.Info{Key: key, Size: -1}
	if w.opts.Details {
		f, _, _, err := w.d.open(key, &info)
		switch {
		case err == nil:
			_ = f.Close()
		case w.d.noObject(err), errors.Is(err, errNotRegular):
			return nil
		default:
			info = muxcore.Info{Key: key, Size: -1}
		}
	}
	return w.give(muxcore.Entry{Info: info})
}

func (w *walk) give(e muxcore.Entry) error {
	w.count++
	if !w.yield(e, nil) || w.opts.Limit > 0 && w.count >= w.opts.Limit {
		return errDone
	}
	return nil
}

var errNotFolder = errors.New("not a folder")

// page gives the first names of dir that come after from, up to size of them. more tells that there may be others.
func (w *walk) page(dir, from string, size int) (names []name, more bool, err error) {
	bound := "" // names from here on are for a later page
	err = w.each(dir, func(e fs.DirEntry) error {
		n := name{text: e.Name(), link: e.Type()&fs.ModeSymlink != 0}
		if e.IsDir() {
			n.text += "/"
		}
		switch {
		case n.text <= from:
			return nil
		case bound != "" && n.text >= bound:
			more = true
			return nil
		case !w.wanted(dir, n.text, e):
			return nil
		}
		if names = append(names, n); len(names) >= 2*size {
			slices.SortFunc(names, byText)
			bound, names, more = names[size].text, names[:size], true
		}
		return nil
	})
	slices.SortFunc(names, byText)
	if len(names) > size {
		names, more = names[:size], true
	}
	return names, more, err
}

// wanted tells whether an entry, or anything below it, can be listed.
func (w *walk) wanted(dir, text string, e fs.DirEntry) bool {
	full := dir + text
	if !strings.HasPrefix(full, w.opts.Prefix) || len(full) > muxcore.MaxKeyLength || !visible(dir, e.Name()) {
		return false
	}
	if e.IsDir() {
		return full+beyond > w.cursor
	}
	return full > w.cursor && (e.Type().IsRegular() || e.Type()&fs.ModeSymlink != 0)
}

// visible tells whether keys can have this segment, in a list that has come into dir.
func visible(dir, name string) bool {
	if dir == muxcore.ReservedPrefix+"/" {
		return dir+name+"/" == muxcore.InternalPrefix
	}
	return muxcore.CheckKey(name) == nil && segmentFault(name) == nil
}

// leadsToObject looks behind a symbolic link.
func (w *walk) leadsToObject(full string) bool {
	fi, err := w.d.Stat(full)
	return err == nil && fi.Mode().IsRegular() && !w.d.leadsToPrivate(full)
}

// holdsObject tells whether there is any object below dir, and looks no further than the first.
func (w *walk) holdsObject(dir string) (found bool, err error) {
	var folders []string
	err = w.each(dir, func(e fs.DirEntry) error {
		switch name := e.Name(); {
		case !visible(dir, name):
		case e.IsDir():
			folders = append(folders, dir+name+"/")
		case e.Type().IsRegular(), e.Type()&fs.ModeSymlink != 0 && w.leadsToObject(dir+name):
			found = true
			return errDone
		}
		return nil
	})
	if found {
		return true, nil
	}
	if err != nil {
		return false, w.skipped(dir, err)
	}
	for _, folder := range folders {
		if found, err := w.holdsObject(folder); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// each calls f for the entries of a directory, in no order.
func (w *walk) each(dir string, f func(fs.DirEntry) error) error {
	opened, err := w.d.Open("./" + dir)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	file, err := direct(opened)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		entries, err := file.ReadDir(readChunk)
		for _, e := range entries {
			if err := f(e); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if fi, serr := file.Stat(); serr == nil && !fi.IsDir() {
				return errNotFolder
			}
			return err
		}
	}
}

// folderOf is the part of a key or prefix up to and including its last slash.
func folderOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }
