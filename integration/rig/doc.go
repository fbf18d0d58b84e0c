// Package rig runs the Caddy under test: the binary that CADDY_BIN names, or that
// ./xcaddy-build.sh leaves, with a Caddyfile, on free ports of the loopback
// interface and in folders of its own. It waits until the server is ready, talks
// to it over real sockets, and at the end of the test stops it and fails the test
// when the log tells of a data race or a panic.
//
// A Caddyfile may use these words, which Caddy takes from its environment:
//
//	{$PORT}, {$PORT2}, ...   free ports, one each
//	{$DIR}                   an empty folder for the test's data
//
// and whatever Env adds. One without {$PORT} is the body of a single site.
package rig
