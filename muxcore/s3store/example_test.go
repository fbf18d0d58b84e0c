package s3store_test

import (
	"fmt"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/s3store"
)

func ExampleNew() {
	store, err := s3store.New(s3store.Settings{
		Bucket:    "assets",
		Endpoint:  "https://objects.example.com",
		Region:    "eu-1",
		AccessKey: "deploy",
		SecretKey: "secret",
		Prefix:    "website",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	can := muxcore.CapabilitiesOf(store)
	fmt.Println("writes:", can.Write, "lists:", can.List, "conditional writes:", can.ConditionalWrite)

	_, err = s3store.New(s3store.Settings{Bucket: "assets", AccessKey: "deploy"})
	fmt.Println(err)
	// Output:
	// writes: true lists: true conditional writes: true
	// secret_key: missing beside access_key
}
