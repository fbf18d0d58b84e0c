package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/internal/svgplot"
)

// Where the curves are measured.
var (
	backendCounts = []int{1, 3, 10, 30, 100}
	objectCounts  = []int{1_000, 10_000, 100_000, 1_000_000}
	connCounts    = []int{1, 2, 8, 32, 128, 512}
	growthSizes   = []int{0, 1 << 10, 32 << 10, 1 << 20, 32 << 20, 1 << 30}
)

const (
	folderSize = 1000 // objects in a folder of a million
	listLimit  = 1000
)

// growing is the bench of how cost grows.
type growing struct {
	*caddy
	set settings
	out string
}

// growth measures what a request costs by the number of backends, of objects, of bytes and of connections.
func growth(bin string, s settings) error {
	if err := os.MkdirAll(s.growth, 0o755); err != nil {
		return err
	}
	one := object{name: "1KiB", size: 1 << 10}
	objects := []object{one}
	for _, size := range growthSizes {
		objects = append(objects, object{name: strconv.Itoa(size), size: size})
	}
	var sites []site
	add := func(name, config string) { sites = append(sites, site{name, len(sites), config}) }
	add("file_server", "root {$DIR}/files\nfile_server")
	add("storage_mux file", "storage_mux {\nbackend d file {$DIR}/files\n}")
	add("storage_mux http", "storage_mux {\nbackend h http http://{$ORIGIN}\n}")
	for _, n := range backendCounts {
		var backends strings.Builder
		for i := range n {
			_, _ = fmt.Fprintf(&backends, "backend b%d file {$DIR}/files\n", i)
		}
		add(fmt.Sprintf("%d backends", n), "storage_mux round_robin {\n"+backends.String()+"}")
	}
	for _, n := range objectCounts {
		add(fmt.Sprintf("%d objects", n), fmt.Sprintf("storage_mux {\nlist\nbackend d file {$DIR}/n%d {\ncreate_root\n}\n}", n))
	}
	c, err := start(bin, sites, objects)
	if err != nil {
		return err
	}
	defer c.stop()
	g := &growing{caddy: c, set: s, out: s.growth}
	return errors.Join(g.byBackends(one), g.byObjects(one), g.bySize(objects[1:]), g.byConns(one))
}

// site is the one of that name.
func (g *growing) site(name string) site {
	return g.sites[slices.IndexFunc(g.sites, func(s site) bool { return s.name == name })]
}

// points measures one curve: its points in turns, as many rounds as were asked for.
func (g *growing) points(n int, point func(i int) (site, object, int)) ([]measurement, error) {
	rounds := make([][]measurement, n)
	for range g.set.rounds {
		for i := range n {
			where, what, conns := point(i)
			set := g.set
			set.conns = conns
			m, err := measure(g.caddy, where, what, set)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", what.name, where.name, err)
			}
			rounds[i] = append(rounds[i], m)
		}
	}
	medians := make([]measurement, n)
	for i := range rounds {
		medians[i] = measurement{
			perSecond: median(rounds[i], func(m measurement) float64 { return m.perSecond }),
			allocs:    median(rounds[i], func(m measurement) float64 { return m.allocs }),
			cpu:       median(rounds[i], cpuOf),
		}
	}
	return medians, nil
}

func (g *growing) byBackends(o object) error {
	curve, err := g.points(len(backendCounts), func(i int) (site, object, int) {
		return g.site(fmt.Sprintf("%d backends", backendCounts[i])), o, g.set.conns
	})
	if err != nil {
		return err
	}
	return g.draw("growth-backends.svg", svgplot.Plot{
		Title: "1 KiB from a directory, by the number of backends in round_robin", X: "backends", Y: "µs of CPU a request",
		Lines: []svgplot.Series{series("storage_mux", curve, cpuOf)},
	}, backendCounts)
}

func (g *growing) byObjects(o object) error {
	lists := make([]float64, len(objectCounts))
	asked := make([]object, len(objectCounts))
	for i, n := range objectCounts {
		paths, err := fill(filepath.Join(g.dir, fmt.Sprintf("n%d", n)), o, n)
		if err != nil {
			return err
		}
		asked[i] = o
		asked[i].paths = paths
		if lists[i], err = g.list(g.site(fmt.Sprintf("%d objects", n))); err != nil {
			return err
		}
	}
	curve, err := g.points(len(objectCounts), func(i int) (site, object, int) {
		return g.site(fmt.Sprintf("%d objects", objectCounts[i])), asked[i], g.set.conns
	})
	if err != nil {
		return err
	}
	return errors.Join(
		g.draw("growth-objects.svg", svgplot.Plot{
			Title: "1 KiB from a directory, each time another object, by how many there are", X: "objects", Y: "µs of CPU a request",
			Lines: []svgplot.Series{series("storage_mux", curve, cpuOf)},
		}, objectCounts),
		g.draw("growth-list.svg", svgplot.Plot{
			Title: "A list of the first 1,000 objects, by how many there are", X: "objects", Y: "ms", Lines: []svgplot.Series{{Name: "storage_mux", Values: lists}},
		}, objectCounts),
	)
}

