// Package caddybreaker puts a circuit breaker around each upstream of Caddy's reverse proxy.
package caddybreaker
