package httpstore_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
)

var benchSizes = []int{1 << 10, 100 << 10}

// benchOrigin serves objects of the size that their key says, with the fields that an origin has.
func benchOrigin(b *testing.B) string {
	b.Helper()
	bodies := map[string][]byte{}
	for _, size := range benchSizes {
		bodies["/"+strconv.Itoa(size)] = bytes.Repeat([]byte("x"), size)
	}
	return serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := bodies[r.URL.Path]
		h := w.Header()
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
		h["Content-Type"] = []string{"application/octet-stream"}
		h["Etag"] = []string{`"0123456789abcdef"`}
		h["Last-Modified"] = []string{"Sat, 03 Feb 2001 04:05:06 GMT"}
		_, _ = w.Write(body)
	}))
}

func BenchmarkGet(b *testing.B) {
	base := benchOrigin(b)
	for _, size := range benchSizes {
		key := strconv.Itoa(size)
		b.Run(fmt.Sprintf("store/%dKiB", size>>10), func(b *testing.B) {
			s := open(b, httpstore.Settings{BaseURL: base})
			buf := make([]byte, 64<<10)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				o, err := s.Get(b.Context(), key, muxcore.GetOptions{})
				if err != nil {
					b.Fatal(err)
				}
				drainInto(b, o.Body, buf, size)
			}
		})
		b.Run(fmt.Sprintf("transport/%dKiB", size>>10), func(b *testing.B) {
			transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256}
			defer transport.CloseIdleConnections()
			buf := make([]byte, 64<<10)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, base+"/"+key, http.NoBody)
				if err != nil {
					b.Fatal(err)
				}
				resp, err := transport.RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				drainInto(b, resp.Body, buf, size)
			}
		})
	}
}

// BenchmarkMirror reads from a mirror of three origins, two of which are beaten each time.
func BenchmarkMirror(b *testing.B) {
	size := benchSizes[0]
	var backends []muxcore.Backend
	for i := range 3 {
		backends = append(backends, muxcore.Backend{Name: fmt.Sprint("b", i), Store: open(b, httpstore.Settings{BaseURL: benchOrigin(b)})})
	}
	m, err := muxcore.New(muxcore.Settings{Mode: muxcore.Mirror}, backends...)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	buf := make([]byte, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		o, err := m.Get(b.Context(), strconv.Itoa(size), muxcore.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		drainInto(b, o.Body, buf, size)
	}
}

func drainInto(b *testing.B, body io.ReadCloser, buf []byte, size int) {
	b.Helper()
	total := 0
	for {
		n, err := body.Read(buf)
		total += n
		if err != nil {
			break
		}
	}
	if total != size {
		b.Fatalf("read %d bytes, want %d", total, size)
	}
	body.Close()
}

func BenchmarkPut(b *testing.B) {
	base := serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	for _, size := range benchSizes {
		body := strings.Repeat("x", size)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s := open(b, httpstore.Settings{BaseURL: base})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Put(b.Context(), "k", strings.NewReader(body), int64(size), muxcore.PutOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkList lists a collection of 10,000 objects.
func BenchmarkList(b *testing.B) {
	items := make([]string, 10_000)
	for i := range items {
		items[i] = davItem(fmt.Sprintf("/base/object-%05d", i), "<D:getcontentlength>12</D:getcontentlength><D:getetag>\"v1\"</D:getetag>"+
			"<D:getlastmodified>Sat, 03 Feb 2001 04:05:06 GMT</D:getlastmodified><D:getcontenttype>text/plain</D:getcontenttype><D:resourcetype/>")
	}
	s := listsAs(b, multistatus(items...))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range s.List(b.Context(), muxcore.ListOptions{}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != len(items) {
			b.Fatalf("List yields %d entries, want %d", n, len(items))
		}
	}
}
