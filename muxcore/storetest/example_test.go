package storetest_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

func ExampleNewFaulty() {
	inner, err := memstore.New(memstore.Settings{})
	if err != nil {
		panic(err)
	}
	f := storetest.NewFaulty(inner)
	f.On(muxcore.OpGet, 1, storetest.FailCode(muxcore.CodeUnavailable))
	f.On(muxcore.OpGet, 2, storetest.Cut(5, nil))

	ctx := context.Background()
	if _, err := f.Put(ctx, "greeting", strings.NewReader("hello, world"), -1, muxcore.PutOptions{}); err != nil {
		panic(err)
	}
	for range 3 {
		o, err := f.Get(ctx, "greeting", muxcore.GetOptions{})
		if err != nil {
			fmt.Println(muxcore.CodeOf(err))
			continue
		}
		data, err := io.ReadAll(o.Body)
		o.Body.Close()
		fmt.Printf("%q %v\n", data, err)
	}
	fmt.Println(f.Calls(muxcore.OpGet), "calls,", f.OpenBodies(), "open")
	// Output:
	// STORAGE.UNAVAILABLE
	// "hello" unexpected EOF
	// "hello, world" <nil>
	// 3 calls, 0 open
}
