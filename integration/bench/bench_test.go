package main

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestTheMedianIsTheMiddle(t *testing.T) {
	rate := func(m measurement) float64 { return m.perSecond }
	for want, values := range map[float64][]measurement{
		2:   {{perSecond: 9}, {perSecond: 1}, {perSecond: 2}},
		2.5: {{perSecond: 9}, {perSecond: 1}, {perSecond: 2}, {perSecond: 3}},
	} {
		if got := median(values, rate); got != want {
			t.Errorf("median(%v) = %v, want %v", values, got, want)
		}
	}
}

func TestTheLoadCountsAnswersAndNoticesWrongOnes(t *testing.T) {
	objects, err := objectsOf([]string{"1KiB"})
	if err != nil {
		t.Fatal(err)
	}
	body := objects[0].body
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	defer srv.Close()
	l := load{addr: srv.Listener.Addr().String(), object: objects[0], conns: 2, span: 50 * time.Millisecond}
	if n, _, err := l.run(); err != nil || n < 2 {
		t.Errorf("run() = %d, %v", n, err)
	}
	l.object.body = []byte("another")
	if _, _, err := l.run(); err == nil {
		t.Error("a wrong body went unnoticed")
	}
}

func TestReadHeaderRefusesWhatItCannotMeasure(t *testing.T) {
	for text, ok := range map[string]bool{
		"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n":          true,
		"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n":   false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n": false,
		"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n":       false,
		"HTTP/1.1 200 OK\r\n":                                   false,
	} {
		if _, err := readHeader(bufio.NewReader(strings.NewReader(text))); (err == nil) != ok {
			t.Errorf("readHeader(%q): %v", text, err)
		}
	}
}

func TestTheTableComparesASiteWithItsPeer(t *testing.T) {
	tab := newTable(object{name: "1KiB"})
	tab.add("file_server", measurement{perSecond: 100, allocs: 10})
	tab.add("storage_mux file", measurement{perSecond: 90, allocs: 12})
	var out strings.Builder
	tab.print(&out)
	if !strings.Contains(out.String(), "0.90 of file_server") || !strings.Contains(out.String(), "12.0") {
		t.Errorf("table:\n%s", out.String())
	}
}

func TestUnknownSizesAreRefused(t *testing.T) {
	if _, err := objectsOf([]string{"2KiB"}); err == nil {
		t.Error("an unknown size was taken")
	}
	if _, err := net.ResolveTCPAddr("tcp", (&caddy{ports: make([]int, 6)}).addr(allSites()[5])); err != nil {
		t.Error(err)
	}
}
