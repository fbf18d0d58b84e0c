package caddybreaker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/suaveplan/caddy-storage-mux/muxcore/breaker"
)

// Options say when a path opens, how it comes back, and what counts. A field
// that is left out, or zero, takes the registry's default, else the one named
// here; leaving something out never switches the breaker off.
type Options struct {
	// How many failures in a row open the path. Not beside failure_ratio, but in
	// place of a registry's. Default: 5.
	FailureThreshold int `json:"failure_threshold,omitempty"`

	// How many trials in a row must succeed to close it again. Default: 3.
	SuccessThreshold int `json:"success_threshold,omitempty"`

	// How long calls are refused before the first trial. Default: 30s.
	OpenDuration caddy.Duration `json:"open_duration,omitempty"`

	// Lets the open time double on each re-open, up to this; grown times are
	// shortened at random by up to a tenth. It also caps what an upstream asks for
	// by Retry-After. Default: the open time does not grow, and a Retry-After is
	// capped at ten times open_duration.
	OpenDurationMax caddy.Duration `json:"open_duration_max,omitempty"`

	// How many trials may be on their way at a time while half-open. Default: 3.
	HalfOpenMaxCalls int `json:"half_open_max_calls,omitempty"`

	// The longest a trial holds its place while half-open. Without an answer by then
	// it is a failure; so is a body of known length, in any state, that makes no
	// progress for this long. Default: 60s.
	TrialTimeout caddy.Duration `json:"trial_timeout,omitempty"`

	// Statuses that are failures: codes ("503") and classes ("5xx"). A 429 or 503
	// with a Retry-After is one in any case, unless ignore_status lists it.
	// Default: ["5xx"].
	FailureStatus []string `json:"failure_status,omitempty"`

	// Statuses that say nothing about the path, though failure_status may list
	// them. Default: none.
	IgnoreStatus []string `json:"ignore_status,omitempty"`

	// An answer whose header takes this long or longer is a failure, counted as soon
	// as the time is over. Default: no limit.
	SlowCall caddy.Duration `json:"slow_call,omitempty"`

	// Opens the path when at least this share of the calls within the window
	// failed, in place of failures in a row and not beside failure_threshold; above
	// 0, at most 1.
	// Default: failures in a row.
	FailureRatio float64 `json:"failure_ratio,omitempty"`

	// The rolling window of failure_ratio. Default: 10s.
	FailureRatioWindow caddy.Duration `json:"failure_ratio_window,omitempty"`

	// How many calls the window must hold before the ratio means anything.
	// Default: 20.
	FailureRatioMinCalls int `json:"failure_ratio_min_calls,omitempty"`

	// How many calls may be on their way at a time; more are refused. A call counts
	// to the end of its body, or of the connection that it became: WebSockets and
	// event streams as long as they are open. Default: no limit.
	MaxConcurrent int `json:"max_concurrent,omitempty"`

	// How many paths of a proxy's pool stay closed whatever happens: the last ones
	// do not trip. An upstream that Caddy itself takes for down or full is not one
	// of them. Needs the selection policy. Default: 0.
	MinAvailable int `json:"min_available,omitempty"`

	// Turns on probes while half-open: a GET of this URI on the upstream, with the
	// header "Relay-Probe: 1", over connections of its own. A probe counts like a
	// trial. Default: off.
	ProbeURI string `json:"probe_uri,omitempty"`

	// The time between two probes. Default: 5s.
	ProbeInterval caddy.Duration `json:"probe_interval,omitempty"`

	// The longest a probe may take. Default: 5s.
	ProbeTimeout caddy.Duration `json:"probe_timeout,omitempty"`

	// Only probes, no requests of clients, are risked while half-open. Needs
	// probe_uri. Default: off.
	ProbeOnly bool `json:"probe_only,omitempty"`
}

// over returns o with its unset fields taken from base.
func (o Options) over(base Options) Options {
	own, under := reflect.ValueOf(&o).Elem(), reflect.ValueOf(base)
	for i := range own.NumField() {
		if own.Field(i).IsZero() {
			own.Field(i).Set(under.Field(i))
		}
	}
	return o
}

