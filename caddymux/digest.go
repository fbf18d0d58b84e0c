package caddymux

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var (
	errDictionary = errors.New("malformed structured field")
	errBytes      = errors.New("value is no byte sequence")
	errLength     = errors.New("digest of a wrong length")
	errTwoDigests = errors.New("not the digest that Repr-Digest declares")
)

// declaredDigests reads Content-MD5 (RFC 1864), and Repr-Digest and Content-Digest (RFC 9530), which say the same of a body that is put
// whole. Algorithms that are unknown are ignored.
func declaredDigests(h http.Header) (muxcore.Digests, error) {
	var d muxcore.Digests
	if lines := h["Content-Md5"]; len(lines) > 0 {
		sum, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(strings.Join(lines, ",")))
		if err != nil || len(sum) != 16 {
			return d, fieldError{"Content-MD5", errLength}
		}
		d.MD5 = sum
	}
	for _, field := range []string{"Repr-Digest", "Content-Digest"} {
		var one muxcore.Digests
		err := eachMember(strings.Join(h[field], ","), func(key, value string) error {
			switch key {
			case "sha-256":
				return digestValue(value, 32, &one.SHA256)
			case "sha-512":
				return digestValue(value, 64, &one.SHA512)
			}
			return nil
		})
		if err == nil && (differ(d.SHA256, one.SHA256) || differ(d.SHA512, one.SHA512)) {
			err = errTwoDigests
		}
		if err != nil {
			return d, fieldError{field, err}
		}
		d = d.Or(one)
	}
	return d, nil
}

// differ tells whether two digests were declared that cannot both be right.
func differ(a, b []byte) bool { return a != nil && b != nil && !bytes.Equal(a, b) }

// digestValue reads a byte sequence of a known length. The last one of a key counts.
func digestValue(item string, length int, into *[]byte) error {
	if len(item) < 2 || item[0] != ':' || item[len(item)-1] != ':' {
		return errBytes
	}
	encoded := item[1 : len(item)-1]
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		// RFC 9651, section 4.2.7: missing padding is to be accepted.
		sum, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	}
	if err != nil {
		return errBytes
	}
	if len(sum) != length {
		return errLength
	}
	*into = sum
	return nil
}

// eachMember walks a dictionary (RFC 9651, section 4.2.2). Values come as they are written, without parameters; an inner
// list or a missing value comes as "".
func eachMember(field string, member func(key, value string) error) error {
	p := fieldParser{strings.Trim(field, " ")}
	if p.rest == "" {
		return nil
	}
	for {
		key, ok := p.key()
		if !ok {
			return errDictionary
		}
		value := ""
		if p.accept('=') {
			if value, ok = p.value(); !ok {
				return errDictionary
			}
		}
		if !p.parameters() {
			return errDictionary
		}
		if err := member(key, value); err != nil {
			return err
		}
		p.rest = strings.TrimLeft(p.rest, " \t")
		if p.rest == "" {
			return nil
		}
		if !p.accept(',') {
			return errDictionary
		}
		p.rest = strings.TrimLeft(p.rest, " \t")
	}
}

// fieldParser takes a structured field apart from its beginning.
type fieldParser struct{ rest string }

func (p *fieldParser) accept(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// span takes the bytes that are in a set.
func (p *fieldParser) span(in func(c byte) bool) string {
	n := 0
	for n < len(p.rest) && in(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *fieldParser) key() (string, bool) {
	key := p.span(func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("_-.*", c) >= 0
	})
	return key, key != "" && (key[0] >= 'a' && key[0] <= 'z' || key[0] == '*')
}

// value takes an item or an inner list.
func (p *fieldParser) value() (string, bool) {
	if !p.accept('(') {
		return p.item()
	}
	for {
		p.span(func(c byte) bool { return c == ' ' })
		if p.accept(')') {
			return "", true
		}
		if _, ok := p.item(); !ok || !p.parameters() {
			return "", false
		}
	}
}

// item takes a bare item: a byte sequence, a string, or a token, number, boolean or date.
func (p *fieldParser) item() (string, bool) {
	before := p.rest
	switch {
	case p.accept(':'):
		p.span(func(c byte) bool {
			return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+/=", c) >= 0
		})
		if !p.accept(':') {
			return "", false
		}
	case p.accept('"'):
		if !p.quoted() {
			return "", false
		}
	default:
		plain := p.span(func(c byte) bool { return c > ' ' && c < 0x7f && strings.IndexByte(`",;=()`, c) < 0 })
		if plain == "" {
			return "", false
		}
	}
	return before[:len(before)-len(p.rest)], true
}

// quoted takes the rest of a string.
func (p *fieldParser) quoted() bool {
	for p.rest != "" {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			return true
		case c == '\\':
			if !p.accept('"') && !p.accept('\\') {
				return false
			}
		case c < ' ' || c > '~':
			return false
		}
	}
	return false
}

// parameters takes what follows an item.
func (p *fieldParser) parameters() bool {
	for p.accept(';') {
		p.span(func(c byte) bool { return c == ' ' })
		if _, ok := p.key(); !ok {
			return false
		}
		if p.accept('=') {
			if _, ok := p.item(); !ok {
				return false
			}
		}
	}
	return true
}
