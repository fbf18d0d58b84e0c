package caddymux

import (
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// settings turns the options of a mux into those of the core.
func (m *Mux) settings(repl *caddy.Replacer) (muxcore.Settings, error) {
	quorum := m.WriteQuorum.String()
	for _, word := range []struct {
		option string
		value  *string
	}{{"mode", &m.Mode}, {"on_miss", &m.OnMiss}, {"partial_writes", &m.PartialWrites}, {"write_quorum", &quorum}, {"hash", &m.Hash}, {"hedge", &m.Hedge}, {"read_repair", &m.ReadRepair}} {
		var err error
		if *word.value, err = replaceString(repl, word.option, *word.value, false); err != nil {
			return muxcore.Settings{}, err
		}
	}
	given := m.Journal != ""
	var err error
	if m.Journal, err = replaceString(repl, "journal", m.Journal, false); err != nil {
		return muxcore.Settings{}, err
	}
	if given && m.Journal == "" {
		return muxcore.Settings{}, errJournalEmpty
	}
	m.WriteQuorum = caddyhttp.WeakString(quorum)
	set := muxcore.Settings{
		Mode: muxcore.Failover, Timeout: time.Duration(m.Timeout), Deadline: time.Duration(m.Deadline),
		Retry:    muxcore.Retry{Max: m.Retry, Delay: time.Duration(m.RetryDelay), MaxDelay: time.Duration(m.RetryMaxDelay)},
		Cooldown: time.Duration(m.Cooldown), MaxCooldown: time.Duration(m.CooldownMax), HealthInterval: time.Duration(m.HealthInterval),
		RepairRate: m.RepairRate,
		OnMissNext: m.OnMiss == "next", FailPartialWrites: m.PartialWrites == "fail", LastResort: m.LastResort, Rendezvous: m.Hash == "rendezvous",
	}
	return set, m.checkOptions(&set)
}

// checkOptions checks what is a word or a number with bounds, and reads the words.
func (m *Mux) checkOptions(set *muxcore.Settings) (err error) {
	if m.Mode != "" {
		if set.Mode, err = muxcore.ParseMode(m.Mode); err != nil {
			return fieldError{"mode", err}
		}
	}
	if set.WriteQuorum, err = quorumOf(m.WriteQuorum.String()); err != nil {
		return err
	}
	if set.Hedge, err = hedgeOf(m.Hedge, m.HedgeMaxPercent); err != nil {
		return err
	}
	for _, problem := range []error{
		checkJournal(m.Journal),
		checkWord("on_miss", m.OnMiss, "stop", "next"), checkWord("partial_writes", m.PartialWrites, "accept", "fail"),
		checkWord("hash", m.Hash, "modulo", "rendezvous"), checkWord("read_repair", m.ReadRepair, "on", "off"),
	} {
		if problem != nil {
			return problem
		}
	}
	set.ReadRepair = m.ReadRepair == "on" || m.ReadRepair == "" && (set.Mode == muxcore.Mirror || set.Mode == muxcore.Shield)
	if m.RepairRate < -1 {
		return fmt.Errorf("repair_rate: must be bytes a second, or -1 for no bound, got %d", m.RepairRate)
	}
	if m.Retry < 0 {
		return fmt.Errorf("retry: must be >= 0, got %d", m.Retry)
	}
	for option, d := range map[string]caddy.Duration{
		"timeout": m.Timeout, "deadline": m.Deadline, "retry_delay": m.RetryDelay, "retry_max_delay": m.RetryMaxDelay,
		"cooldown": m.Cooldown, "cooldown_max": m.CooldownMax, "health_interval": m.HealthInterval,
	} {
		if d < 0 {
			return fmt.Errorf("%s: must not be negative, got %s", option, time.Duration(d))
		}
	}
	return m.checkBounds()
}

// checkBounds checks what one option says of another.
func (m *Mux) checkBounds() error {
	for _, pair := range []struct {
		option      string
		base, bound caddy.Duration
	}{{"retry_max_delay", m.RetryDelay, m.RetryMaxDelay}, {"cooldown_max", m.Cooldown, m.CooldownMax}} {
		if pair.bound > 0 && pair.bound < pair.base {
			return fmt.Errorf("%s: must not be below %s, got %s", pair.option, time.Duration(pair.base), time.Duration(pair.bound))
		}
	}
	if m.HedgeMaxPercent != 0 && (m.Hedge == "" || m.Hedge == "off") {
		return errors.New("hedge_max_percent: says nothing without hedge")
	}
	return nil
}
