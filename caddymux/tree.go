package caddymux

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/internal/strictjson"
)

// Mux composes backends under one mode, and is itself what a backend can be: muxes nest, up to 8 in a chain.
type Mux struct {
	// How the backends are composed: `failover`, `round_robin`, `weighted`, `sticky_by_key`, `shield` or `mirror`.
	// Hyphens are as good as underscores. Default: `failover`.
	Mode string `json:"mode,omitempty"`

	// The backends, in the order that the mode goes by. Beside the options of its type, each has `name` (required:
	// letters, digits, `_` and `-`, at most 64, and not a mode), `type` (required), `weight` (integer; the share under
	// `weighted`, 0 is never chosen for reads yet written to in a fan-out; default: 1), `read_only` (no write ever goes
	// there), `backup` (asked only when all others are down or have failed), `timeout` (in place of the mux's) and
	// `health_key` (the key that active health checks ask for; default: the cheapest request the type has) and `locks` (keep the
	// locks of the certificate storage here; default: on the first backend whose type can, which are `file`, `memory` and `s3`).
	Backends []json.RawMessage `json:"backends,omitempty" caddy:"namespace=storage_mux.backends inline_key=type"`

	// The longest a backend may make no progress: up to its answer, and then between the bytes of a body. A backend
	// that exceeds it has failed, and the next one is asked. Default: 30s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// The longest a whole operation may take up to its first body byte, split over the attempts that are left.
	// Default: none.
	Deadline caddy.Duration `json:"deadline,omitempty"`

	// How many more times a failed call is made on the same backend before it counts as failed. Every retry delays the
	// answer of the next backend. Default: 0.
	Retry int `json:"retry,omitempty"`

	// The pause before the first retry; it doubles with each, with full jitter. Default: 50ms.
	RetryDelay caddy.Duration `json:"retry_delay,omitempty"`

	// The longest pause between retries. Default: 1s.
	RetryMaxDelay caddy.Duration `json:"retry_max_delay,omitempty"`

	// How long a failed backend is left alone before one request may try it. It doubles with each failed trial.
	// Default: 1s.
	Cooldown caddy.Duration `json:"cooldown,omitempty"`

	// The longest a backend is left alone. Default: 1m.
	CooldownMax caddy.Duration `json:"cooldown_max,omitempty"`

	// The pause between active health checks of each backend. Without them, a backend's health is what requests find.
	// Default: no active checks.
	HealthInterval caddy.Duration `json:"health_interval,omitempty"`

	// What a missing key means: `stop` takes the word of the first backend that answers, `next` asks the others too,
	// and says 404 only when all of them have said it. Default: `stop`.
	OnMiss string `json:"on_miss,omitempty"`

	// Whether a write that missed some backends is a success: `accept`, or `fail`. Default: `accept`.
	PartialWrites string `json:"partial_writes,omitempty"`

	// The directory in which is remembered what backends miss, so that it is brought to them once they are back, and stale
	// copies are not read until then; or `off`. It is made at the first miss, and belongs to one Caddy at a time. A write
	// whose miss cannot be remembered fails. A nested mux shares that of the mux around it, unless it says otherwise.
	// Default: `storage_mux/<tree>` in Caddy's data directory.
	Journal string `json:"journal,omitempty"`

	// How many backends must hold a mirror write before it is a success: a number, `majority` or `all`. Default: 1.
	WriteQuorum caddyhttp.WeakString `json:"write_quorum,omitempty"`

	// Whether what a later backend answered is copied to those that were asked before and do not have it: `on` or `off`. It is
	// done in the background and at a bounded rate, never to a read-only backend and never over an object that is there. It works
	// where a miss is not final: in `mirror`, and with `on_miss next`, where in `failover` it makes the first backends a
	// read-through copy. Journals are per node, so that a delete on one node may be undone by a read on another: leave it off on
	// a fleet. Default: `on` in `mirror` and `shield` while a handler that is `writable` serves the tree, else `off`.
	ReadRepair string `json:"read_repair,omitempty"`

	// How many bytes a second the copies to the backends of this mux may move in all, when they are repaired: on request, for
	// what they missed, and by `read_repair`. -1: no bound. Default: 67108864 (64 MiB).
	RepairRate int64 `json:"repair_rate,omitempty"`

	// With every backend down, try the one that is due back first instead of failing at once. Default: false.
	LastResort bool `json:"last_resort,omitempty"`

	// How `sticky_by_key` maps keys to backends: `modulo` (fnv1a modulo the number of healthy backends, so that a
	// change of their number moves nearly all keys) or `rendezvous` (moves only the keys that must). Default: `modulo`.
	Hash string `json:"hash,omitempty"`

	// Start a second read when the first has not answered within this time, or `auto`: the time within which that backend
	// answers 95 of 100 reads. Not under `mirror`, which asks all at once. Default: off.
	Hedge string `json:"hedge,omitempty"`

	// The most extra reads that hedging makes, in percent of all reads; a burst of 10 is allowed beyond it. Default: 5.
	HedgeMaxPercent float64 `json:"hedge_max_percent,omitempty"`
}

