package memstore_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

func ExampleNew() {
	store, err := memstore.New(memstore.Settings{MaxBytes: 1 << 20})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if _, err := store.Put(ctx, "greeting", strings.NewReader("hello, world"), -1, muxcore.PutOptions{}); err != nil {
		panic(err)
	}
	o, err := store.Get(ctx, "greeting", muxcore.GetOptions{Range: muxcore.Range{Length: 5}})
	if err != nil {
		panic(err)
	}
	defer o.Body.Close()
	part, err := io.ReadAll(o.Body)
	fmt.Printf("%q of %d bytes, %v\n", part, o.Size, err)

	_, err = store.Put(ctx, "large", strings.NewReader(""), 1<<30, muxcore.PutOptions{})
	fmt.Println(muxcore.CodeOf(err))
	// Output:
	// "hello" of 12 bytes, <nil>
	// STORAGE.TOO_LARGE
}
