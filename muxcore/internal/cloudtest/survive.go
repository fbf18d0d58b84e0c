package cloudtest

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
	"github.com/suaveplan/caddy-storage-mux/muxcore/internal/wire"
	"github.com/suaveplan/caddy-storage-mux/muxcore/storetest"
)

const (
	victim      = "some/key"
	longestTold = 4 << 10 // of an error, which ends up in logs
	most        = 1 << 20 // bytes of a body, and entries of a list, that anybody wants
)

// A trial is what a hostile service is asked for.
var trials = []func(ctx context.Context, tb testing.TB, s muxcore.Store) error{
	getting(muxcore.GetOptions{}),
	getting(muxcore.GetOptions{Range: muxcore.Range{Offset: 3, Length: 4}}),
	getting(muxcore.GetOptions{Range: muxcore.Range{Offset: -3}}),
	getting(muxcore.GetOptions{Range: muxcore.Range{Offset: 2}, IfRange: `"a"`}),
	getting(muxcore.GetOptions{Conditions: muxcore.Conditions{IfNoneMatch: `"b"`}}),
	stats,
	putting(muxcore.PutOptions{}),
	putting(muxcore.PutOptions{ETag: `"one"`, Conditions: muxcore.Conditions{IfNoneMatch: "*"}}),
	deletes,
	listing(muxcore.ListOptions{}),
	listing(muxcore.ListOptions{Prefix: "so", Delimiter: "/", Limit: 1}),
	listing(muxcore.ListOptions{After: "b", Details: true, Limit: 50}),
	listing(muxcore.ListOptions{Delimiter: "e", After: "k"}),
	func(ctx context.Context, _ testing.TB, s muxcore.Store) error { return muxcore.Probe(ctx, s, "") },
}

// Survive asks a store of a hostile service for one of many things, and judges what comes of it, whatever was answered: no
// value that no object can have, no body that looks whole and is not, no error without a code or with one of the secrets, no
// answer read on and on, and none asked for on and on unless the store walks: collections may lie in collections for ever.
func Survive(tb testing.TB, h *Hostile, s muxcore.Store, what byte, walks bool, secrets ...string) {
	tb.Helper()
	err := trials[int(what)%len(trials)](h.Context, tb, s)
	if h.AskedEnough() && !walks {
		tb.Errorf("asked more than %d times: %v", mostAsked, err)
	}
	if h.Flooded() {
		tb.Errorf("more than %d bytes of an answer are read: %v", mostTaken, err)
	}
	if err == nil {
		return
	}
	text := err.Error()
	switch {
	case h.Context.Err() != nil:
		if !errors.Is(err, context.Canceled) {
			tb.Errorf("%v, and the context has ended", err)
		}
	case muxcore.CodeOf(err) == "", muxcore.Classify(h.Context, err) == muxcore.ClassAbort:
		tb.Errorf("%v is %q, %v", err, muxcore.CodeOf(err), muxcore.Classify(h.Context, err))
	case len(text) > longestTold:
		tb.Errorf("an error of %d bytes: %s…", len(text), text[:500])
	}
	for _, secret := range secrets {
		if strings.Contains(text, secret) && !strings.Contains(text, "malformed HTTP") { // there net/http quotes what no HTTP server says
			tb.Errorf("%v shows %q", err, secret)
		}
	}
}

// sound tells what is wrong with a description.
func sound(tb testing.TB, info *muxcore.Info, key string) {
	tb.Helper()
	if info.Key != key || info.Size < -1 {
		tb.Errorf("key %q, size %d of %q", info.Key, info.Size, key)
	}
	if tag, rest, ok := muxcore.CutETag(info.ETag); info.ETag != "" && (!ok || rest != "" || tag != info.ETag) || info.ETagStored && !muxcore.IsStrong(info.ETag) {
		tb.Errorf("ETag %q, stored: %t", info.ETag, info.ETagStored)
	}
	d := &info.Digests
	if n, m, o := len(d.MD5), len(d.SHA256), len(d.SHA512); n != 0 && n != 16 || m != 0 && m != 32 || o != 0 && o != 64 {
		tb.Errorf("digests of %d, %d and %d bytes", n, m, o)
	}
	a := &info.Attributes
	for _, v := range slices.AppendSeq([]string{
		a.ContentType, a.CacheControl, a.ContentDisposition, a.ContentEncoding, a.ContentLanguage, a.Expires,
	}, maps.Values(a.Metadata)) {
		if !wire.IsFieldValue(v) {
			tb.Errorf("an attribute is %q, which no field can hold", v)
		}
	}
	for name := range a.Metadata {
		if !wire.IsToken(name) || name != strings.ToLower(name) {
			tb.Errorf("metadata has the name %q", name)
		}
	}
}

