package httpstore_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/httpstore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
)

const digits = "0123456789"

func TestAnOriginThatLiesAboutARangeIsNotBelieved(t *testing.T) {
	middle := muxcore.Range{Offset: 3, Length: 4}
	for _, try := range []struct {
		name   string
		r      muxcore.Range
		answer string
	}{
		{"another offset", middle, sized(206, "Content-Range: bytes 0-3/10", "0123")},
		{"fewer bytes than asked for", middle, sized(206, "Content-Range: bytes 3-5/10", "345")},
		{"more bytes than asked for", middle, sized(206, "Content-Range: bytes 3-7/10", "34567")},
		{"a length that is not that of the body", middle, sized(206, "Content-Range: bytes 3-6/10", "34")},
		{"no Content-Range", middle, sized(206, "", "3456")},
		{"a Content-Range that is none", middle, sized(206, "Content-Range: bytes 3-6", "3456")},
		{"another unit", middle, sized(206, "Content-Range: lines 3-6/10", "3456")},
		{"a sign in a position", middle, sized(206, "Content-Range: bytes +3-6/10", "3456")},
		{"an end past the size", middle, sized(206, "Content-Range: bytes 3-6/5", "3456")},
		{"an end before the beginning", middle, sized(206, "Content-Range: bytes 6-3/10", "")},
		{"an overflow", muxcore.Range{Offset: 0, Length: 4}, sized(206, "Content-Range: bytes 0-9223372036854775807/*", "0123")},
		{"several parts", middle, sized(206, "Content-Type: multipart/byteranges; boundary=x", "--x\r\n\r\n3456\r\n--x--")},
		{"a suffix from elsewhere", muxcore.Range{Offset: -4}, sized(206, "Content-Range: bytes 0-3/10", "0123")},
		{"an end that is not the end", muxcore.Range{Offset: 3}, sized(206, "Content-Range: bytes 3-6/10", "3456")},
		{"a part nobody asked for", muxcore.Range{}, sized(206, "Content-Range: bytes 0-3/10", "0123")},
		{"416 for what is there", middle, sized(416, "Content-Range: bytes */10", "")},
		{"416 for the end of something", muxcore.Range{Offset: -4}, sized(416, "Content-Range: bytes */10", "")},
	} {
		t.Run(try.name, func(t *testing.T) {
			_, got, err := read(t, says(t, try.answer), "k", muxcore.GetOptions{Range: try.r})
			if muxcore.CodeOf(err) != muxcore.CodeUnavailable || muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
				t.Errorf("Get = %q, %v, want UNAVAILABLE, transient", got, err)
			}
		})
	}
}

