package wire

import (
	"context"
	"fmt"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// Prefix stands in front of every key of a store: "", or with a slash at its end.
type Prefix string

// NewPrefix reads the prefix of a configuration, where slashes at its ends do not matter.
func NewPrefix(text string) (Prefix, error) {
	text = strings.Trim(text, "/")
	if text == "" {
		return "", nil
	}
	if err := muxcore.CheckStoreKey(text); err != nil {
		return "", fmt.Errorf("prefix: %w", err)
	}
	return Prefix(text + "/"), nil
}

// Path is a key with what stands in front of it.
func (p Prefix) Path(key string) string { return string(p) + key }

// CheckKey implements muxcore.KeyChecker: with its prefix, a key must still be one.
func (p Prefix) CheckKey(key string) error {
	if err := muxcore.CheckStoreKey(key); err != nil {
		return err
	}
	if len(p)+len(key) > muxcore.MaxKeyLength {
		return &muxcore.Error{Code: muxcore.CodeInvalidKey, Key: key, Err: fmt.Errorf("longer than 1024 bytes with its prefix of %d", len(p))}
	}
	return nil
}

// Begin is what every call on a key begins with.
func (p Prefix) Begin(ctx context.Context, op muxcore.Op, key string) error {
	if err := p.CheckKey(key); err != nil {
		return muxcore.At(op, key, err)
	}
	return Begin(ctx, op, key)
}
