package wire

import (
	"net/url"
	"testing"
)

func TestRequestsCanGoToAHostWithAPortThatThereIs(t *testing.T) {
	for text, want := range map[string]bool{
		"http://host":         true,
		"https://host:/path":  true,
		"https://[::1]:65535": true,
		"http://host:65536":   false,
		"http://host:0":       false,
		"http://:80":          false,
		"http:///path":        false,
		"ftp://host":          false,
		"host/path":           false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := HasServer(u); got != want {
			t.Errorf("HasServer(%q) = %v, want %v", text, got, want)
		}
	}
}
