package muxcore_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/memstore"
)

func ExampleNew() {
	origin, _ := memstore.New(memstore.Settings{})
	mirror, _ := memstore.New(memstore.Settings{})
	mux, err := muxcore.New(muxcore.Settings{Mode: muxcore.Shield},
		muxcore.Backend{Name: "origin", Store: origin},
		muxcore.Backend{Name: "mirror", Store: mirror},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mux.Close()

	ctx := context.Background()
	body := "on every mirror"
	if _, err := mux.Put(ctx, "hello.txt", strings.NewReader(body), int64(len(body)), muxcore.PutOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	_ = mux.Drain(ctx, "origin")
	obj, err := mux.Get(ctx, "hello.txt", muxcore.GetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer obj.Body.Close()
	text, _ := io.ReadAll(obj.Body)
	fmt.Printf("%s: %s\n", obj.Via.Backend, text)
	// Output: mirror: on every mirror
}