func getting(opts muxcore.GetOptions) func(context.Context, testing.TB, muxcore.Store) error {
	return func(ctx context.Context, tb testing.TB, s muxcore.Store) error {
		o, err := s.Get(ctx, victim, opts)
		if err != nil {
			return err
		}
		defer o.Body.Close()
		sound(tb, &o.Info, victim)
		if o.Offset < 0 || o.Length < -1 || o.Size >= 0 && (o.Length < 0 || o.Offset+o.Length > o.Size) || opts.Range == (muxcore.Range{}) && (o.Offset != 0 || o.Length != o.Size) {
			tb.Errorf("%d bytes from %d, of %d, for %+v", o.Length, o.Offset, o.Size, opts.Range)
		}
		n, err := io.Copy(io.Discard, io.LimitReader(o.Body, most))
		if o.Length >= 0 && (n > o.Length || err == nil && n < min(o.Length, most)) {
			tb.Errorf("%d bytes, %v; announced are %d", n, err, o.Length)
		}
		return err
	}
}

func stats(ctx context.Context, tb testing.TB, s muxcore.Store) error {
	info, err := s.Stat(ctx, victim, muxcore.Conditions{})
	if err == nil {
		sound(tb, &info, victim)
	}
	return err
}

func putting(opts muxcore.PutOptions) func(context.Context, testing.TB, muxcore.Store) error {
	return func(ctx context.Context, tb testing.TB, s muxcore.Store) error {
		res, err := s.Put(ctx, victim, strings.NewReader("body"), 4, opts)
		if err != nil {
			return err
		}
		if sound(tb, &res.Info, victim); res.Size != 4 {
			tb.Errorf("4 bytes were put, and %d are there", res.Size)
		}
		return nil
	}
}

func deletes(ctx context.Context, _ testing.TB, s muxcore.Store) error {
	_, err := s.Delete(ctx, victim, muxcore.DeleteOptions{})
	return err
}

func listing(opts muxcore.ListOptions) func(context.Context, testing.TB, muxcore.Store) error {
	return func(ctx context.Context, tb testing.TB, s muxcore.Store) error {
		last, n := opts.After, 0
		for e, err := range s.List(ctx, opts) {
			if err != nil {
				return err
			}
			if n++; e.Key <= last || !strings.HasPrefix(e.Key, opts.Prefix) || muxcore.HiddenFrom(opts.Prefix, e.Key) || opts.Limit > 0 && n > opts.Limit {
				tb.Errorf("entry %d is %q after %q, for %+v", n, e.Key, last, opts)
			}
			if last = e.Key; e.IsPrefix {
				if opts.Delimiter == "" || muxcore.CheckPrefix(e.Key) != nil {
					tb.Errorf("%q is listed as rolled up for %+v", e.Key, opts)
				}
				continue
			}
			sound(tb, &e.Info, e.Key)
			if err := muxcore.CheckStoreKey(e.Key); err != nil {
				tb.Errorf("%q is listed: %v", e.Key, err)
			}
			if n == most {
				break
			}
		}
		return nil
	}
}

// Fuzz plays what scripts become to stores that open makes, whose requests must go through h. Each seed is asked for
// everything first, without the tag thorough for a third of it. See Survive for walks and secrets.
func Fuzz(f *testing.F, scripts []string, open func(tb testing.TB, h *Hostile) muxcore.Store, walks bool, secrets ...string) {
	f.Helper()
	said := log.Writer()
	log.SetOutput(io.Discard) // net/http tells of every byte beyond an answer
	f.Cleanup(func() { log.SetOutput(said) })
	for i, script := range scripts {
		for what := range trials {
			if storetest.Thorough || (i+what)%3 == 0 {
				f.Add([]byte(script), byte(what), false)
			}
		}
		f.Add([]byte(script), byte(0), true)
		f.Add([]byte(script), byte(9), true)
	}
	f.Fuzz(func(t *testing.T, script []byte, what byte, endless bool) {
		h := NewHostile(t, script, endless)
		s := open(t, h)
		Survive(t, h, s, what, walks, secrets...)
		if err := muxcore.Close(s); err != nil {
			t.Error(err)
		}
		h.Close()
	})
}