// fill makes n objects, which share a few files, in folders of a thousand, and gives some of their paths.
func fill(dir string, o object, n int) (paths []string, err error) {
	source := ""
	for i := range n {
		folder := fmt.Sprintf("%04d", i/folderSize)
		if i%folderSize == 0 {
			if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
				return nil, err
			}
		}
		name := filepath.Join(dir, folder, fmt.Sprintf("%03d", i%folderSize))
		if i%(20*folderSize) == 0 { // file systems bound the number of names
			source = name
			if err := os.WriteFile(name, make([]byte, o.size), 0o600); err != nil {
				return nil, err
			}
		} else if err := os.Link(source, name); err != nil {
			return nil, err
		}
		if i%(n/folderSize) == 0 {
			paths = append(paths, fmt.Sprintf("/%s/%03d", folder, i%folderSize))
		}
	}
	return paths, nil
}

// list is how long a list of the first objects takes, in milliseconds.
func (g *growing) list(s site) (float64, error) {
	var rounds []float64
	for range 9 {
		began := time.Now()
		if err := g.touch(s, fmt.Sprintf("/?list&limit=%d", listLimit)); err != nil {
			return 0, err
		}
		rounds = append(rounds, time.Since(began).Seconds()*1000)
	}
	return median(rounds, func(ms float64) float64 { return ms }), nil
}

// touch asks for something and takes what comes.
func (c *caddy) touch(s site, path string) error {
	resp, err := http.Get("http://" + c.addr(s) + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return nil
}

func (g *growing) bySize(objects []object) error {
	var lines []svgplot.Series
	for _, name := range []string{"file_server", "storage_mux file", "storage_mux http"} {
		curve, err := g.points(len(objects), func(i int) (site, object, int) { return g.site(name), objects[i], min(g.set.conns, 4) })
		if err != nil {
			return err
		}
		lines = append(lines, series(name, curve, cpuOf))
	}
	return g.draw("growth-size.svg", svgplot.Plot{Title: "A whole object, by its size", X: "bytes", Y: "µs of CPU a request", Log: true, Lines: lines}, growthSizes)
}

func (g *growing) byConns(o object) error {
	var lines []svgplot.Series
	for _, name := range []string{"file_server", "storage_mux file", "storage_mux http"} {
		curve, err := g.points(len(connCounts), func(i int) (site, object, int) { return g.site(name), o, connCounts[i] })
		if err != nil {
			return err
		}
		lines = append(lines, series(name, curve, cpuOf))
	}
	return g.draw("growth-connections.svg", svgplot.Plot{Title: "1 KiB, by how many ask at a time", X: "connections", Y: "µs of CPU a request", Lines: lines}, connCounts)
}

func series(name string, curve []measurement, figure func(measurement) float64) svgplot.Series {
	line := svgplot.Series{Name: name}
	for _, m := range curve {
		line.Values = append(line.Values, figure(m))
	}
	return line
}

// draw writes a plot, and its values to the output.
func (g *growing) draw(file string, p svgplot.Plot, scale []int) error {
	p.Step = 1
	for _, n := range scale {
		p.Ticks = append(p.Ticks, short(n))
	}
	_, _ = fmt.Fprintf(os.Stdout, "%s (%s)\n  %s: %v\n", p.Title, p.Y, p.X, p.Ticks)
	for _, line := range p.Lines {
		_, _ = fmt.Fprintf(os.Stdout, "  %s: %.3g\n", line.Name, line.Values)
	}
	return os.WriteFile(filepath.Join(g.out, file), p.SVG(), 0o644) //nolint:gosec // a picture for everybody
}

// short writes a number as people do.
func short(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + "Mi"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + "Ki"
	case n >= 1_000_000:
		return strconv.Itoa(n/1_000_000) + "M"
	case n >= 1_000:
		return strconv.Itoa(n/1_000) + "k"
	}
	return strconv.Itoa(n)
}
