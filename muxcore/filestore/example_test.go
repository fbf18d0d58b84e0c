package filestore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/filestore"
)

func ExampleNew() {
	root, err := os.MkdirTemp("", "filestore")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	store, err := filestore.New(filestore.Settings{Root: root})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	ctx := context.Background()
	if _, err := store.Put(ctx, "site/hello.txt", strings.NewReader("hello, world"), 12, muxcore.PutOptions{}); err != nil {
		panic(err)
	}
	o, err := store.Get(ctx, "site/hello.txt", muxcore.GetOptions{Range: muxcore.Range{Offset: -5}})
	if err != nil {
		panic(err)
	}
	defer o.Body.Close()
	part, err := io.ReadAll(o.Body)
	fmt.Printf("%s %q %v, bytes %d to %d of %d\n", o.ContentType, part, err, o.Offset, o.Offset+o.Length, o.Size)

	_, err = store.Get(ctx, "../etc/passwd", muxcore.GetOptions{})
	fmt.Println(muxcore.CodeOf(err))
	// Output:
	// text/plain; charset=utf-8 "world" <nil>, bytes 7 to 12 of 12
	// STORAGE.INVALID_KEY
}
