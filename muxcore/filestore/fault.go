package filestore

import (
	"errors"
	"io/fs"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// fault says where err happened and what it means, once. A code that is known already stays.
func fault(op muxcore.Op, key string, err error) error {
	e := muxcore.At(op, key, err)
	if muxcore.CodeOf(err) == "" && errors.Is(err, fs.ErrPermission) {
		e.Code = muxcore.CodeDenied
	}
	if e.Code != muxcore.CodeKeyNotFound && errors.Is(e.Err, fs.ErrNotExist) {
		e.Err = opaque(e.Err)
	}
	return e
}

// opaque keeps the words of err only: an absence that is not the object's must not pass for one.
func opaque(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New(err.Error())
	}
	return err
}

func absent(op muxcore.Op, key string, err error) error {
	return &muxcore.Error{Code: muxcore.CodeKeyNotFound, Op: op, Key: key, Err: err}
}

func conflict(key string, err error) error {
	return &muxcore.Error{Code: muxcore.CodeKeyConflict, Key: key, Err: err}
}

// noObject tells whether opening a path failed because no object is there: nothing, something else, or something that
// lies outside of the root.
func (d *rootDir) noObject(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || d.escapes != nil && errors.Is(err, d.escapes) || isNoFile(err)
}
