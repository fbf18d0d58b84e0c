package bunnystore_test

import (
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/bunnystore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/cloudtest"
)

// Whatever Bunny answers, no store believes what cannot be.
func FuzzAHostileZone(f *testing.F) {
	const (
		described = "HTTP/1.1 200 OK\n\n" + `{"ObjectName":"key","Length":10,"LastChanged":"2024-05-06T07:08:10.5","IsDirectory":false,"Checksum":"84D89877F0D4041EFB6BF91A16F0248F2FD573E6AF05C19F96BEDB9F882F7882","ContentType":"text/plain"}`
		object    = "HTTP/1.1 200 OK\nContent-Length: 10\n\n0123456789"
		list      = "HTTP/1.1 200 OK\n\n" + `[{"ObjectName":"some","IsDirectory":true},{"ObjectName":"key","Length":-5},{"ObjectName":"../x"},{"ObjectName":"a","Checksum":"zz"}]`
	)
	cloudtest.Fuzz(f, []string{
		described + cloudtest.Between + object, described + cloudtest.Between + object + cloudtest.Between + described, object, list,
		described + cloudtest.Between + "HTTP/1.1 206 OK\nContent-Range: bytes 3-6/10\nContent-Length: 4\n\n3456" + cloudtest.Between + described,
		list + cloudtest.Between + "HTTP/1.1 404 X\nContent-Length: 0\n\n", "HTTP/1.1 401 X\n\nPASSWORD", "HTTP/1.1 201 OK\n\n",
		"HTTP/1.1 200 OK\n\n" + strings.Repeat("[", 20_000), "HTTP/1.1 200 OK\n\n" + `[{"ObjectName":"a`, "HTTP/1.1 200 OK\n\n" + `[{"ObjectName":"/"},`,
		"HTTP/1.1 200 OK\n\n" + `{"Length":9223372036854775807,"Checksum":"","DateCreated":"x","ObjectName":"key","ContentType":"a\r\nb: c"}` + cloudtest.Between + "HTTP/1.1 200 OK\n\n0",
	}, func(tb testing.TB, h *cloudtest.Hostile) muxcore.Store {
		s, err := bunnystore.New(bunnystore.Settings{Zone: "zone", Endpoint: "http://bunny.test", AccessKey: "PASSWORD", VerifyWrites: true, Transport: h})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	}, true, "PASSWORD")
}
