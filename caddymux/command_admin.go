package caddymux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// adminPatience is how long a command waits for the admin API, unless what it asks for takes long.
const adminPatience = 5 * time.Second

// adminError is an answer of 400 or beyond.
type adminError struct {
	status int
	text   string
}

func (e adminError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.status, e.text) }

// ask asks the admin API of the Caddy that runs, for at most so long, 0 for as long as ctx lasts. An answer of 400 and beyond is an
// error; the body of any other must be closed.
func (all *commandTrees) ask(ctx context.Context, patience time.Duration, method, uri string, body io.Reader) (*http.Response, error) {
	answer, err := all.send(ctx, patience, method, uri, body)
	if err != nil {
		if where, ok := errors.AsType[*url.Error](err); ok { // it says in its own words what is said here
			err = where.Err
		}
		return nil, fmt.Errorf("admin API at %s: %w", all.admin, err)
	}
	return answer, nil
}

func (all *commandTrees) send(ctx context.Context, patience time.Duration, method, uri string, body io.Reader) (*http.Response, error) {
	address, err := caddy.ParseNetworkAddress(all.admin)
	if err != nil {
		return nil, err
	}
	if address.PortRangeSize() > 1 {
		return nil, errors.New("a range of ports is no address")
	}
	origin := "http://" + address.JoinHostPort(0)
	if address.IsUnixNetwork() {
		origin = "http://127.0.0.1"                         // what Caddy's own commands say
		address.Host, _, _ = strings.Cut(address.Host, "|") // the socket's permissions
	}
	req, err := http.NewRequestWithContext(ctx, method, origin+uri, body)
	if err != nil {
		return nil, err
	}
	if !address.IsUnixNetwork() {
		req.Header.Set("Origin", origin)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, address.Network, address.JoinHostPort(0))
		},
	}}
	answer, err := client.Do(req)
	if err != nil || answer.StatusCode < http.StatusBadRequest {
		return answer, err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAdminBody))
	if err != nil {
		return nil, err
	}
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &said) == nil && said.Error != "" {
		text = []byte(said.Error)
	}
	return nil, adminError{answer.StatusCode, strings.TrimSpace(string(text))}
}

// nobodyThere tells whether nothing listens where a Caddy would, or one that does not have what was asked for.
func nobodyThere(err error) bool {
	const refusedOnWindows = syscall.Errno(10061)
	said, answered := errors.AsType[adminError](err)
	return answered && said.status == http.StatusNotFound ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, refusedOnWindows) || errors.Is(err, os.ErrNotExist)
}

// errNotCaddy is what is said of an answer that is none of a Caddy.
var errNotCaddy = errors.New("what answers there is no Caddy")

// runs tells whether a Caddy answers that has this tree: one of that name and mode, and with some of its backends, since others
// may have come and gone at run time. An error says why that is not known.
func (all *commandTrees) runs(ctx context.Context, t *tree) (bool, error) {
	answer, err := all.ask(ctx, all.patience, http.MethodGet, adminPath+"/"+url.PathEscape(t.name), nil)
	if nobodyThere(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return false, fmt.Errorf("admin API at %s: %w", all.admin, err)
	}
	var there muxcore.Stats
	if err := json.Unmarshal(text, &there); err != nil || there.Mode == "" {
		all.note = fmt.Errorf("admin API at %s: %w", all.admin, errNotCaddy)
		return false, nil
	}
	here := t.store.Stats()
	return there.Mode == here.Mode && slices.ContainsFunc(here.Backends, func(a muxcore.BackendStats) bool {
		return slices.ContainsFunc(there.Backends, func(b muxcore.BackendStats) bool { return a.Name == b.Name })
	}), nil
}

// maxAnswer is more than the state of any tree takes.
const maxAnswer = 64 << 20
