package caddybreaker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// optionSyntax is the parse table of the options: what the words after a name
// mean. One row here, one field in Options.
var optionSyntax = map[string]func(d *caddyfile.Dispenser, o *Options) error{
	"failure_threshold":   count(func(o *Options) *int { return &o.FailureThreshold }),
	"success_threshold":   count(func(o *Options) *int { return &o.SuccessThreshold }),
	"half_open_max_calls": count(func(o *Options) *int { return &o.HalfOpenMaxCalls }),
	"max_concurrent":      count(func(o *Options) *int { return &o.MaxConcurrent }),
	"min_available":       count(func(o *Options) *int { return &o.MinAvailable }),
	"trial_timeout":       duration(func(o *Options) *caddy.Duration { return &o.TrialTimeout }),
	"slow_call":           duration(func(o *Options) *caddy.Duration { return &o.SlowCall }),
	"probe_interval":      duration(func(o *Options) *caddy.Duration { return &o.ProbeInterval }),
	"probe_timeout":       duration(func(o *Options) *caddy.Duration { return &o.ProbeTimeout }),
	"failure_status":      statuses(func(o *Options) *[]string { return &o.FailureStatus }),
	"ignore_status":       statuses(func(o *Options) *[]string { return &o.IgnoreStatus }),
	"open_duration":       parseOpenDuration,
	"failure_ratio":       parseFailureRatio,
	"probe_uri":           parseProbeURI,
	"probe_only":          parseProbeOnly,
}

// block parses the options of one block, each at most once.
type block struct {
	seen map[string]bool
	// more are words besides the options, such as registry.
	more map[string]func(d *caddyfile.Dispenser) error
	// without are options that cannot work here, with the reason.
	without map[string]string
}

// parse reads a block that d stands before, at nesting level 0.
func (b *block) parse(d *caddyfile.Dispenser, o *Options) error {
	for d.NextBlock(0) {
		if err := b.line(d, o); err != nil {
			return err
		}
	}
	return nil
}

func (b *block) line(d *caddyfile.Dispenser, o *Options) error {
	name := d.Val()
	if err := b.once(d, name); err != nil {
		return err
	}
	if parse, ok := b.more[name]; ok {
		return parse(d)
	}
	if reason, ok := b.without[name]; ok {
		return d.Errf("%s: %s", name, reason)
	}
	parse, ok := optionSyntax[name]
	if !ok || o == nil {
		return d.Errf("unrecognized option '%s'; the options here are: %s", name, strings.Join(b.known(o != nil), ", "))
	}
	if err := parse(d, o); err != nil {
		return err
	}
	if err := o.oneRule(); err != nil {
		return d.WrapErr(err)
	}
	if d.NextArg() {
		return d.Errf("%s: one word too many: '%s'", name, d.Val())
	}
	if d.NextBlock(1) {
		return d.Errf("%s: takes no block", name)
	}
	return nil
}

// once refuses a second use of a name.
func (b *block) once(d *caddyfile.Dispenser, name string) error {
	if b.seen[name] {
		return d.Errf("%s: already specified", name)
	}
	if b.seen == nil {
		b.seen = make(map[string]bool)
	}
	b.seen[name] = true
	return nil
}

func (b *block) known(options bool) []string {
	names := sortedKeys(b.more)
	if options {
		names = append(names, sortedKeys(optionSyntax)...)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return b.without[name] != "" })
	slices.Sort(names)
	return names
}

// word parses the one word of an option into target.
func word(target *string) func(d *caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		if !d.NextArg() {
			return d.Errf("%s: missing a word", name)
		}
		*target = d.Val()
		if d.NextArg() {
			return d.Errf("%s: one word too many: '%s'", name, d.Val())
		}
		if *target == "" {
			return d.Errf("%s: must not be empty", name)
		}
		return nil
	}
}

// registryWord parses the name of a registry.
func registryWord(target *string) func(d *caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		if err := word(target)(d); err != nil {
			return err
		}
		return validRegistry(d, *target)
	}
}

func validRegistry(d *caddyfile.Dispenser, name string) error {
	if !registryName.MatchString(name) {
		return d.Errf("registry: a name is 1 to 64 letters, digits, _ or -, got '%s'", name)
	}
	return nil
}

