package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

const (
	readyWithin = 30 * time.Second
	stopWithin  = 10 * time.Second
)

// caddy is the running Caddy that is measured.
type caddy struct {
	dir   string
	sites []site
	from  *origin
	admin int
	ports []int
	log   bytes.Buffer
	undo  func() // of what is done should the bench be interrupted

	mu    sync.Mutex
	cmd   *exec.Cmd // nil until it runs
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
func start(bin string, sites []site, objects []object) (*caddy, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	c := &caddy{dir: dir, sites: sites, ended: make(chan struct{})}
	c.undo = rig.AtInterrupt(c.clean)
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
		if err := o.store(filepath.Join(c.dir, "files")); err != nil {
			return err
		}
	}
	var err error
	if c.from, err = newOrigin(objects); err != nil {
		return err
	}
	config := filepath.Join(c.dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(caddyfile(c.sites, objects)), 0o600); err != nil {
		return err
	}
	if err := c.choosePorts(); err != nil {
		return err
	}
	cmd := exec.Command(bin, "run", "--config", config, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "DIR="+c.dir, "HOME="+c.dir, "XDG_DATA_HOME="+c.dir, "XDG_CONFIG_HOME="+c.dir,
		fmt.Sprintf("ADMIN=%d", c.admin), "ORIGIN="+c.from.addr())
	for i, port := range c.ports {
		cmd.Env = append(cmd.Env, fmt.Sprintf("PORT%d=%d", i, port))
	}
	cmd.Stdout, cmd.Stderr = &c.log, &c.log
	if err := c.run(cmd); err != nil {
		return err
	}
	if err := c.ready(); err != nil {
		return err
	}
	return c.fill(objects)
}

// choosePorts takes free ports, all held at once so that no two are the same.
func (c *caddy) choosePorts() error {
	for range len(c.sites) + 1 {
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
		if _, err := c.usage(); err == nil && c.listens() {
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

// listens tells whether all sites can be reached.
func (c *caddy) listens() bool {
	return !slices.ContainsFunc(c.sites, func(s site) bool {
		conn, err := net.Dial("tcp", c.addr(s))
		return err != nil || conn.Close() != nil
	})
}

// fill uploads the objects to the sites that hold them in memory.
func (c *caddy) fill(objects []object) error {
	for _, s := range c.sites {
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

// usage is what the process has used so far, and holds now.
type usage struct {
	mallocs  float64
	cpu      float64 // seconds
	heap     float64 // bytes in use
	resident float64 // bytes
}

func (c *caddy) usage() (u usage, err error) {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", c.admin))
	if err != nil {
		return u, err
	}
	defer resp.Body.Close()
	defer func() { _, _ = io.Copy(io.Discard, resp.Body) }()
	wanted := map[string]*float64{
		"go_memstats_mallocs_total": &u.mallocs, "process_cpu_seconds_total": &u.cpu,
		"go_memstats_heap_inuse_bytes": &u.heap, "process_resident_memory_bytes": &u.resident,
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan() && len(wanted) > 0; {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if into := wanted[name]; into != nil {
			if *into, err = strconv.ParseFloat(value, 64); err != nil {
				return u, err
			}
			delete(wanted, name)
		}
	}
	if len(wanted) > 0 {
		return u, fmt.Errorf("the metrics lack %v", slices.Sorted(maps.Keys(wanted)))
	}
	return u, nil
}

func (c *caddy) run(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd = cmd
	go func() {
		_ = cmd.Wait()
		close(c.ended)
	}()
	return nil
}

// stop ends the process and the origin, and removes the folder.
func (c *caddy) stop() {
	c.clean()
	if c.from != nil {
		c.from.stop()
	}
	c.undo()
}

// clean ends the process and removes its folder, which may have a million names in it.
func (c *caddy) clean() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil {
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
