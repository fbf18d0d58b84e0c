package filestore

import (
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// What Caddy keeps below [muxcore.InternalPrefix], private keys among it, is given out under no other key, whatever those make of links and
// names who may write into the root and not read that folder. Its metadata says that it is private; of what has none, its place does.

// privateLine is what the metadata of a private object has.
const privateLine = "\nprivate:yes"

// isPrivate tells whether keys are out of reach of all other doors.
func isPrivate(key string) bool { return strings.HasPrefix(key, muxcore.InternalPrefix) }

// gives tells whether what was opened at key, with that text of metadata, may be given out under it.
func (d *rootDir) gives(key string, fi fs.FileInfo, text string) bool {
	switch {
	case isPrivate(key):
		return true
	case strings.Contains(text, privateLine):
		return false
	}
	return text != "" || fi.Mode().Perm()&0o077 != 0 || !d.leadsToPrivate(key)
}

// maxLinks is how many links are followed, as by most systems.
const maxLinks = 40

// leadsToPrivate tells whether links lead from name, which is not reserved, to a name that is, where there is anything private. What
// cannot be told is left to whoever opens it.
func (d *rootDir) leadsToPrivate(name string) bool {
	if _, err := d.Lstat(muxcore.ReservedPrefix); err != nil {
		return false
	}
	at, links := ".", 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		next := path.Join(at, rest[0]) // no links are left in at
		rest = rest[1:]
		if muxcore.HiddenFrom("", path.Base(next)) {
			return true
		}
		fi, err := d.Lstat(next)
		if err != nil {
			return false
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := d.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return false
		}
		rest = append(strings.Split(filepath.ToSlash(target), "/"), rest...)
	}
	return false
}