func TestPartsAreRightWhateverTheOriginMakesOfThem(t *testing.T) {
	chunked := func(body string) string {
		return answer("200 OK|Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body))
	}
	for _, try := range []struct {
		name       string
		r          muxcore.Range
		answer     string
		want       string
		offset     int64
		length     int64
		size       int64
		wantedCode muxcore.Code
	}{
		{"a part", muxcore.Range{Offset: 3, Length: 4}, sized(206, "Content-Range: bytes 3-6/10", "3456"), "3456", 3, 4, 10, ""},
		{"a part past the end", muxcore.Range{Offset: 3, Length: 99}, sized(206, "Content-Range: bytes 3-9/10", "3456789"), "3456789", 3, 7, 10, ""},
		{"a part of unknown size", muxcore.Range{Offset: 3, Length: 4}, sized(206, "Content-Range: bytes 3-6/*", "3456"), "3456", 3, -1, -1, ""},
		{"a part that shows the size by its end", muxcore.Range{Offset: 3}, sized(206, "Content-Range: bytes 3-9/*", "3456789"), "3456789", 3, 7, 10, ""},
		{"a short part that shows the size", muxcore.Range{Offset: 3, Length: 99}, sized(206, "Content-Range: bytes 3-9/*", "3456789"), "3456789", 3, 7, 10, ""},
		{"a suffix", muxcore.Range{Offset: -3}, sized(206, "Content-Range: bytes 7-9/10", "789"), "789", 7, 3, 10, ""},
		{"a suffix longer than all", muxcore.Range{Offset: -99}, sized(206, "Content-Range: bytes 0-9/10", digits), digits, 0, 10, 10, ""},
		{"a suffix of unknown size", muxcore.Range{Offset: -3}, sized(206, "Content-Range: bytes 7-9/*", "789"), "789", 7, 3, 10, ""},
		{"the beginning of a suffix", muxcore.Range{Offset: -3, Length: 2}, sized(206, "Content-Range: bytes 7-9/10", "789"), "78", 7, 2, 10, ""},
		{"a chunked part", muxcore.Range{Offset: 3, Length: 4}, answer("206 X|Content-Range: bytes 3-6/10|Transfer-Encoding: chunked", "4\r\n3456\r\n0\r\n\r\n"), "3456", 3, 4, 10, ""},
		{"range ignored", muxcore.Range{Offset: 3, Length: 4}, sized(200, "", digits), "3456", 3, 4, 10, ""},
		{"suffix ignored", muxcore.Range{Offset: -3}, sized(200, "", digits), "789", 7, 3, 10, ""},
		{"range ignored, past the end", muxcore.Range{Offset: 10}, sized(200, "", digits), "", 0, 0, 10, muxcore.CodeRangeNotSatisfiable},
		{"range ignored, length unknown", muxcore.Range{Offset: 3, Length: 4}, chunked(digits), "3456", 3, -1, -1, ""},
		{"range ignored, length unknown, to the end", muxcore.Range{Offset: 3}, chunked(digits), "3456789", 3, -1, -1, ""},
		{"range ignored, length unknown, past the end", muxcore.Range{Offset: 10}, chunked(digits), "", 0, 0, 10, muxcore.CodeRangeNotSatisfiable},
		{"range ignored, length unknown, far past the end", muxcore.Range{Offset: 99}, chunked(digits), "", 0, 0, 10, muxcore.CodeRangeNotSatisfiable},
		{"suffix ignored, length unknown", muxcore.Range{Offset: -3}, chunked(digits), "", 0, 0, 0, muxcore.CodeUnsupported},
		{"an empty object", muxcore.Range{Offset: 0, Length: 1}, sized(200, "", ""), "", 0, 0, 0, muxcore.CodeRangeNotSatisfiable},
		{"416", muxcore.Range{Offset: 10}, sized(416, "Content-Range: bytes */10", ""), "", 0, 0, 10, muxcore.CodeRangeNotSatisfiable},
		{"416 that does not say the size", muxcore.Range{Offset: 10}, sized(416, "", ""), "", 0, 0, -1, muxcore.CodeRangeNotSatisfiable},
	} {
		t.Run(try.name, func(t *testing.T) {
			o, got, err := read(t, says(t, try.answer), "k", muxcore.GetOptions{Range: try.r})
			if try.wantedCode != "" {
				info := muxcore.InfoOf(err)
				if muxcore.CodeOf(err) != try.wantedCode || try.wantedCode == muxcore.CodeRangeNotSatisfiable && (info == nil || info.Size != try.size) {
					t.Fatalf("Get = %v, %+v, want %s, size %d", err, info, try.wantedCode, try.size)
				}
				return
			}
			if err != nil || got != try.want {
				t.Fatalf("Get = %q, %v, want %q", got, err, try.want)
			}
			if o.Offset != try.offset || o.Length != try.length || o.Size != try.size {
				t.Errorf("Get: offset %d, length %d, size %d, want %d, %d, %d", o.Offset, o.Length, o.Size, try.offset, try.length, try.size)
			}
		})
	}
}

func TestTooMuchToSkipIsRefusedAndNotRead(t *testing.T) {
	var sent int
	s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, _ *http.Request) bool {
		_, _ = io.WriteString(conn, answer("200 OK|Content-Length: 1000000000", ""))
		block := make([]byte, 1<<20)
		for err := error(nil); err == nil && sent < 1<<30; sent += len(block) {
			_, err = conn.Write(block)
		}
		return false
	})})
	_, _, err := read(t, s, "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 900_000_000}})
	if muxcore.CodeOf(err) != muxcore.CodeUnsupported || muxcore.Classify(t.Context(), err).Counts() {
		t.Errorf("Get = %v, want UNSUPPORTED, which does not count", err)
	}
}