// Backend is what backends of all types have in common. These keys are taken out of a backend's JSON before its type's
// module sees it; a type must not define options of these names. (A nested mux keeps `timeout`: it is an option of
// every mux, and there it is that of the backends inside. Neither it nor a tree that is used has `locks`.)
type Backend struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	Weight    *int           `json:"weight,omitempty"`
	ReadOnly  bool           `json:"read_only,omitempty"`
	Backup    bool           `json:"backup,omitempty"`
	Timeout   caddy.Duration `json:"timeout,omitempty"`
	HealthKey string         `json:"health_key,omitempty"`
	Locks     bool           `json:"locks,omitempty"`
}

// The types of backend that are muxes themselves.
const (
	muxType = "mux"
	useType = "use"
)

// split parts a backend's JSON into what all types share and what its type alone knows.
func splitBackend(raw json.RawMessage) (Backend, map[string]json.RawMessage, error) {
	var b Backend
	own := make(map[string]json.RawMessage)
	if err := json.Unmarshal(raw, &own); err != nil {
		return b, nil, err
	}
	var kind string
	if err := take(own, "type", &kind); err != nil {
		return b, nil, err
	}
	b.Type = kind
	for _, field := range b.shared() {
		if err := take(own, field.key, field.into); err != nil {
			return b, nil, err
		}
	}
	return b, own, nil
}

// sharedField is one of the keys that all types share, besides type.
type sharedField struct {
	key  string
	into any
}

func (b *Backend) shared() []sharedField {
	fields := []sharedField{
		{"name", &b.Name},
		{"weight", &b.Weight},
		{"read_only", &b.ReadOnly},
		{"backup", &b.Backup},
		{"health_key", &b.HealthKey},
	}
	if b.Type != muxType {
		fields = append(fields, sharedField{"timeout", &b.Timeout})
	}
	if b.Type != muxType && b.Type != useType {
		fields = append(fields, sharedField{"locks", &b.Locks})
	}
	return fields
}

// take decodes the value of key and removes it.
func take(from map[string]json.RawMessage, key string, into any) error {
	raw, ok := from[key]
	if !ok {
		return nil
	}
	delete(from, key)
	if err := strictjson.Decode(raw, into); err != nil {
		return fieldError{key, err}
	}
	return nil
}

// join is the inverse of splitBackend, with the shared keys first, in the order of the struct.
func joinBackend(b *Backend, own any) (json.RawMessage, error) {
	head, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	tail, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	if len(tail) <= len("{}") {
		return head, nil
	}
	head[len(head)-1] = ','
	return append(head, tail[1:]...), nil
}

// fieldError says which field of a config an error is about.
type fieldError struct {
	field string
	err   error
}

func (e fieldError) Error() string { return e.field + ": " + e.err.Error() }
func (e fieldError) Unwrap() error { return e.err }