func count(field func(*Options) *int) func(*caddyfile.Dispenser, *Options) error {
	return func(d *caddyfile.Dispenser, o *Options) error {
		name := d.Val()
		if !d.NextArg() {
			return d.Errf("%s: missing a number", name)
		}
		n, err := strconv.Atoi(d.Val())
		if err != nil || n < 1 {
			return d.Errf("%s: must be a whole number of 1 or more, got '%s'", name, d.Val())
		}
		*field(o) = n
		return nil
	}
}

func duration(field func(*Options) *caddy.Duration) func(*caddyfile.Dispenser, *Options) error {
	return func(d *caddyfile.Dispenser, o *Options) error {
		name := d.Val()
		if !d.NextArg() {
			return d.Errf("%s: missing a duration", name)
		}
		var err error
		*field(o), err = parseDuration(d, name)
		return err
	}
}

func parseDuration(d *caddyfile.Dispenser, name string) (caddy.Duration, error) {
	dur, err := caddy.ParseDuration(d.Val())
	if err != nil || dur <= 0 {
		return 0, d.Errf("%s: must be a duration above 0, such as 30s, got '%s'", name, d.Val())
	}
	return caddy.Duration(dur), nil
}

func statuses(field func(*Options) *[]string) func(*caddyfile.Dispenser, *Options) error {
	return func(d *caddyfile.Dispenser, o *Options) error {
		name := d.Val()
		for d.NextArg() {
			if _, _, err := parseStatus(d.Val()); err != nil {
				return d.Errf("%s: %v", name, err)
			}
			*field(o) = append(*field(o), strings.ToLower(d.Val()))
		}
		if len(*field(o)) == 0 {
			return d.Errf("%s: missing a status", name)
		}
		return nil
	}
}

func parseOpenDuration(d *caddyfile.Dispenser, o *Options) error {
	if !d.NextArg() {
		return d.Errf("open_duration: missing a duration")
	}
	var err error
	if o.OpenDuration, err = parseDuration(d, "open_duration"); err != nil {
		return err
	}
	if !d.NextArg() {
		return nil
	}
	if o.OpenDurationMax, err = parseDuration(d, "open_duration: max"); err != nil {
		return err
	}
	if o.OpenDurationMax < o.OpenDuration {
		return d.Errf("open_duration: max %s is below the open time %s", d.Val(), time.Duration(o.OpenDuration))
	}
	return nil
}

func parseFailureRatio(d *caddyfile.Dispenser, o *Options) error {
	args := d.RemainingArgs()
	if len(args) != 3 {
		return d.Errf("failure_ratio: takes a ratio, a window and a minimum of calls, such as 0.5 10s 20; got %d words", len(args))
	}
	ratio, err := strconv.ParseFloat(args[0], 64)
	if err != nil || !(ratio > 0 && ratio <= 1) {
		return d.Errf("failure_ratio: must be above 0 and at most 1, got '%s'", args[0])
	}
	window, err := caddy.ParseDuration(args[1])
	if err != nil || window <= 0 {
		return d.Errf("failure_ratio: window must be a duration above 0, such as 10s, got '%s'", args[1])
	}
	calls, err := strconv.Atoi(args[2])
	if err != nil || calls < 1 {
		return d.Errf("failure_ratio: min calls must be a whole number of 1 or more, got '%s'", args[2])
	}
	o.FailureRatio, o.FailureRatioWindow, o.FailureRatioMinCalls = ratio, caddy.Duration(window), calls
	return nil
}

func parseProbeURI(d *caddyfile.Dispenser, o *Options) error {
	if !d.NextArg() {
		return d.Errf("probe_uri: missing a path")
	}
	if err := checkProbeURI(d.Val()); err != nil && !strings.Contains(d.Val(), "{") {
		return d.WrapErr(err)
	}
	o.ProbeURI = d.Val()
	return nil
}

func parseProbeOnly(_ *caddyfile.Dispenser, o *Options) error {
	o.ProbeOnly = true
	return nil
}

// moduleJSON encodes a module with its name under key. Options that cannot be
// encoded do not exist, so an error is a bug.
func moduleJSON(module any, key, name string) (json.RawMessage, error) {
	text, err := json.Marshal(module)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("module %s: %w", name, err)
	}
	if fields[key], err = json.Marshal(name); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
