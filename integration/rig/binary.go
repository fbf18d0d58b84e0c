package rig

import (
	"fmt"
	"os"
	"path/filepath"
)

const script = "xcaddy-build.sh"

// FindBinary returns the path of the Caddy under test: what CADDY_BIN names, else
// the one that ./xcaddy-build.sh leaves beside itself.
func FindBinary() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return findBinary(os.Getenv("CADDY_BIN"), dir)
}

func findBinary(named, dir string) (string, error) {
	if named != "" {
		if !filepath.IsAbs(named) {
			return "", fmt.Errorf("CADDY_BIN is %q; it must be the absolute path of the Caddy under test", named)
		}
		return named, nil
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, script)); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("CADDY_BIN is not set, and %s is in no folder above", script)
		}
	}
	bin := filepath.Join(dir, "caddy")
	if _, err := os.Stat(bin); err != nil {
		return "", fmt.Errorf("there is no Caddy to test: CADDY_BIN is not set, and %s is not there; run ./%s, which builds it", bin, script)
	}
	return bin, nil
}
