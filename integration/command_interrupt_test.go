package integration_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/integration/rig"
)

// wantInterrupted waits for the end of a command that was told to end.
func wantInterrupted(t *testing.T, r *rig.Running) {
	t.Helper()
	if ran := r.End(); ran.Code != 1 || ran.Stderr != "Error: interrupted\n" || ran.Stdout != "" {
		t.Errorf("it exits with %d and writes %q and %q, want 1 and that it was interrupted", ran.Code, ran.Stdout, ran.Stderr)
	}
}

// Ctrl-C ends a command that waits for somebody who may never come.
func TestAnInterruptEndsACommand(t *testing.T) {
	t.Parallel()
	t.Run("that reads from standard input", func(t *testing.T) {
		t.Parallel()
		c := rig.Prepare(t, commandConfig)
		from, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = from.Close(), to.Close() }()
		put := c.Begin(from, "storage-mux", "put", "k", "--address", rig.FreeAddress(t))
		if _, err := to.Write(make([]byte, 1<<20)); err != nil { // more than a pipe holds: it is reading
			t.Fatal(err)
		}
		put.Interrupt()
		wantInterrupted(t, put)
		notOK(t, c, "KEY_NOT_FOUND", "stat", "k")
	})
	t.Run("whose Caddy does not answer", func(t *testing.T) {
		t.Parallel()
		c := rig.Prepare(t, commandConfig)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		ls := c.Begin(strings.NewReader(""), "storage-mux", "ls", "--address", listener.Addr().String())
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		ls.Interrupt()
		wantInterrupted(t, ls)
	})
	t.Run("that has a Caddy repair", func(t *testing.T) {
		t.Parallel()
		c := rig.Prepare(t, commandConfig)
		asked, ended := make(chan struct{}), make(chan struct{})
		caddy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, `{"name":"t","mode":"mirror","backends":[{"name":"a"},{"name":"b"}]}`)
				return
			}
			_, _ = io.WriteString(w, `{"progress":{"keys":7}}`+"\n")
			_ = http.NewResponseController(w).Flush()
			close(asked)
			<-r.Context().Done()
			close(ended)
		}))
		defer caddy.Close()
		repair := c.Begin(strings.NewReader(""), "storage-mux", "repair", "--address", caddy.Listener.Addr().String())
		<-asked
		repair.Interrupt()
		wantInterrupted(t, repair)
		<-ended
	})
}

// What answers in place of a Caddy is named, and neither taken for one nor for a reason to do nothing. A Caddy that cannot be asked
// may have the tree: it is not repaired behind its back.
func TestACommandSaysWhoAnswersInPlaceOfACaddy(t *testing.T) {
	t.Parallel()
	c := rig.Prepare(t, commandConfig)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer other.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	defer closed.Close()
	at := other.Listener.Addr().String()
	ran := c.Run("body", "storage-mux", "put", "k", "--address", at)
	if ran.Code != 0 || ran.Stdout != "k: stored\n" || ran.Stderr != "note: admin API at "+at+": what answers there is no Caddy\n" {
		t.Errorf("put exits with %d and writes %q and %q", ran.Code, ran.Stdout, ran.Stderr)
	}
	at = closed.Listener.Addr().String()
	ran = c.Run("", "storage-mux", "rm", "k", "--address", at)
	if ran.Code != 0 || ran.Stdout != "k: removed\n" || !strings.HasPrefix(ran.Stderr, "note: whether a Caddy runs with this tree is not known: admin API at "+at+": HTTP 403") {
		t.Errorf("rm exits with %d and writes %q and %q", ran.Code, ran.Stdout, ran.Stderr)
	}
	notOK(t, c, "HTTP 403", "repair", "--address", at)
}
