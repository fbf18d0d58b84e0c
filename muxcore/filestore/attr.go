package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"

	"github.com/pkg/xattr"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

const (
	attribute  = "user.storage_mux"
	sidePrefix = muxcore.ReservedPrefix + "-meta-"

	// inSide is the attribute's value when metadata was too large for it.
	inSide = metaHeader + " side"

	// maxSide is the largest side file that is read: far more than HTTP headers can hold.
	maxSide = 1 << 20
)

// errNoAttributes is what stands for systems without extended attributes.
var errNoAttributes = errors.New("no extended attributes")

// loadMeta gives the metadata that lies with an open file, nil without any. side tells whether it is in a side file.
func (d *rootDir) loadMeta(key string, f *os.File, is fingerprint) (text []byte, side bool, err error) {
	text, err = d.getAttribute(f)
	switch {
	case err == nil && string(text) != inSide:
		return text, false, nil
	case errors.Is(err, xattr.ENOATTR):
		return nil, false, nil
	case err != nil && !errors.Is(err, errNoAttributes) && !hasNoAttributes(err):
		return nil, false, err
	}
	text, err = d.readSide(sideName(key, is.inode))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return text, true, err
}

func (d *rootDir) getAttribute(f *os.File) ([]byte, error) {
	if !xattr.XATTR_SUPPORTED || d.noAttributes {
		return nil, errNoAttributes
	}
	return xattr.FGet(f, attribute)
}

func (d *rootDir) setAttribute(f *os.File, text string) error {
	if !xattr.XATTR_SUPPORTED || d.noAttributes {
		return errNoAttributes
	}
	return xattr.FSet(f, attribute, []byte(text))
}

func (d *rootDir) readSide(name string) ([]byte, error) {
	f, err := d.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxSide))
}

// sideName is the side file of the file with this inode at key: beside it, of bounded length, and another one for each
// version, so that old and new metadata can lie side by side while the object changes.
func sideName(key string, inode uint64) string {
	dir, base := path.Split(key)
	return dir + sidePrefix + nameHash(base) + "-" + strconv.FormatUint(inode, 36)
}

func nameHash(base string) string {
	sum := sha256.Sum256([]byte(base))
	return hex.EncodeToString(sum[:12])
}

// storeMeta keeps text with the temporary file t, which is to be renamed to key. Where it needs a side file, that lies
// ready before the rename.
func (d *rootDir) storeMeta(t *temp, key, text string) error {
	err := d.setAttribute(t.f, text)
	if err == nil {
		return nil
	}
	if errors.Is(err, errNoAttributes) || hasNoAttributes(err) {
		return d.writeSide(t, key, text)
	}
	if !hasNoRoom(err) {
		return err
	}
	if err := d.setAttribute(t.f, inSide); err != nil {
		return err
	}
	return d.writeSide(t, key, text)
}

// writeSide writes the side file whole before it has its name.
func (d *rootDir) writeSide(t *temp, key, text string) error {
	f, name, err := d.createTemp(t.dir)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(t.mode)
	}
	if err == nil && !d.noSync {
		err = f.Sync()
	}
	side := sideName(key, t.is.inode)
	if err == nil {
		err = d.Rename(name, side) // still open, for the lock
	}
	_ = f.Close()
	if err != nil {
		_ = d.Remove(name)
		return err
	}
	t.side = side
	return nil
}
