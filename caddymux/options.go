package caddymux

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// Option is a row of a parse table: a word of a block, and how to read what follows it.
type Option struct {
	Word    string
	Repeats bool // may stand more than once

	// Parse reads the arguments. The dispenser stands on the word. What it leaves on the line is an error.
	Parse func(d *caddyfile.Dispenser) error
}

// ParseOptions reads the block that begins after the token on which d stands, if there is one. Unknown words are errors that list the
// known ones; also names further words that the block may have and that others read.
func ParseOptions(d *caddyfile.Dispenser, also []string, options ...Option) error {
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		option, ok := find(options, word)
		if !ok {
			return d.Errf("unknown option %q, known are %s", word, strings.Join(append(words(options), also...), ", "))
		}
		if seen[word] && !option.Repeats {
			return d.Errf("%s: given twice", word)
		}
		seen[word] = true
		if err := option.Parse(d); err != nil {
			return err
		}
		if d.NextArg() {
			return d.Errf("%s: unexpected word %q", word, d.Val())
		}
	}
	return nil
}

func find(options []Option, word string) (Option, bool) {
	for _, option := range options {
		if option.Word == word {
			return option, true
		}
	}
	return Option{}, false
}

func words(options []Option) []string {
	known := make([]string, 0, len(options))
	for _, option := range options {
		known = append(known, option.Word)
	}
	return known
}

// The readers below make the Parse of an option whose value is of one kind.

// FlagOption is a word without arguments.
func FlagOption(into *bool) func(*caddyfile.Dispenser) error {
	return func(*caddyfile.Dispenser) error {
		*into = true
		return nil
	}
}

// TextOption takes one word as it is.
func TextOption(into *string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		if !d.NextArg() {
			return d.ArgErr()
		}
		*into = d.Val()
		return nil
	}
}

// SecretOption takes one word that no error may show.
func SecretOption(into *string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		option := d.Val()
		if err := TextOption(into)(d); err != nil {
			return err
		}
		return noMoreSecrets(d, option)
	}
}

// noMoreSecrets refuses a further word without showing it: the usual mistake is a secret with a space that lacks its quotes.
func noMoreSecrets(d *caddyfile.Dispenser, option string) error {
	if d.NextArg() {
		return d.Errf("%s: unexpected word; a value with spaces stands in quotes", option)
	}
	return nil
}

// enumOption takes one of several words. One with placeholders is looked at when it is provisioned.
func enumOption(into *string, known ...string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		option := d.Val()
		if !d.NextArg() {
			return d.ArgErr()
		}
		*into = d.Val()
		if hasPlaceholder(*into) {
			return nil
		}
		return at(d, checkWord(option, *into, known...))
	}
}

// DurationOption takes a duration greater than zero.
func DurationOption(into *caddy.Duration) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		option := d.Val()
		if !d.NextArg() {
			return d.ArgErr()
		}
		return parseDuration(d, option, into)
	}
}

// offOption takes a duration, or the word off.
func offOption(into *caddy.Duration) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		option := d.Val()
		if !d.NextArg() {
			return d.ArgErr()
		}
		if d.Val() == "off" {
			*into = 0
			return nil
		}
		return parseDuration(d, option, into)
	}
}

// parseDuration reads the token on which d stands.
func parseDuration(d *caddyfile.Dispenser, option string, into *caddy.Duration) error {
	dur, err := caddy.ParseDuration(d.Val())
	if err != nil || dur <= 0 {
		return d.Errf("%s: must be a duration such as 500ms, 30s or 2m, got %q", option, d.Val())
	}
	*into = caddy.Duration(dur)
	return nil
}

// numberOption takes an integer not below least.
func numberOption(into *int, least int) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		option := d.Val()
		if !d.NextArg() {
			return d.ArgErr()
		}
		n, err := strconv.Atoi(d.Val())
		if err != nil || n < least {
			return d.Errf("%s: must be a number >= %d, got %q", option, least, d.Val())
		}
		*into = n
		return nil
	}
}

// SizeOption takes a number of bytes such as 64MB or 1GiB.
func SizeOption(into *int64) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		option := d.Val()
		if !d.NextArg() {
			return d.ArgErr()
		}
		n, err := parseSize(d.Val())
		if err != nil {
			return d.Errf("%s: %w", option, err)
		}
		*into = n
		return nil
	}
}

func parseSize(word string) (int64, error) {
	n, err := humanize.ParseBytes(word)
	if err != nil || n == 0 || n > 1<<62 {
		return 0, fmt.Errorf("must be a size such as 64MB or 1GiB, got %q", word)
	}
	return int64(n), nil
}

// listOption takes the rest of the line, at least one word.
func listOption(into *[]string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) == 0 {
			return d.ArgErr()
		}
		*into = append(*into, args...)
		return nil
	}
}

// at adds the place in the Caddyfile to an error.
func at(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

// twoDurations reads <first> [<most>], the first one optional unless it is required.
func twoDurations(d *caddyfile.Dispenser, option string, required bool, first, most *caddy.Duration) error {
	for _, into := range []*caddy.Duration{first, most} {
		if !d.NextArg() {
			if required && into == first {
				return d.ArgErr()
			}
			return nil
		}
		if err := parseDuration(d, option, into); err != nil {
			return err
		}
	}
	if *most < *first {
		return d.Errf("%s: the most, %s, is less than %s to begin with", option, time.Duration(*most), time.Duration(*first))
	}
	return nil
}
