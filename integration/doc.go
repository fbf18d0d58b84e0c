// Package integration tests the plugin from outside: the real Caddy, built with
// xcaddy, driven over real sockets, with origins that fail on script behind it.
//
// The tests need the binary that CADDY_BIN names, else the one that
// ./xcaddy-build.sh leaves; ./xcaddy-build.sh test builds one and runs everything. Tests that come from a row of the list of failures of
// comparable systems are named after it.
package integration
