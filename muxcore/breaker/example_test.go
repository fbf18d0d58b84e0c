package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

func ExampleNew() {
	b, err := breaker.New("here→there", breaker.Settings{FailureThreshold: 2})
	if err != nil {
		return
	}
	defer b.Close()
	for range 3 {
		permit, err := b.Allow()
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
			break
		}
		permit.Failure("connection refused")
	}
	fmt.Fprintln(os.Stdout, b.State())
	// Output:
	// CB.PATH_OPEN: here→there
	// OPEN
}

func ExampleNewRegistry() {
	r, err := breaker.NewRegistry(breaker.Settings{FailureThreshold: 1})
	if err != nil {
		return
	}
	defer r.Close()
	permit, _ := r.GetOrCreate("here→a").Allow()
	permit.Failure("reset by peer")
	r.GetOrCreate("here→b")
	fmt.Fprintln(os.Stdout, r.ListOpen())
	_, err = r.State("here→c")
	fmt.Fprintln(os.Stdout, errors.Is(err, breaker.ErrRegistryPathNotFound))
	// Output:
	// [here→a]
	// true
}

func ExampleNewHalfOpenProbe() {
	b, _ := breaker.New("here→there", breaker.Settings{})
	defer b.Close()
	probe, err := breaker.NewHalfOpenProbe(func(ctx context.Context, path string) error {
		return ctx.Err() // ask the path for something light here
	}, breaker.ProbeSettings{})
	if err != nil {
		return
	}
	defer probe.Stop()
	unwatch := probe.Watch(b)
	defer unwatch()
	fmt.Fprintln(os.Stdout, b.State())
	// Output: CLOSED
}

func ExampleNewGroup() {
	g := breaker.NewGroup(1, nil) // of all members, one must stay closed
	r, _ := breaker.NewRegistry(breaker.Settings{FailureThreshold: 1})
	defer r.Close()
	a, b := r.GetOrCreate("here→a"), r.GetOrCreate("here→b")
	g.Set(a, b)
	for _, member := range []*breaker.Breaker{a, b} {
		permit, _ := member.Allow()
		permit.Failure("down")
		fmt.Fprintln(os.Stdout, member.Path(), member.State())
	}
	// Output:
	// here→a OPEN
	// here→b CLOSED
}
