package httpstore_test

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

// Some origins send a body with the answer to HEAD, or more bytes than they announced. If these look like an answer, as
// whoever uploads an object can make them, they must not become the answer to the next request on that connection. That
// was so in about one of a thousand cases.
func TestWhatComesBeyondAnAnswerIsNoAnswerToTheNextRequest(t *testing.T) {
	t.Parallel()
	forged := sized(200, `ETag: "forged"`, "forged")
	for name, surplus := range map[string]string{
		"a body to HEAD":              sized(200, "", forged),
		"more than was announced":     sized(200, "", "x") + forged,
		"more than nothing":           sized(200, "", "") + forged,
		"a body with 304":             "HTTP/1.1 304 X\r\nETag: \"a\"\r\nContent-Length: 6\r\n\r\n" + forged,
		"more after the last chunk":   answer("200 X|Transfer-Encoding: chunked", "1\r\nx\r\n0\r\n\r\n"+forged),
		"what is no answer, and more": sized(200, "", "x") + "garbage\r\n\r\n" + forged,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, r *http.Request) bool {
				text := surplus
				if r.URL.Path == "/good" {
					text = sized(200, "", "good")
				}
				_, err := io.WriteString(conn, text)
				return err == nil
			})})
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range storetest.Times(8, 80) {
						if name == "a body to HEAD" {
							_, _ = s.Stat(t.Context(), "odd", muxcore.Conditions{})
						} else {
							_, _, _ = read(t, s, "odd", muxcore.GetOptions{Conditions: muxcore.Conditions{IfNoneMatch: `"a"`}})
						}
						if _, body, err := read(t, s, "good", muxcore.GetOptions{}); err != nil || body != "good" {
							t.Errorf("Get = %q, %v, want %q", body, err, "good")
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
