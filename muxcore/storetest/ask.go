package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// put puts body and ends the check if that fails.
func (p *probe) put(key, body string, opts muxcore.PutOptions) muxcore.PutResult {
	if !p.caps.Write {
		p.h.Seed(p.tb, p.store, key, body)
		return muxcore.PutResult{}
	}
	res, err := p.store.Put(p.ctx, key, strings.NewReader(body), int64(len(body)), opts)
	if err != nil {
		p.fatalf("Put(%.60q) = %v, want success", key, err)
	}
	p.describes("Put", &res.Info, key, body)
	return res
}

// describes compares info with what is known of the object.
func (p *probe) describes(call string, info *muxcore.Info, key, body string) {
	if info.Key != key {
		p.errorf("%s(%.60q): Info.Key = %.60q, want the key", call, key, info.Key)
	}
	if info.Size >= 0 && info.Size != int64(len(body)) {
		p.errorf("%s(%.60q): Info.Size = %d, want %d", call, key, info.Size, len(body))
	}
	if info.ETag != "" {
		if _, rest, ok := muxcore.CutETag(info.ETag); !ok || rest != "" {
			p.errorf("%s(%.60q): Info.ETag = %q, want an entity tag with its quotes", call, key, info.ETag)
		}
	}
	if !info.Digests.Empty() {
		p.describesContent(call, info, key, body)
	}
}

// describesContent compares the digests that info knows with those of body.
func (p *probe) describesContent(call string, info *muxcore.Info, key, body string) {
	want := p.digests(body)
	for name, d := range map[string][2][]byte{
		"MD5":    {info.Digests.MD5, want.MD5},
		"SHA256": {info.Digests.SHA256, want.SHA256},
		"SHA512": {info.Digests.SHA512, want.SHA512},
	} {
		if d[0] != nil && !bytes.Equal(d[0], d[1]) {
			p.errorf("%s(%.60q): Info.Digests.%s = %x, want %x or nil", call, key, name, d[0], d[1])
		}
	}
}

// digests are those of body, which most checks ask for some times over.
func (p *probe) digests(body string) muxcore.Digests {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.summed != body || p.sums.Empty() {
		p.summed, p.sums = body, digestsOf(body)
	}
	return p.sums
}

// get opens and reads an object; the error is that of Get or of the body.
func (p *probe) get(ctx context.Context, key string, opts muxcore.GetOptions) (*muxcore.Object, string, error) {
	o, err := p.store.Get(ctx, key, opts)
	if err != nil {
		if o != nil {
			p.errorf("Get(%.60q) = an object and the error %v", key, err)
		}
		return nil, "", err
	}
	if o == nil || o.Body == nil {
		p.fatalf("Get(%.60q) = %v with a nil body, and no error", key, o)
	}
	data, err := readAll(o.Body, o.Length)
	if cerr := o.Body.Close(); cerr != nil && err == nil {
		err = fmt.Errorf("closing the body: %w", cerr)
	}
	if err == nil && o.Length >= 0 && int64(len(data)) != o.Length {
		p.errorf("Get(%.60q): the body has %d bytes and ends in io.EOF, but Length = %d", key, len(data), o.Length)
	}
	return o, string(data), err
}

// readAll is io.ReadAll for a body of which it is said how long it is.
func readAll(r io.Reader, length int64) ([]byte, error) {
	buf := bytes.NewBuffer(make([]byte, 0, min(max(length, 0), 4<<20)+bytes.MinRead))
	_, err := buf.ReadFrom(struct{ io.Reader }{r})
	return buf.Bytes(), err
}

// holds demands that key is an object with these bytes, for Get and for Stat.
func (p *probe) holds(key, body string) muxcore.Info {
	o, got, err := p.get(p.ctx, key, muxcore.GetOptions{})
	if err != nil {
		p.errorf("Get(%.60q) = %v, want %s", key, err, brief(body))
		return muxcore.Info{}
	}
	if got != body {
		p.errorf("Get(%.60q) = %s, want %s", key, brief(got), brief(body))
	}
	p.describes("Get", &o.Info, key, body)
	if o.Offset != 0 {
		p.errorf("Get(%.60q): Offset = %d for the whole object", key, o.Offset)
	}
	info, err := p.store.Stat(p.ctx, key, muxcore.Conditions{})
	if err != nil {
		p.errorf("Stat(%.60q) = %v, but Get succeeds", key, err)
		return o.Info
	}
	p.describes("Stat", &info, key, body)
	p.same("Stat", &info, "Get", &o.Info)
	return info
}

// same demands that two descriptions of one version agree.
func (p *probe) same(callA string, a *muxcore.Info, callB string, b *muxcore.Info) {
	if a.ETag != b.ETag || a.ETagStored != b.ETagStored {
		p.errorf("%.60q: %s says ETag %s (stored: %t), %s says %s (stored: %t)", a.Key, callA, a.ETag, a.ETagStored, callB, b.ETag, b.ETagStored)
	}
	if a.Size != b.Size {
		p.errorf("%.60q: %s says Size %d, %s says %d", a.Key, callA, a.Size, callB, b.Size)
	}
	if !a.ModTime.Equal(b.ModTime) {
		p.errorf("%.60q: %s says ModTime %v, %s says %v", a.Key, callA, a.ModTime, callB, b.ModTime)
	}
	if diff := attributesDiff(&a.Attributes, &b.Attributes); diff != "" {
		p.errorf("%.60q: %s and %s disagree: %s", a.Key, callA, callB, diff)
	}
}

// absent demands that there is nothing at key.
func (p *probe) absent(key string) {
	if _, got, err := p.get(p.ctx, key, muxcore.GetOptions{}); err == nil {
		p.errorf("Get(%.60q) = %s, want KEY_NOT_FOUND", key, brief(got))
	} else {
		p.code(fmt.Sprintf("Get(%.60q)", key), err, muxcore.CodeKeyNotFound)
	}
	_, err := p.store.Stat(p.ctx, key, muxcore.Conditions{})
	p.code(fmt.Sprintf("Stat(%.60q)", key), err, muxcore.CodeKeyNotFound)
}

// code demands an error of the contract's type with one of these codes.
func (p *probe) code(call string, err error, want ...muxcore.Code) bool {
	if err == nil {
		p.errorf("%s succeeds, want an error with %s", call, want)
		return false
	}
	got := muxcore.CodeOf(err)
	for _, w := range want {
		if got != w {
			continue
		}
		if w == muxcore.CodeKeyNotFound && !errors.Is(err, fs.ErrNotExist) {
			p.errorf("%s = %v, which is not fs.ErrNotExist", call, err)
		}
		return true
	}
	p.errorf("%s = %v (code %q), want %s", call, err, got, want)
	return false
}

// brief shows a body in a message.
func brief(body string) string {
	if len(body) <= 40 {
		return fmt.Sprintf("%q", body)
	}
	return fmt.Sprintf("%.40q… (%d bytes)", body, len(body))
}

// pattern is n bytes in which no two stretches are alike for long.
func pattern(n, seed int) string {
	b := make([]byte, 0, n+4)
	x := uint32(seed)*2654435761 + 1
	for len(b) < n {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return string(b[:n])
}
