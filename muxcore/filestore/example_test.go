package filestore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// Small files that are read often come out of memory: one cache for all folders of a process.
func ExampleNewCache() {
	root, err := os.MkdirTemp("", "filestore")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	cache := filestore.NewCache(16 << 20)
	for _, folder := range []string{"site", "images"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o700); err != nil {
			panic(err)
		}
		store, err := filestore.New(filestore.Settings{Root: filepath.Join(root, folder), Cache: cache})
		if err != nil {
			panic(err)
		}
		defer store.Close()
		ctx := context.Background()
		if _, err := store.Put(ctx, "name.txt", strings.NewReader(folder), -1, muxcore.PutOptions{}); err != nil {
			panic(err)
		}
		o, err := store.Get(ctx, "name.txt", muxcore.GetOptions{})
		if err != nil {
			panic(err)
		}
		text, err := io.ReadAll(o.Body)
		fmt.Println(string(text), err, o.Body.Close())
	}
	// Output:
	// site <nil> <nil>
	// images <nil> <nil>
}
