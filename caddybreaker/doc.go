// Package caddybreaker puts a circuit breaker around each upstream of Caddy's
// reverse proxy, or around any other chain of handlers.
//
// The modules, and what they share:
//
//   - The app relay_breaker (app.go) holds the registries of one config. A
//     registry (registry.go) maps paths to guards; a guard is a breaker and the
//     options it was defined with. The breakers themselves live in a UsagePool
//     (pool.go), so that their state outlives a reload.
//   - The transport (transport.go) wraps any other transport: it asks the guard
//     of the upstream, makes the call, and reports what became of it, to the end
//     of the body (body.go).
//   - The selection policy (selection.go) keeps requests away from upstreams
//     that would refuse.
//   - The handler (handler.go) guards a chain of handlers as one path.
//   - The slot (slot.go) is Caddy's own circuit_breakers hook, JSON only.
//
// A request is refused in exactly one place (refusal.go) and judged in exactly
// one place (classify.go).
package caddybreaker
