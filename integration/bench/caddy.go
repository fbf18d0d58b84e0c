package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	readyWithin = 30 * time.Second
	stopWithin  = 10 * time.Second
)

// caddy is the running Caddy that is measured.
type caddy struct {
	dir   string
	admin int
	ports []int
	cmd   *exec.Cmd
	log   bytes.Buffer
	ended chan struct{}
}

// binary returns the path of the Caddy to measure, which it builds if need be.
func binary() (string, error) {
	if bin := os.Getenv("CADDY_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		script := filepath.Join(dir, "xcaddy-build.sh")
		if _, err := os.Stat(script); err == nil {
			cmd := exec.Command(script)
			cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
			return filepath.Join(dir, "caddy"), cmd.Run()
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("CADDY_BIN is not set, and xcaddy-build.sh is in no folder above")
		}
	}
}

// start starts Caddy, waits for it and gives its sites their objects.
func start(bin string, objects []object) (*caddy, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	c := &caddy{dir: dir, ended: make(chan struct{})}
	if err := c.start(bin, objects); err != nil {
		c.stop()
		return nil, fmt.Errorf("%w\n%s", err, c.log.String())
	}
	return c, nil
}

func (c *caddy) start(bin string, objects []object) error {
	if err := os.Mkdir(filepath.Join(c.dir, "files"), 0o755); err != nil {
		return err
	}
	for _, o := range objects {
		if err := os.WriteFile(filepath.Join(c.dir, "files", o.path()), o.body, 0o600); err != nil {
			return err
		}
	}
	config := filepath.Join(c.dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(caddyfile(objects)), 0o600); err != nil {
		return err
	}
	if err := c.choosePorts(); err != nil {
		return err
	}
	c.cmd = exec.Command(bin, "run", "--config", config, "--adapter", "caddyfile")
	c.cmd.Env = append(os.Environ(), "DIR="+c.dir, "HOME="+c.dir, "XDG_DATA_HOME="+c.dir, "XDG_CONFIG_HOME="+c.dir,
		fmt.Sprintf("ADMIN=%d", c.admin))
	for i, port := range c.ports {
		c.cmd.Env = append(c.cmd.Env, fmt.Sprintf("PORT%d=%d", i, port))
	}
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := c.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	if err := c.ready(); err != nil {
		return err
	}
	return c.fill(objects)
}

// choosePorts takes free ports, all held at once so that no two are the same.
func (c *caddy) choosePorts() error {
	for range len(allSites()) + 1 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer func() { _ = ln.Close() }()
		c.ports = append(c.ports, ln.Addr().(*net.TCPAddr).Port)
	}
	c.admin, c.ports = c.ports[0], c.ports[1:]
	return nil
}

// ready waits until Caddy answers.
func (c *caddy) ready() error {
	deadline := time.After(readyWithin)
	for {
		if _, err := c.mallocs(); err == nil {
			return nil
		}
		select {
		case <-c.ended:
			return errors.New("caddy ended")
		case <-deadline:
			return fmt.Errorf("caddy was not ready within %v", readyWithin)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// fill uploads the objects to the sites that hold them in memory.
func (c *caddy) fill(objects []object) error {
	for _, s := range allSites() {
		if !strings.Contains(s.config, "writable") {
			continue
		}
		for _, o := range objects {
			req, err := http.NewRequest(http.MethodPut, "http://"+c.addr(s)+o.path(), bytes.NewReader(o.body))
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusCreated {
				return fmt.Errorf("uploading to %s: %s", s.name, resp.Status)
			}
		}
	}
	return nil
}

func (c *caddy) addr(s site) string { return fmt.Sprintf("127.0.0.1:%d", c.ports[s.port]) }

// mallocs returns how many objects the process has allocated so far.
func (c *caddy) mallocs() (float64, error) {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", c.admin))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	defer func() { _, _ = io.Copy(io.Discard, resp.Body) }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "go_memstats_mallocs_total "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, errors.New("the metrics have no go_memstats_mallocs_total")
}

// stop ends the process and removes its folder.
func (c *caddy) stop() {
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.ended:
		case <-time.After(stopWithin):
			_ = c.cmd.Process.Kill()
			<-c.ended
		}
	}
	_ = os.RemoveAll(c.dir)
}
