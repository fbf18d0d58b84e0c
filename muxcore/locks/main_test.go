package locks_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore/locks"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	goleak.VerifyTestMain(m)
}

func ExampleNew() {
	store, err := memstore.New(memstore.Settings{})
	if err != nil {
		panic(err)
	}
	l, err := locks.New(store, locks.Settings{Owner: "an example"})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := l.Lock(ctx, "issue_cert_example.com"); err != nil {
		panic(err)
	}
	fmt.Println(l.TryLock(ctx, "issue_cert_example.com"))
	fmt.Println(l.Unlock(ctx, "issue_cert_example.com"))
	// Output:
	// false <nil>
	// <nil>
}
