package caddymux

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// read answers GET and HEAD.
func (x *exchange) read() error {
	key, err := x.readKey()
	if err != nil {
		return x.fail(err)
	}
	if key != "" && !strings.HasSuffix(key, "/") {
		return x.readOne(key)
	}
	for _, name := range x.indexFiles() {
		err := x.readOne(key + name)
		if !x.isMissing(err) {
			return err
		}
	}
	return x.missing(key)
}

// readKey is the key that the path stands for, or the folder of index files, which is "" or ends in a slash.
func (x *exchange) readKey() (string, error) {
	prefix, err := x.prefix()
	if err != nil {
		return "", err
	}
	key, err := keyOf(x.r.URL)
	if err != nil {
		return "", err
	}
	whole := prefix + key
	if key != "" && !strings.HasSuffix(key, "/") {
		return whole, muxcore.CheckKey(whole)
	}
	// A folder is well-formed if the key of a file in it is.
	return whole, muxcore.CheckKey(whole + "x")
}

// isMissing tells whether err is the answer for a missing object.
func (x *exchange) isMissing(err error) bool {
	return err != nil && x.result.code == muxcore.CodeKeyNotFound
}

// readOne answers with the object of one key.
func (x *exchange) readOne(key string) error {
	if x.hides(key) {
		return x.missing(key)
	}
	if x.method == http.MethodHead {
		return x.head(key)
	}
	opts, ranges := x.getOptions()
	if len(ranges) > 1 {
		return x.getRanges(key, opts, ranges)
	}
	return x.getPart(key, opts, len(ranges) == 1)
}

// getOptions reads the fields that narrow a GET. A single range is among the options already.
func (x *exchange) getOptions() (opts muxcore.GetOptions, ranges []muxcore.Range) {
	if x.plain {
		return opts, nil
	}
	opts.Conditions = readConditions(x.r.Header)
	if ranges = parseRange(x.r.Header.Get("Range")); ranges == nil {
		return opts, nil
	}
	opts.IfRange = x.r.Header.Get("If-Range")
	if len(ranges) == 1 {
		opts.Range = ranges[0]
	}
	return opts, ranges
}

// getPart answers GET with one call to the store: the whole object, or the one range of opts.
func (x *exchange) getPart(key string, opts muxcore.GetOptions, ranged bool) error {
	if ranged && opts.Range == nothing {
		return x.getNothing(key, opts)
	}
	obj, err := x.t.store.Get(x.r.Context(), key, opts)
	if ranged && (errors.Is(err, muxcore.ErrUnsupported) || err == nil && ofUnknown(obj)) {
		if err == nil {
			obj.Body.Close()
		}
		opts.Range, ranged = muxcore.Range{}, false
		obj, err = x.t.store.Get(x.r.Context(), key, opts)
	}
	if err != nil {
		return x.readError(err)
	}
	defer obj.Body.Close()
	x.answered(obj.Via)
	p := part{offset: obj.Offset, length: obj.Length}
	p.partial = ranged && obj.Size > 0 && opts.RangeApplies(&obj.Info)
	return x.send(&obj.Info, p, obj.Body)
}

// ofUnknown tells whether obj is but a part of an object of unknown length. Nobody could say so in an answer: the whole object is
// answered, as for an origin that ignores ranges and has too much before the part to skip.
func ofUnknown(obj *muxcore.Object) bool {
	return obj.Size < 0 && (obj.Offset > 0 || obj.Length >= 0)
}

// getNothing answers a well-formed range of no bytes ("-0"), which no object can satisfy.
func (x *exchange) getNothing(key string, opts muxcore.GetOptions) error {
	info, err := x.t.store.Stat(x.r.Context(), key, opts.Conditions)
	if err != nil {
		return x.readError(err)
	}
	if info.Size <= 0 || !opts.RangeApplies(&info) {
		opts.Range = muxcore.Range{}
		return x.getPart(key, opts, false)
	}
	return x.fail(&muxcore.Error{Code: muxcore.CodeRangeNotSatisfiable, Key: key, Info: &info})
}

// head answers HEAD with what GET would send before the body.
func (x *exchange) head(key string) error {
	opts, ranges := x.getOptions()
	info, err := x.t.store.Stat(x.r.Context(), key, opts.Conditions)
	if err != nil {
		return x.readError(err)
	}
	x.answered(info.Via)
	opts.Conditions = muxcore.Conditions{}
	whole := part{length: info.Size}
	switch {
	case len(ranges) == 0, info.Size <= 0, !opts.RangeApplies(&info):
	case len(ranges) > 1:
		return x.headRanges(&info, ranges)
	case opts.Range == nothing:
		return x.fail(&muxcore.Error{Code: muxcore.CodeRangeNotSatisfiable, Key: key, Info: &info})
	default:
		offset, length, err := opts.Resolve(&info)
		if err != nil {
			return x.fail(err)
		}
		whole = part{offset, length, true}
	}
	x.start(&info, whole)
	return nil
}

// readError answers with what a store said instead of an object.
func (x *exchange) readError(err error) error {
	info := muxcore.InfoOf(err)
	switch {
	case info == nil:
	case errors.Is(err, muxcore.ErrNotModified):
		x.erred(err)
		x.notModified(info)
		return nil
	case errors.Is(err, muxcore.ErrRangeNotSatisfiable) && info.Size == 0:
		// As http.ServeContent: some clients ask for ranges always, and an empty object is what they get.
		x.answered(info.Via)
		x.start(info, part{})
		return nil
	case errors.Is(err, muxcore.ErrPreconditionFailed):
		x.validators(x.w.Header(), info) // as http.ServeContent: which version there is instead
	}
	return x.fail(err)
}

// readConditions reads the preconditions of a GET or HEAD. What is malformed is ignored.
func readConditions(h http.Header) muxcore.Conditions {
	c := writeConditions(h)
	if c.IfNoneMatch == "" {
		c.IfModifiedSince = httpDate(h.Get("If-Modified-Since"))
	}
	return c
}

// writeConditions reads the preconditions that count for PUT and DELETE as well.
func writeConditions(h http.Header) muxcore.Conditions {
	c := muxcore.Conditions{IfMatch: listField(h, "If-Match"), IfNoneMatch: listField(h, "If-None-Match")}
	if c.IfMatch == "" {
		c.IfUnmodifiedSince = httpDate(h.Get("If-Unmodified-Since"))
	}
	return c
}

// checkConditions tells which precondition of a write is malformed. To leave it out would be to write without it.
func checkConditions(h http.Header) error {
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if list := textproto.TrimString(listField(h, name)); len(h[name]) > 0 && list != "*" && !listsTags(list) {
			return fmt.Errorf("%s: must be * or entity tags in double quotes, got %q", name, list)
		}
	}
	return nil
}

// listsTags tells whether a list is one of entity tags.
func listsTags(list string) bool {
	tags := 0
	for list = strings.TrimLeft(list, " \t,"); list != ""; list = strings.TrimLeft(list, " \t,") {
		_, rest, ok := muxcore.CutETag(list)
		if rest = textproto.TrimString(rest); !ok || rest != "" && rest[0] != ',' {
			return false
		}
		list = rest
		tags++
	}
	return tags > 0
}

// listField is the value of a field that is a list, however many lines it came in.
func listField(h http.Header, name string) string {
	values := h[http.CanonicalHeaderKey(name)]
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values, ", ")
}

// httpDate reads a date, zero if there is none or it is malformed.
func httpDate(value string) time.Time {
	if value == "" || value == "0" {
		return time.Time{}
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return time.Time{}
	}
	return at
}