func TestABrokenBodyNeverLooksWhole(t *testing.T) {
	for name, text := range map[string]string{
		"fewer bytes than announced":     answer("200 OK|Content-Length: 10", "01234"),
		"no bytes of those announced":    answer("200 OK|Content-Length: 10", ""),
		"a chunk cut off":                answer("200 OK|Transfer-Encoding: chunked", "a\r\n01234"),
		"no last chunk":                  answer("200 OK|Transfer-Encoding: chunked", "5\r\n01234\r\n"),
		"a chunk with a wrong length":    answer("200 OK|Transfer-Encoding: chunked", "zz\r\n01234\r\n0\r\n\r\n"),
		"a chunked part too short":       answer("206 X|Content-Range: bytes 0-9/10|Transfer-Encoding: chunked", "5\r\n01234\r\n0\r\n\r\n"),
		"nothing that marks the end":     answer("200 OK", digits),
		"HTTP/1.0 without a length":      "HTTP/1.0 200 OK\r\n\r\n" + digits,
		"an answer that is cut":          "HTTP/1.1 200 O",
		"no answer":                      "",
		"no HTTP":                        "SSH-2.0-OpenSSH_9.2\r\n",
		"two lengths":                    answer("200 OK|Content-Length: 5|Content-Length: 6", "01234"),
		"a negative length":              answer("200 OK|Content-Length: -5", "01234"),
		"a header that does not end":     "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("x", 1<<20),
		"interim answers without end":    strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", 10_000),
		"a status that no read can have": sized(204, "", ""),
		"a redirect to nowhere":          sized(302, "", ""),
	} {
		t.Run(name, func(t *testing.T) {
			opts := muxcore.GetOptions{}
			if strings.Contains(text, "206") {
				opts.Range = muxcore.Range{Length: 10}
			}
			_, got, err := read(t, says(t, text), "k", opts)
			if muxcore.CodeOf(err) != muxcore.CodeUnavailable || muxcore.Classify(t.Context(), err) != muxcore.ClassTransient {
				t.Errorf("Get = %q, %v (%v), want UNAVAILABLE, transient", got, err, muxcore.Classify(t.Context(), err))
			}
			if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && got != "" {
				t.Errorf("Get = %q, %v: looks like the end", got, err)
			}
			if !strings.HasPrefix(digits, got) {
				t.Errorf("Get yields %q, which is not a beginning of %q", got, digits)
			}
		})
	}
}

func TestAResetConnectionIsAnErrorInMidBody(t *testing.T) {
	s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, _ *http.Request) bool {
		_, _ = io.WriteString(conn, answer("200 OK|Content-Length: 1000000", strings.Repeat("x", 1000)))
		_ = conn.(*net.TCPConn).SetLinger(0)
		return false
	})})
	_, got, err := read(t, s, "k", muxcore.GetOptions{})
	if muxcore.CodeOf(err) != muxcore.CodeUnavailable || len(got) > 1000 {
		t.Errorf("Get = %d bytes, %v, want UNAVAILABLE", len(got), err)
	}
}

func TestInterimAnswersAndTrailersPass(t *testing.T) {
	text := "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" +
		answer("200 OK|Transfer-Encoding: chunked|Trailer: X-Sum|ETag: \"v\"", "a\r\n"+digits+"\r\n0\r\nX-Sum: 1\r\n\r\n")
	o, got, err := read(t, says(t, text), "k", muxcore.GetOptions{})
	if err != nil || got != digits || o.ETag != `"v"` || o.Size != -1 || o.Length != -1 {
		t.Errorf("Get = %q, %v, %+v", got, err, o)
	}
}

func TestAStalledOriginLetsGoWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{
		"before the answer":    "",
		"in the header":        "HTTP/1.1 200 OK\r\nContent-Le",
		"in the body":          answer("200 OK|Content-Length: 1000", "0123"),
		"in the skipped part":  answer("200 OK|Content-Length: 1000000", "0123"),
		"in an error's body":   answer("404 Not Found|Content-Length: 1000", "0123"),
		"in a redirect's body": answer("302 Found|Location: /other|Content-Length: 1000", "0123"),
	} {
		t.Run(name, func(t *testing.T) {
			stall := make(chan struct{})
			cause := errors.New("no progress")
			ctx, cancel := context.WithCancelCause(t.Context())
			soon := func() { time.AfterFunc(50*time.Millisecond, func() { cancel(cause) }) }
			transport := wire.NewTransport(new(tls.Config))
			t.Cleanup(transport.CloseIdleConnections)
			s := open(t, httpstore.Settings{
				BaseURL: rawOrigin(t, func(conn net.Conn, _ *http.Request) bool {
					_, _ = io.WriteString(conn, before)
					if !strings.Contains(before, "\r\n\r\n") {
						soon()
					}
					<-stall
					return false
				}),
				Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					resp, err := transport.RoundTrip(r)
					soon() // after the header, where it is whole
					return resp, err
				}),
			})
			t.Cleanup(func() { close(stall) })
			within(t, "Get", func() {
				opts := muxcore.GetOptions{}
				if strings.Contains(name, "skipped") {
					opts.Range.Offset = 500_000
				}
				o, err := s.Get(ctx, "k", opts)
				if err == nil {
					_, err = io.ReadAll(o.Body)
					o.Body.Close()
				}
				switch {
				case strings.Contains(name, "error's"):
					if !errors.Is(err, muxcore.ErrKeyNotFound) {
						t.Errorf("Get = %v, want KEY_NOT_FOUND: that much was said", err)
					}
				case !errors.Is(err, context.Canceled):
					t.Errorf("Get = %v, want an error that wraps context.Canceled", err)
				}
			})
		})
	}
}

func TestAnEndlessErrorBodyIsNotReadToItsEnd(t *testing.T) {
	s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, _ *http.Request) bool {
		_, _ = io.WriteString(conn, answer("500 X|Transfer-Encoding: chunked|Retry-After: 7", ""))
		for {
			if _, err := fmt.Fprintf(conn, "1000\r\n%4096d\r\n", 1); err != nil {
				return false
			}
		}
	})})
	within(t, "Get", func() {
		_, _, err := read(t, s, "k", muxcore.GetOptions{})
		e, ok := errors.AsType[*muxcore.Error](err)
		if !ok || e.Code != muxcore.CodeUnavailable || e.Status != 500 || e.RetryAfter != 7*time.Second {
			t.Errorf("Get = %#v, want UNAVAILABLE, 500, 7s", err)
		}
	})
}

func TestClosingALargeBodyEarlyDoesNotReadIt(t *testing.T) {
	done := make(chan int64, 1)
	s := open(t, httpstore.Settings{BaseURL: rawOrigin(t, func(conn net.Conn, _ *http.Request) bool {
		_, _ = io.WriteString(conn, answer("200 OK|Content-Length: 100000000000", ""))
		n, _ := io.Copy(conn, io.LimitReader(zeros{}, 4<<30))
		done <- n
		return false
	})})
	o, err := s.Get(t.Context(), "k", muxcore.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "Close", func() { o.Body.Close() })
	if n := <-done; n >= 4<<30 {
		t.Errorf("the origin sent %d bytes of a closed body", n)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestAnOriginsOwnTimeoutIsNoContextError(t *testing.T) {
	timeout := &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	s := open(t, httpstore.Settings{BaseURL: "http://origin.test", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("dial: %w", timeout)
	})})
	_, err := s.Stat(t.Context(), "k", muxcore.Conditions{})
	if errors.Is(err, context.DeadlineExceeded) || muxcore.Classify(t.Context(), err) != muxcore.ClassTimeout {
		t.Errorf("Stat = %v (%v), want a timeout that is no context error", err, muxcore.Classify(t.Context(), err))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestGzipComesThroughAsItIs(t *testing.T) {
	packed := "\x1f\x8b\x08 not really gzip, and not to be looked at"
	var asked []string
	s := open(t, httpstore.Settings{BaseURL: serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("ETag", `"packed"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(packed)))
	}))})
	o, got, err := read(t, s, "k", muxcore.GetOptions{})
	if err != nil || got != packed || o.ContentEncoding != "gzip" || o.ETag != `"packed"` {
		t.Errorf("Get = %q, %v, %+v", got, err, o)
	}
	_, got, err = read(t, s, "k", muxcore.GetOptions{Range: muxcore.Range{Offset: 2, Length: 3}})
	if err != nil || got != packed[2:5] {
		t.Errorf("Get of a part = %q, %v", got, err)
	}
	for _, coding := range asked {
		if coding != "identity" {
			t.Errorf("Accept-Encoding: %q, want identity", coding)
		}
	}
}
