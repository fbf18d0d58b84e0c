// Package caddymux serves a muxcore tree from Caddy.
package caddymux
