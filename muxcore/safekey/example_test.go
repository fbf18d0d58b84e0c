package safekey_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/suaveplan/caddy-storage-mux/muxcore/safekey"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ExampleEncode() {
	key := safekey.Encode("certificates/*.example.com/aux")
	fmt.Println(key)
	fmt.Println(safekey.Decode(key))
	// Output:
	// certificates/%2a.example.com/%61ux
	// certificates/*.example.com/aux <nil>
}