// settings are the options as the core knows them.
func (o Options) settings() breaker.Settings {
	return breaker.Settings{
		FailureThreshold: o.FailureThreshold,
		SuccessThreshold: o.SuccessThreshold,
		OpenDuration:     time.Duration(o.OpenDuration),
		OpenDurationMax:  time.Duration(o.OpenDurationMax),
		HalfOpenMaxCalls: o.HalfOpenMaxCalls,
		TrialTimeout:     time.Duration(o.TrialTimeout),
		FailureRatio:     o.FailureRatio,
		RatioWindow:      time.Duration(o.FailureRatioWindow),
		RatioMinCalls:    o.FailureRatioMinCalls,
		SlowCall:         time.Duration(o.SlowCall),
		MaxConcurrent:    o.MaxConcurrent,
		ProbeOnly:        o.ProbeOnly,
	}
}

// validate says which option makes no sense by itself.
func (o Options) validate() error {
	if err := o.settings().Validate(); err != nil {
		return err
	}
	probing := breaker.ProbeSettings{Interval: time.Duration(o.ProbeInterval), Timeout: time.Duration(o.ProbeTimeout)}
	if err := probing.Validate(); err != nil {
		return err
	}
	if o.MinAvailable < 0 {
		return fmt.Errorf("min_available: must be positive, got %d", o.MinAvailable)
	}
	if err := validProbeURI(o.ProbeURI); err != nil && !strings.Contains(o.ProbeURI, "{") {
		return err // a placeholder is looked at when it has its value
	}
	for _, list := range []struct {
		name  string
		words []string
	}{{"failure_status", o.FailureStatus}, {"ignore_status", o.IgnoreStatus}} {
		for _, word := range list.words {
			if _, _, err := parseStatus(word); err != nil {
				return fmt.Errorf("%s: %w", list.name, err)
			}
		}
	}
	return nil
}

func validProbeURI(uri string) error {
	if uri == "" {
		return nil // off
	}
	return checkProbeURI(uri)
}

func checkProbeURI(uri string) error {
	u, err := url.ParseRequestURI(uri)
	if err != nil || u.Host != "" || !strings.HasPrefix(uri, "/") || strings.HasPrefix(uri, "//") {
		return fmt.Errorf("probe_uri: must be a path that begins with /, got '%s'", uri)
	}
	return nil
}

// oneRule refuses two answers to the question when the path opens, given in one
// place. It is for options as they were written, before defaults are put below.
func (o Options) oneRule() error {
	if o.FailureThreshold != 0 && o.FailureRatio != 0 {
		return fmt.Errorf("failure_threshold and failure_ratio: a path opens by one of the two, leave out the other")
	}
	return nil
}

// Why an option cannot work somewhere.
const (
	needsTransport = "only a transport relay_breaker around the transport http can probe"
	needsPolicy    = "needs a reverse_proxy with lb_policy relay_breaker"
)

// needs says which of the options cannot work where they are used; own are those
// that were set there and not in the registry. probing and pool tell whether the
// user can probe, and knows a pool with the policy.
func (o Options) needs(own Options, probing, pool bool) error {
	switch {
	case o.ProbeURI != "" && !probing:
		return fmt.Errorf("probe_uri: %s", needsTransport)
	case o.ProbeURI == "" && o.ProbeOnly:
		return fmt.Errorf("probe_only: needs probe_uri, or the path could never close again")
	case o.ProbeURI == "" && own.ProbeInterval != 0:
		return fmt.Errorf("probe_interval: needs probe_uri")
	case o.ProbeURI == "" && own.ProbeTimeout != 0:
		return fmt.Errorf("probe_timeout: needs probe_uri")
	case o.FailureRatio == 0 && own.FailureRatioWindow != 0:
		return fmt.Errorf("failure_ratio_window: needs failure_ratio")
	case o.FailureRatio == 0 && own.FailureRatioMinCalls != 0:
		return fmt.Errorf("failure_ratio_min_calls: needs failure_ratio")
	case o.MinAvailable > 0 && !pool:
		return fmt.Errorf("min_available: %s", needsPolicy)
	}
	return nil
}

