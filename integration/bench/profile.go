package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// profiles asks each site for each object, as long as a round takes, and keeps
// what Caddy's profiler saw meanwhile in dir: of the processor, and of what was
// allocated.
func profiles(c *caddy, contenders []site, objects []object, s settings) error {
	if err := os.MkdirAll(s.profile, 0o755); err != nil {
		return err
	}
	seconds := max(1, int(s.span/time.Second))
	s.span = time.Duration(seconds) * time.Second
	for _, o := range objects {
		for _, site := range contenders {
			if !site.serves(o) {
				continue
			}
			for _, kind := range []string{"profile", "allocs"} {
				path := filepath.Join(s.profile, fileName(site.name+" "+o.name+" "+kind)+".pb.gz")
				if err := profile(c, site, o, s, kind, path); err != nil {
					return fmt.Errorf("%s of %s: %w", o.name, site.name, err)
				}
				_, _ = fmt.Fprintln(os.Stdout, path)
			}
		}
	}
	return nil
}

// profile fetches one profile while the site is asked.
func profile(c *caddy, s site, o object, set settings, kind, path string) error {
	warm := load{addr: c.addr(s), object: o, conns: set.conns, span: time.Second}
	if _, _, err := warm.run(); err != nil {
		return err
	}
	fetched := make(chan error, 1)
	go func() {
		fetched <- fetch(fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/%s?seconds=%d", c.admin, kind, set.span/time.Second), path)
	}()
	_, _, err := load{addr: c.addr(s), object: o, conns: set.conns, span: set.span}.run()
	return errors.Join(err, <-fetched)
}

// fetch writes an answer into a file.
func fetch(url, path string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}

// fileName makes a name of one that has spaces, commas and signs.
func fileName(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(" ,+_", r) })
	return strings.Join(words, "-")
}
