package swiftstore_test

import (
	"fmt"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/swiftstore"
)

func ExampleNew() {
	store, err := swiftstore.New(swiftstore.Settings{
		Container: "assets",
		AuthURL:   "https://identity.example.com/v3",
		User:      "deploy",
		Key:       "secret",
		Tenant:    "website",
		Region:    "EU1",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	can := muxcore.CapabilitiesOf(store)
	fmt.Println("writes:", can.Write, "lists:", can.List, "conditional writes:", can.ConditionalWrite)

	_, err = swiftstore.New(swiftstore.Settings{Container: "assets", AuthURL: "https://identity.example.com/", User: "deploy", Key: "secret"})
	fmt.Println(err)
	// Output:
	// writes: true lists: true conditional writes: false
	// auth_url: has none of v1, v2 and v3 in its path, got "https://identity.example.com/"
}
