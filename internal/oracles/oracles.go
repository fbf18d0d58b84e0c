// Package oracles holds requests for parts, with and without preconditions, on which net/http is the oracle.
package oracles

import (
	"fmt"
	"io"
	"mime/multipart"
	"strings"
	"testing"
)

// Alphabet is the body of what is asked for.
const Alphabet = "abcdefghijklmnopqrstuvwxyz"

// Ranges are values of Range that net/http reads as RFC 9110 does.
var Ranges = []string{
	"bytes=0-0", "bytes=0-", "bytes=0-25", "bytes=0-26", "bytes=0-999999", "bytes=5-9", "bytes=25-25", "bytes=25-", "bytes=25-99",
	"bytes=26-", "bytes=26-30", "bytes=999-1000", "bytes=-1", "bytes=-5", "bytes=-26", "bytes=-27", "bytes=-999999", "bytes= 3-4 ",
	"bytes=0-0,-1", "bytes=0-1,4-5", "bytes=1-2, 4-5 ,7-8", "bytes=0-4,2-6", "bytes=20-25,0-3", "bytes=0-1,99-100", "bytes=99-,100-",
	"bytes=0-25,0-25", "bytes=0-20,1-21,2-22", "bytes=0-1,,3-4", "bytes=,", "bytes=0-9223372036854775807", "bytes=9223372036854775807-",
	"bytes=" + strings.Repeat("0-0,", 20) + "1-1", "bytes=" + strings.Repeat("0-0,", 200) + "0-0",
}

// Malformed are values of Range that are to be ignored.
var Malformed = []string{
	"", "bytes", "bytes=", "bytes=-", "bytes=abc", "bytes=a-b", "bytes=5-2", "bytes=--5", "bytes=1-2-3", "bytes=1", "bytes=0-1,x",
	"bytes=0x0-0x5", "bytes=+1-2", "bytes=1.0-2", "bytes:0-1", "lines=0-1", "=0-1", "0-1", "bytes=\u00e9-1", "bytes=5-2,0-1",
	"bytes=1 - 2", "bytes=" + strings.Repeat("0-0,", 199) + "x-",
}

// Conditions are preconditions, as names and values of fields. {etag} and {date} stand for the validators of the server that is asked.
var Conditions = [][]string{
	{"If-None-Match", "{etag}"},
	{"If-None-Match", "W/{etag}"},
	{"If-None-Match", "*"},
	{"If-None-Match", `"other"`},
	{"If-None-Match", `"other", {etag}`},
	{"If-None-Match", `"other",W/{etag} , "third"`},
	{"If-None-Match", "no quotes"},
	{"If-None-Match", `"unclosed`},
	{"If-None-Match", ""},
	{"If-None-Match", ",,"},
	{"If-Match", "{etag}"},
	{"If-Match", "W/{etag}"},
	{"If-Match", "*"},
	{"If-Match", `"other"`},
	{"If-Match", `"other", {etag}`},
	{"If-Match", "no quotes"},
	{"If-Match", ""},
	{"If-Modified-Since", "{date}"},
	{"If-Modified-Since", "Thu, 01 Jan 1970 00:00:01 GMT"},
	{"If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"},
	{"If-Modified-Since", "yesterday"},
	{"If-Modified-Since", "0"},
	{"If-Unmodified-Since", "{date}"},
	{"If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:01 GMT"},
	{"If-Unmodified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"},
	{"If-Unmodified-Since", "yesterday"},
	{"If-Range", "{etag}"},
	{"If-Range", "W/{etag}"},
	{"If-Range", `"other"`},
	{"If-Range", "{date}"},
	{"If-Range", "Thu, 01 Jan 1970 00:00:01 GMT"},
	{"If-Range", "nonsense"},
	{"If-Range", ""},
	{"If-None-Match", `"other"`, "If-Modified-Since", "{date}"},
	{"If-None-Match", "{etag}", "If-Modified-Since", "Thu, 01 Jan 1970 00:00:01 GMT"},
	{"If-Match", "{etag}", "If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:01 GMT"},
	{"If-Match", "{etag}", "If-None-Match", "{etag}"},
	{"If-Match", `"other"`, "If-None-Match", "{etag}"},
	{"If-Match", "{etag}", "If-Range", `"other"`},
}

// Parts lists the ranges of a multipart body, without its boundary.
func Parts(tb testing.TB, body, boundary string) string {
	tb.Helper()
	var out strings.Builder
	for mr := multipart.NewReader(strings.NewReader(body), boundary); ; {
		part, err := mr.NextPart()
		if err == io.EOF { //nolint:errorlint // of a body that breaks off, the error wraps it
			return out.String()
		}
		var text []byte
		if err == nil {
			text, err = io.ReadAll(part)
		}
		if err != nil {
			tb.Errorf("reading a part: %v", err)
			return out.String()
		}
		_, _ = fmt.Fprintf(&out, "%v %q\n", part.Header, text)
	}
}
