// Command upload measures how long a PUT takes that a directory, or a mirror of
// three, answers once all hold the object on the disk, beside as many copies of the
// same bytes made one after the other by cp --reflink=never, each with fsync. They
// are measured in turns, and medians are printed.
//
//	cd integration && go run ./bench/upload
//
// CADDY_BIN names the Caddy to measure, else it is the one that ./xcaddy-build.sh
// leaves.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

const caddyfile = `{
	admin off
	persist_config off
	auto_https off
	default_bind 127.0.0.1
}
http://:{$PORT} {
	storage_mux mirror {
		writable
		backend a file {$DIR}/a
		backend b file {$DIR}/b
		backend c file {$DIR}/c
	}
	handle_path /one/* {
		storage_mux {
			name one
			writable
			backend a file {$DIR}/one {
				create_root
			}
		}
	}
}
`

// Where to a PUT goes, and which directories get the object.
var places = []struct {
	path string
	dirs []string
}{{"/one/object", []string{"one"}}, {"/object", []string{"a", "b", "c"}}}

func main() {
	rounds := flag.Int("rounds", 9, "how often each is measured")
	size := flag.Int("mib", 64, "the size of the object, in MiB")
	flag.Parse()
	if err := run(*rounds, *size<<20); err != nil {
		fmt.Fprintln(os.Stderr, "upload:", err)
		os.Exit(1)
	}
}

func run(rounds, size int) error {
	if rounds < 1 || size < 1 {
		return errors.New("rounds and mib must be positive")
	}
	dir, err := os.MkdirTemp("", "upload")
	if err != nil {
		return err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	defer remove()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	body := make([]byte, size)
	_, _ = rand.Read(body)
	if err := os.WriteFile(filepath.Join(dir, "source"), body, 0o600); err != nil {
		return err
	}
	url, stop, err := start(dir)
	if err != nil {
		return err
	}
	defer stop()
	defer rig.AtInterrupt(func() {
		stop()
		remove()
	})()
	for _, place := range places {
		var puts, copies []time.Duration
		for range rounds + 1 {
			for _, m := range []struct {
				into *[]time.Duration
				what func() error
			}{{&puts, func() error { return put(url+place.path, body) }}, {&copies, func() error { return copyTo(dir, place.dirs) }}} {
				begin := time.Now()
				if err := m.what(); err != nil {
					return err
				}
				*m.into = append(*m.into, time.Since(begin))
			}
		}
		p, c := median(puts[1:]), median(copies[1:]) // the first round warms up
		_, _ = fmt.Fprintf(os.Stdout, "PUT to %d: %v; as many copies by cp, with fsync: %v; throughput: %.2f of cp\n", len(place.dirs), p, c, float64(c)/float64(p))
	}
	return nil
}

// start starts Caddy and waits until it listens.
func start(dir string) (url string, stop func(), err error) {
	bin, err := rig.FindBinary()
	if err != nil {
		return "", nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	config := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(caddyfile), 0o600); err != nil {
		return "", nil, err
	}
	cmd := exec.Command(bin, "run", "--config", config, "--adapter", "caddyfile")
	_, port, _ := net.SplitHostPort(addr)
	cmd.Env = append(os.Environ(), "DIR="+dir, "PORT="+port, "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(pair string) bool { return strings.HasPrefix(pair, "http_proxy=") })
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return "http://" + addr, stop, nil
		}
		if time.Now().After(deadline) {
			stop()
			return "", nil, errors.New("caddy does not listen")
		}
	}
}

func put(url string, body []byte) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode >= 300 || resp.Header.Get("Storage-Mux-Partial") != "" {
		return fmt.Errorf("PUT: %s, missed by %q", resp.Status, resp.Header.Get("Storage-Mux-Partial"))
	}
	return nil
}

// copyTo copies the source into each directory, to a new name that then takes the place of the old, as a PUT does.
func copyTo(dir string, names []string) error {
	for _, name := range names {
		to := filepath.Join(dir, name, "copy")
		if out, err := exec.Command("cp", "--reflink=never", filepath.Join(dir, "source"), to+".new").CombinedOutput(); err != nil {
			return fmt.Errorf("cp: %w: %s", err, out)
		}
		if out, err := exec.Command("sync", to+".new").CombinedOutput(); err != nil {
			return fmt.Errorf("sync: %w: %s", err, out)
		}
		if err := os.Rename(to+".new", to); err != nil {
			return err
		}
	}
	return nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
