package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// tails prints the 99th percentile of each pair at the same rate: half of what the slower one of the two serves at most.
// Requests are due at fixed times, and their time counts from then on, however late they are sent.
func tails(c *caddy, o object, s settings) error {
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(tw, "%s\trequests/s\tp50, ms\tp99, ms\tshare of the p99\n", o.name)
	for _, ours := range c.sites {
		peer := slices.IndexFunc(c.sites, func(one site) bool { return one.name == peers[ours.name] })
		if peer < 0 || c.sites[peer].port > ours.port {
			continue
		}
		pair, rate := []site{c.sites[peer], ours}, 0.0
		for _, one := range pair {
			m, err := measure(c, one, o, s)
			if err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			if rate == 0 || m.perSecond < rate {
				rate = m.perSecond
			}
		}
		rate /= 2
		times := make([][]float64, len(pair))
		for range s.rounds {
			for i, one := range pair {
				took, err := (load{addr: c.addr(one), object: o, conns: s.conns, span: s.span}).paced(rate)
				if err != nil {
					return fmt.Errorf("%s: %w", one.name, err)
				}
				times[i] = append(times[i], took...)
			}
		}
		for i, one := range pair {
			slices.Sort(times[i])
			share := ""
			if i > 0 {
				share = fmt.Sprintf("%.2f of %s", at(times[i], 0.99)/at(times[0], 0.99), pair[0].name)
			}
			_, _ = fmt.Fprintf(tw, "%s\t%.0f\t%.2f\t%.2f\t%s\n", one.name, rate, at(times[i], 0.5), at(times[i], 0.99), share)
		}
	}
	return tw.Flush()
}

// at is a quantile of what is sorted.
func at(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// paced asks at a rate, and gives the time of each answer, in milliseconds from when its request was due.
func (l load) paced(rate float64) ([]float64, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		times []float64
		first error
	)
	every := time.Duration(float64(l.conns) / rate * float64(time.Second))
	start := time.Now()
	for i := range l.conns {
		wg.Go(func() {
			took, err := l.pacedOn(start.Add(every*time.Duration(i)/time.Duration(l.conns)), every, start.Add(l.span))
			mu.Lock()
			defer mu.Unlock()
			times = append(times, took...)
			if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	return times, first
}

func (l load) pacedOn(due time.Time, every time.Duration, end time.Time) (times []float64, err error) {
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(end.Add(answerWithin))
	request, br := l.requests()[0], bufio.NewReaderSize(conn, 64<<10)
	for ; due.Before(end); due = due.Add(every) {
		<-time.After(time.Until(due))
		if err := l.one(conn, br, request); err != nil {
			return times, err
		}
		times = append(times, time.Since(due).Seconds()*1000)
	}
	return times, nil
}
