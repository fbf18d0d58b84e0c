package wire

import (
	"net/url"
	"strconv"
)

// HasServer tells whether requests can go to u: it is http or https, with a host and no port that there is none of.
func HasServer(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && IsPort(u.Port())
}

// IsPort tells whether text is a port, or nothing.
func IsPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}
