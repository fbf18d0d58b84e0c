package caddymux

import (
	"errors"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// muxParser parses one mux of a Caddyfile.
type muxParser struct {
	m       *Mux
	depth   int // muxes in the chain, this one included
	taken   map[string]bool
	members []*Backend

	quorumPlace caddyfile.Dispenser // where the write quorum stands
	uses        *[]usePlace         // of the whole tree
}

func newMuxParser(m *Mux, depth int) *muxParser {
	return &muxParser{m: m, depth: depth, taken: make(map[string]bool), uses: new([]usePlace)}
}

// head parses what stands on the first line: [<mode>] [<location>...].
func (p *muxParser) head(d *caddyfile.Dispenser) error {
	for first := true; d.NextArg(); first = false {
		if first {
			if mode, err := muxcore.ParseMode(d.Val()); err == nil {
				p.m.Mode = string(mode)
				continue
			}
		}
		if err := p.location(d); err != nil {
			return err
		}
	}
	return nil
}

// location adds the backend that a location stands for.
func (p *muxParser) location(d *caddyfile.Dispenser) error {
	module, err := locate(d.Val())
	if err != nil {
		return at(d, err)
	}
	kind := module.CaddyModule().ID.Name()
	b := Backend{Name: locationName(d.Val(), kind, p.taken), Type: kind}
	return p.add(d, &b, module)
}

// add joins a backend to the mux.
func (p *muxParser) add(d *caddyfile.Dispenser, b *Backend, own any) error {
	if err := checkUnique(b.Name, p.taken); err != nil {
		return at(d, err)
	}
	raw, err := joinBackend(b, own)
	if err != nil {
		return at(d, err)
	}
	p.m.Backends = append(p.m.Backends, raw)
	p.members = append(p.members, b)
	return nil
}

// options are those of every mux, top or nested:
//
//	mode failover|round_robin|weighted|sticky_by_key|shield|mirror
//	backend <name> <type> [<args>...] { weight <n> · read_only · backup · timeout <dur> · health_key <key> · locks · <type options> }
//	timeout <dur>
//	deadline <dur>|off
//	retry <n> [<delay> [<max>]]
//	cooldown <dur> [<max>]
//	health_interval <dur>|off
//	on_miss stop|next
//	partial_writes accept|fail
//	write_quorum <n>|majority|all
//	journal <dir>|off
//	read_repair on|off
//	repair_rate <size>|off
//	last_resort
//	hash modulo|rendezvous
//	hedge <dur>|auto|off [<max-%>]
//
// A newcomer is one row here, one field in Mux.
func (p *muxParser) options() []Option {
	m := p.m
	return []Option{
		{Word: "mode", Parse: p.mode},
		{Word: "backend", Repeats: true, Parse: p.backend},
		{Word: "timeout", Parse: DurationOption(&m.Timeout)},
		{Word: "deadline", Parse: offOption(&m.Deadline)},
		{Word: "retry", Parse: p.retry},
		{Word: "cooldown", Parse: p.cooldown},
		{Word: "health_interval", Parse: offOption(&m.HealthInterval)},
		{Word: "on_miss", Parse: enumOption(&m.OnMiss, "stop", "next")},
		{Word: "partial_writes", Parse: enumOption(&m.PartialWrites, "accept", "fail")},
		{Word: "write_quorum", Parse: p.quorum},
		{Word: "journal", Parse: func(d *caddyfile.Dispenser) error {
			if err := TextOption(&m.Journal)(d); err != nil {
				return err
			}
			return at(d, checkJournal(m.Journal))
		}},
		{Word: "read_repair", Parse: enumOption(&m.ReadRepair, "on", "off")},
		{Word: "repair_rate", Parse: p.repairRate},
		{Word: "last_resort", Parse: FlagOption(&m.LastResort)},
		{Word: "hash", Parse: enumOption(&m.Hash, "modulo", "rendezvous")},
		{Word: "hedge", Parse: p.hedge},
	}
}

func (p *muxParser) mode(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	if p.m.Mode != "" {
		return errTwice(d, "mode")
	}
	if hasPlaceholder(d.Val()) {
		p.m.Mode = d.Val()
		return nil
	}
	mode, err := muxcore.ParseMode(d.Val())
	p.m.Mode = string(mode)
	return at(d, err)
}

func (p *muxParser) retry(d *caddyfile.Dispenser) error {
	option := d.Val()
	if err := numberOption(&p.m.Retry, 0)(d); err != nil {
		return err
	}
	return twoDurations(d, option, false, &p.m.RetryDelay, &p.m.RetryMaxDelay)
}

// repairRate takes a size a second, or off.
func (p *muxParser) repairRate(d *caddyfile.Dispenser) error {
	if d.CountRemainingArgs() == 1 && d.NextArg() {
		if d.Val() == "off" {
			p.m.RepairRate = -1
			return nil
		}
		d.Prev()
	}
	return SizeOption(&p.m.RepairRate)(d)
}

func (p *muxParser) cooldown(d *caddyfile.Dispenser) error {
	return twoDurations(d, d.Val(), true, &p.m.Cooldown, &p.m.CooldownMax)
}

func (p *muxParser) quorum(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	p.m.WriteQuorum, p.quorumPlace = caddyhttp.WeakString(d.Val()), *d
	if hasPlaceholder(d.Val()) {
		return nil
	}
	_, err := quorumOf(d.Val())
	return at(d, err)
}

// check checks the mux as a whole, which begins at start, as far as its placeholders let it.
func (p *muxParser) check(start *caddyfile.Dispenser) error {
	mode := muxcore.Failover
	if p.m.Mode != "" {
		mode = muxcore.Mode(p.m.Mode)
	}
	quorum, err := quorumOf(p.m.WriteQuorum.String())
	if err != nil {
		quorum = 0 // a placeholder
	}
	err = checkMembers(mode, quorum, p.members)
	if errors.Is(err, errQuorum) {
		start = &p.quorumPlace
	}
	return at(start, err)
}

// backend parses one backend. Its block holds the options that all types share and those of its type; the module of the
// type sees its own alone.
func (p *muxParser) backend(d *caddyfile.Dispenser) error {
	var b Backend
	if !d.NextArg() {
		return d.ArgErr()
	}
	b.Name = d.Val()
	if err := checkName("backend", b.Name); err != nil {
		return at(d, err)
	}
	if p.taken[b.Name] {
		return at(d, checkUnique(b.Name, p.taken))
	}
	if !d.NextArg() {
		return d.ArgErr()
	}
	b.Type = d.Val()
	start := *d
	own, err := b.sortOptions(caddyfile.NewDispenser(d.NextSegment()))
	if err != nil {
		return err
	}
	if b.Type == muxType {
		inner, err := p.nested(own)
		if err != nil {
			return err
		}
		return p.add(&start, &b, inner)
	}
	module, err := newBackendType(b.Type)
	if err != nil {
		return at(&start, err)
	}
	unmarshaler, ok := module.(caddyfile.Unmarshaler)
	if !ok {
		return start.Errf("backend type %q has no Caddyfile syntax", b.Type)
	}
	if err := unmarshaler.UnmarshalCaddyfile(own); err != nil {
		return err
	}
	p.use(module, &start)
	return p.add(&start, &b, module)
}

// nested parses a backend that is a mux: mux [<mode>] [<location>...] { <tree options and backends> }.
func (p *muxParser) nested(d *caddyfile.Dispenser) (*Mux, error) {
	d.Next()
	if err := checkDepth(p.depth + 1); err != nil {
		return nil, at(d, err)
	}
	inner := newMuxParser(new(Mux), p.depth+1)
	inner.uses = p.uses
	start := *d
	if err := inner.head(d); err != nil {
		return nil, err
	}
	if err := ParseOptions(d, SharedWords(muxType), inner.options()...); err != nil {
		return nil, err
	}
	return inner.m, inner.check(&start)
}

// sortOptions parses the options that all types share out of the tokens of a backend, and gives back the others.
func (b *Backend) sortOptions(d *caddyfile.Dispenser) (*caddyfile.Dispenser, error) {
	shared, seen := b.options(), make(map[string]bool)
	d.Next()
	own := caddyfile.Segment{d.Token()}
	for d.NextArg() {
		own = append(own, d.Token())
	}
	opened := false
	for nesting := d.Nesting(); d.NextBlock(nesting); opened = true {
		if !opened { // NextBlock has passed the brace
			d.Prev()
			own = append(own, d.Token())
			d.Next()
		}
		line := d.NextSegment()
		option, ok := find(shared, line[0].Text)
		if !ok {
			own = append(own, line...)
			continue
		}
		of := caddyfile.NewDispenser(line)
		of.Next()
		if seen[option.Word] {
			return nil, errTwice(of, option.Word)
		}
		seen[option.Word] = true
		if err := option.Parse(of); err != nil {
			return nil, err
		}
		if of.Next() {
			return nil, of.Errf("%s: unexpected word %q", option.Word, of.Val())
		}
	}
	if opened {
		own = append(own, d.Token())
	}
	return caddyfile.NewDispenser(own), nil
}

// options are those that all types share. A nested mux has a timeout of its own.
func (b *Backend) options() []Option {
	all := []Option{
		{Word: "weight", Parse: b.parseWeight},
		{Word: "read_only", Parse: FlagOption(&b.ReadOnly)},
		{Word: "backup", Parse: FlagOption(&b.Backup)},
		{Word: "health_key", Parse: b.parseHealthKey},
	}
	if b.Type != muxType {
		all = append(all, Option{Word: "timeout", Parse: DurationOption(&b.Timeout)})
	}
	if b.Type != muxType && b.Type != useType {
		all = append(all, Option{Word: "locks", Parse: FlagOption(&b.Locks)})
	}
	return all
}

// SharedWords are the words of the options that all types share, for [ParseOptions]: they may stand in the block of a backend, and are
// taken out of it before its type sees the rest.
func SharedWords(kind string) []string {
	b := Backend{Type: kind}
	return words(b.options())
}

func (b *Backend) parseWeight(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	n, err := strconv.Atoi(d.Val())
	if err != nil {
		return d.Errf("weight: must be an integer, got %q (backend %q)", d.Val(), b.Name)
	}
	b.Weight = &n
	return at(d, checkWeight(b.Name, b.Weight))
}

func (b *Backend) parseHealthKey(d *caddyfile.Dispenser) error {
	if err := TextOption(&b.HealthKey)(d); err != nil {
		return err
	}
	if hasPlaceholder(b.HealthKey) {
		return nil
	}
	if err := muxcore.CheckKey(b.HealthKey); err != nil {
		return d.Errf("health_key: %w", err)
	}
	return nil
}
