package bunnystore_test

import (
	"context"
	"fmt"

	"github.com/suaveplan/caddy-storage-mux/muxcore/bunnystore"
)

func ExampleNew() {
	store, err := bunnystore.New(bunnystore.Settings{
		Zone: "assets", Region: "ny", AccessKey: "password of the zone",
		PullZone: "https://assets.b-cdn.net",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	fmt.Println(store.PublicURL(context.Background(), "css/site 1.css"))

	_, err = bunnystore.New(bunnystore.Settings{Zone: "assets", Region: "us", AccessKey: "password of the zone"})
	fmt.Println(err)
	// Output:
	// https://assets.b-cdn.net/css/site%201.css <nil>
	// region: must be one of br, de, jh, la, ny, se, sg, syd, uk, got "us"
}
