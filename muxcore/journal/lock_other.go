//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package journal

import (
	"errors"
	"fmt"
	"os"
)

// lockFile refuses: without a lock that ends with its process, two of them could spoil one journal.
func lockFile(string) (*os.File, error) {
	return nil, fmt.Errorf("no file locks on this system: %w", errors.ErrUnsupported)
}

func ignoreNoDirSync(err error) error { return err }