// effective fills in every default, so that what is equal looks equal.
func (o Options) effective() Options {
	s := o.settings().Effective()
	o.FailureThreshold, o.SuccessThreshold = s.FailureThreshold, s.SuccessThreshold
	o.OpenDuration, o.OpenDurationMax = caddy.Duration(s.OpenDuration), caddy.Duration(s.OpenDurationMax)
	o.HalfOpenMaxCalls, o.TrialTimeout = s.HalfOpenMaxCalls, caddy.Duration(s.TrialTimeout)
	if o.FailureRatio > 0 {
		o.FailureThreshold = 0
		o.FailureRatioWindow, o.FailureRatioMinCalls = caddy.Duration(s.RatioWindow), s.RatioMinCalls
	}
	if len(o.FailureStatus) == 0 {
		o.FailureStatus = []string{"5xx"}
	}
	if o.ProbeURI != "" {
		o.ProbeInterval = or(o.ProbeInterval, caddy.Duration(breaker.DefaultProbeInterval))
		o.ProbeTimeout = or(o.ProbeTimeout, caddy.Duration(breaker.DefaultProbeTimeout))
	}
	return o
}

// view is the options for operators: the words of the Caddyfile, durations as
// one writes them.
func (o Options) view() map[string]any {
	out := make(map[string]any)
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		field := v.Field(i)
		if field.IsZero() {
			continue
		}
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if d, ok := reflect.TypeAssert[caddy.Duration](field); ok {
			out[name] = time.Duration(d).String()
			continue
		}
		out[name] = field.Interface()
	}
	return out
}

// definition is a set of options, ready for use. It is immutable.
type definition struct {
	opts    Options // effective
	classes classes
	digest  string // equal for equal options
}

// define makes the definition of options over a registry's defaults. What the
// defaults say and the user cannot do is left out; what it says itself is an
// error.
func (o Options) define(defaults Options, probing, pool bool) (*definition, error) {
	if err := o.oneRule(); err != nil {
		return nil, err
	}
	if !probing {
		defaults.ProbeURI, defaults.ProbeInterval, defaults.ProbeTimeout, defaults.ProbeOnly = "", 0, 0, false
	}
	if !pool {
		defaults.MinAvailable = 0
	}
	// Failures in a row and a ratio are two ways to say when: the nearer one holds.
	if o.FailureThreshold != 0 && o.FailureRatio == 0 {
		defaults.FailureRatio, defaults.FailureRatioWindow, defaults.FailureRatioMinCalls = 0, 0, 0
	}
	merged := o.over(defaults)
	merged.ProbeURI = caddy.NewReplacer().ReplaceAll(merged.ProbeURI, "")
	if err := merged.needs(o, probing, pool); err != nil {
		return nil, err
	}
	return newDefinition(merged)
}

func newDefinition(o Options) (*definition, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := validProbeURI(o.ProbeURI); err != nil {
		return nil, err
	}
	d := &definition{opts: o.effective()}
	d.classes = newClasses(d.opts)
	// min_available belongs to a pool, not to a path: pools may differ in it.
	described := d.opts
	described.MinAvailable = 0
	text, err := json.Marshal(described)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	d.digest = hex.EncodeToString(sum[:8])
	return d, nil
}

// difference names the first option in which two definitions differ.
func (d *definition) difference(other *definition) string {
	a, b := reflect.ValueOf(d.opts), reflect.ValueOf(other.opts)
	mine, theirs := d.opts.view(), other.opts.view()
	for i := range a.NumField() {
		name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		if name != "min_available" && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			return fmt.Sprintf("%s: %v and %v", name, shown(mine[name]), shown(theirs[name]))
		}
	}
	return ""
}

func shown(v any) any {
	if v == nil {
		return "unset"
	}
	return v
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
