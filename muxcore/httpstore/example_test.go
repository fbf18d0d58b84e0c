package httpstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

func ExampleNew() {
	origin := httptest.NewServer(http.FileServerFS(os.DirFS("testdata")))
	defer origin.Close()

	store, err := httpstore.New(httpstore.Settings{BaseURL: origin.URL + "/site"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	ctx := context.Background()
	object, err := store.Get(ctx, "hello world.txt", muxcore.GetOptions{Range: muxcore.Range{Offset: -6}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer object.Body.Close()
	text, err := io.ReadAll(object.Body)
	fmt.Printf("%q, bytes %d to %d of %d, %v\n", text, object.Offset, object.Offset+object.Length, object.Size, err)

	_, err = store.Stat(ctx, "missing.txt", muxcore.Conditions{})
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output:
	// "world\n", bytes 6 to 12 of 12, <nil>
	// true
}
