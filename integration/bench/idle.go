package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// idle prints the memory of a Caddy with ten trees of ten backends beside that of one without, both at rest.
func idle(bin string) error {
	plain := site{"without", 0, "respond OK"}
	var config strings.Builder
	for i := range 10 {
		_, _ = fmt.Fprintf(&config, "handle_path /t%d/* {\nstorage_mux {\nname t%d\n", i, i)
		for j, kind := range []string{"file {$DIR}/files", "memory", "http http://127.0.0.1:1"} {
			for k := range 3 {
				_, _ = fmt.Fprintf(&config, "backend b%d-%d %s\n", j, k, kind)
			}
		}
		config.WriteString("backend last file {$DIR}/files\n}\n}\n")
	}
	trees := site{"with ten trees of ten backends", 0, config.String()}
	const rounds = 5
	var used [2][]usage
	for range rounds {
		for i, one := range []site{plain, trees} {
			u, err := atRest(bin, one)
			if err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			used[i] = append(used[i], u)
		}
	}
	resident := func(u usage) float64 { return u.resident / (1 << 20) }
	heap := func(u usage) float64 { return u.heap / (1 << 20) }
	_, err := fmt.Fprintf(os.Stdout, "medians of %d starts, MiB: resident %.1f with the trees, %.1f without; heap in use %.1f and %.1f\n",
		rounds, median(used[1], resident), median(used[0], resident), median(used[1], heap), median(used[0], heap))
	return err
}

// atRest is what a Caddy with this site uses once it is up.
func atRest(bin string, one site) (usage, error) {
	c, err := start(bin, []site{one}, nil)
	if err != nil {
		return usage{}, err
	}
	defer c.stop()
	if strings.Contains(one.config, "storage_mux") {
		if err := c.touch(one, "/t0/none"); err != nil {
			return usage{}, err
		}
	}
	<-time.After(2 * time.Second) // what starting takes is collected
	return c.usage()
}
