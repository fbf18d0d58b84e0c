// Command bench measures how many requests a second storage_mux serves, and how
// many allocations each of them takes, beside what Caddy itself has for the same
// work: file_server, respond and reverse_proxy. All of them are sites of one
// Caddy; they are measured in turns (A B C, A B C, ...), so that what else the
// machine does meets all of them, and medians are printed.
//
//	cd integration && go run ./bench
//
// CADDY_BIN names the Caddy to measure; without it, xcaddy-build.sh builds one.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// settings are the command line.
type settings struct {
	rounds  int
	span    time.Duration
	conns   int
	sizes   []string
	only    string
	tail    bool
	idle    bool
	growth  string
	profile string
}

func main() {
	s := settings{}
	flag.IntVar(&s.rounds, "rounds", 5, "how often each site is measured")
	flag.DurationVar(&s.span, "for", 2*time.Second, "how long one measurement takes")
	flag.IntVar(&s.conns, "conns", 16, "how many connections ask at a time")
	sizes := flag.String("sizes", "1KiB,100KiB,8MiB", "the sizes of the objects, out of these")
	flag.StringVar(&s.only, "only", "", "measure only the sites whose name contains this, or one of these with a | in between")
	flag.BoolVar(&s.tail, "tail", false, "measure the 99th percentile at half of what the slower one of a pair can serve")
	flag.BoolVar(&s.idle, "idle", false, "measure the memory of ten trees of ten backends that have nothing to do")
	flag.StringVar(&s.growth, "growth", "", "measure how cost grows, and draw it in this `folder`")
	flag.StringVar(&s.profile, "profile", "", "keep profiles of Caddy, under the load of one measurement each, in this `folder`")
	flag.Parse()
	s.sizes = strings.Split(*sizes, ",")
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures everything and prints the table.
func run(s settings) error {
	if flag.NArg() > 0 || s.rounds < 1 || s.span <= 0 || s.conns < 1 {
		return fmt.Errorf("rounds, for and conns must be positive, and there are no arguments")
	}
	objects, err := objectsOf(s.sizes)
	if err != nil {
		return err
	}
	contenders := slices.DeleteFunc(allSites(), func(c site) bool {
		return !slices.ContainsFunc(strings.Split(s.only, "|"), func(part string) bool { return strings.Contains(c.name, part) })
	})
	if len(contenders) == 0 {
		return fmt.Errorf("no site's name contains %q", s.only)
	}
	bin, err := binary()
	switch {
	case err != nil:
		return err
	case s.growth != "":
		return growth(bin, s)
	case s.idle:
		return idle(bin)
	}
	c, err := start(bin, allSites(), objects)
	if err != nil {
		return err
	}
	defer c.stop()
	switch {
	case s.tail:
		return tails(c, objects[0], s)
	case s.profile != "":
		return profiles(c, contenders, objects, s)
	}
	_, _ = fmt.Fprintf(os.Stdout, "%s, %d connections, medians of %d rounds of %v\n\n", bin, s.conns, s.rounds, s.span)
	for _, o := range objects {
		t := newTable(o)
		for round := range s.rounds + 1 { // the first one only warms up
			for _, site := range contenders {
				if !site.serves(o) {
					continue
				}
				m, err := measure(c, site, o, s)
				if err != nil {
					return fmt.Errorf("%s of %s: %w", o.name, site.name, err)
				}
				if round > 0 {
					t.add(site.name, m)
				}
			}
		}
		t.print(os.Stdout)
	}
	return nil
}

// measurement is one round at one site.
type measurement struct {
	perSecond float64
	allocs    float64 // a request
	cpu       float64 // µs a request
}

// measure asks one site for one object for a while.
func measure(c *caddy, s site, o object, set settings) (measurement, error) {
	before, err := c.usage()
	if err != nil {
		return measurement{}, err
	}
	n, took, err := load{addr: c.addr(s), object: o, conns: set.conns, span: set.span}.run()
	if err != nil {
		return measurement{}, err
	}
	after, err := c.usage()
	if err != nil {
		return measurement{}, err
	}
	per := float64(n)
	return measurement{perSecond: per / took.Seconds(), allocs: (after.mallocs - before.mallocs) / per, cpu: (after.cpu - before.cpu) / per * 1e6}, nil
}
