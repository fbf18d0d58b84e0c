package muxcore

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

var baseTime = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

const digits = "0123456789"

// served is what http.ServeContent makes of a request.
func served(info *Info, header http.Header) (Code, string) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = header
	w := httptest.NewRecorder()
	if info.ETag != "" {
		w.Header().Set("Etag", info.ETag)
	}
	w.Header().Set("Content-Type", "text/plain")
	http.ServeContent(w, r, "", info.ModTime, strings.NewReader(digits))
	switch w.Code {
	case http.StatusNotModified:
		return CodeNotModified, ""
	case http.StatusPreconditionFailed:
		return CodePreconditionFailed, ""
	case http.StatusRequestedRangeNotSatisfiable:
		return CodeRangeNotSatisfiable, ""
	}
	return "", w.Body.String()
}

// resolved is what Resolve makes of the same.
func resolved(info *Info, opts *GetOptions) (Code, string) {
	offset, length, err := opts.Resolve(info)
	if err != nil {
		return CodeOf(err), ""
	}
	return "", digits[offset : offset+length]
}

// headerOf writes the options as a request would have them.
func headerOf(o *GetOptions) http.Header {
	h := http.Header{}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set("If-Match", o.Conditions.IfMatch)
	set("If-None-Match", o.Conditions.IfNoneMatch)
	set("If-Range", o.IfRange)
	if at := o.Conditions.IfModifiedSince; !at.IsZero() {
		h.Set("If-Modified-Since", at.UTC().Format(http.TimeFormat))
	}
	if at := o.Conditions.IfUnmodifiedSince; !at.IsZero() {
		h.Set("If-Unmodified-Since", at.UTC().Format(http.TimeFormat))
	}
	switch r := o.Range; {
	case r == Range{}:
	case r.Offset < 0:
		h.Set("Range", "bytes="+strconv.FormatInt(r.Offset, 10))
	case r.Length == 0:
		h.Set("Range", "bytes="+strconv.FormatInt(r.Offset, 10)+"-")
	default:
		h.Set("Range", "bytes="+strconv.FormatInt(r.Offset, 10)+"-"+strconv.FormatInt(r.Offset+r.Length-1, 10))
	}
	return h
}

// seconds is a time some seconds off, or none.
func seconds(n int16) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return baseTime.Add(time.Duration(n) * time.Second)
}

func FuzzConditions(f *testing.F) {
	for _, list := range []string{
		"", "*", `"a"`, `W/"a"`, `"b"`, `"b", "a"`, `"b" "a"`, `,, "a" ,`, `a`, `"a`, `""`, `W/""`, `"b", *`, `"a"x`, `W/"b",W/"a"`, ` * `, `"a b"`, "\"\u00e9\"", "\t\"a\"", `W/a`,
	} {
		f.Add(`"a"`, list, "", "", int16(0), int16(0), int16(1), int16(0), int16(0))
		f.Add(`W/"a"`, "", list, "", int16(0), int16(0), int16(1), int16(0), int16(0))
		f.Add(`"a"`, list, list, list, int16(1), int16(1), int16(1), int16(3), int16(4))
	}
	f.Add(`"a"`, "", "", "Mon, 06 May 2024 07:08:10 GMT", int16(0), int16(0), int16(1), int16(3), int16(4))
	f.Add("", "", "", "Monday, 06-May-24 07:08:10 GMT", int16(2), int16(-2), int16(1), int16(-3), int16(0))
	f.Add(`""`, `""`, "", "", int16(-1), int16(1), int16(0), int16(100), int16(0))
	f.Fuzz(func(t *testing.T, etag, match, noneMatch, ifRange string, modified, unmodified, at, offset, length int16) {
		for _, s := range []string{etag, match, noneMatch, ifRange} {
			if strings.ContainsAny(s, "\r\n\x00") {
				t.Skip("no header has these")
			}
		}
		if tag, rest, ok := CutETag(etag); etag != "" && (!ok || rest != "" || tag != etag) {
			t.Skip("not an entity tag: no store has it")
		}
		if _, rest, ok := CutETag(ifRange); ok && strings.Trim(rest, " \t") != "" {
			t.Skip("ServeContent takes the beginning of a malformed If-Range, we take none")
		}
		if length < 0 || offset < 0 && length > 0 {
			t.Skip("not a range of HTTP")
		}
		info := &Info{Key: "k", Size: int64(len(digits)), ETag: etag, ModTime: seconds(at)}
		opts := &GetOptions{
			Range: Range{Offset: int64(offset), Length: int64(length)}, IfRange: ifRange,
			Conditions: Conditions{IfMatch: match, IfNoneMatch: noneMatch, IfModifiedSince: seconds(modified), IfUnmodifiedSince: seconds(unmodified)},
		}
		code, body := resolved(info, opts)
		wantCode, wantBody := served(info, headerOf(opts))
		if code != wantCode || body != wantBody {
			t.Fatalf("Resolve of %+v for %+v = %q, %q, http.ServeContent answers %q, %q", opts, info, code, body, wantCode, wantBody)
		}
	})
}

func FuzzRange(f *testing.F) {
	for _, r := range [][3]int64{{0, 0, 10}, {3, 4, 10}, {-3, 0, 10}, {-30, 2, 10}, {10, 0, 10}, {0, 1, 0}, {-1, 0, 0}, {1 << 62, 1 << 62, 5}, {-1 << 63, 0, 5}, {2, 1<<63 - 1, 5}, {0, -1, 5}} {
		f.Add(r[0], r[1], r[2])
	}
	f.Fuzz(func(t *testing.T, offset, length, size int64) {
		if size < 0 || size > 64 {
			t.Skip()
		}
		info := &Info{Key: "k", Size: size}
		gotOffset, gotLength, err := (&GetOptions{Range: Range{Offset: offset, Length: length}}).Resolve(info)
		// The bytes one by one.
		first, n := int64(-1), int64(0)
		for i := range size {
			in := i >= offset
			if offset < 0 {
				in = offset < -size || size-i <= -offset
			}
			if in && (length <= 0 || n < length) {
				if first < 0 {
					first = i
				}
				n++
			}
		}
		switch {
		case offset == 0 && length == 0:
			if gotOffset != 0 || gotLength != size || err != nil {
				t.Fatalf("the whole of %d = %d, %d, %v", size, gotOffset, gotLength, err)
			}
		case n == 0:
			if CodeOf(err) != CodeRangeNotSatisfiable || InfoOf(err).Size != size {
				t.Fatalf("%d+%d of %d = %d, %d, %v, want RANGE_NOT_SATISFIABLE", offset, length, size, gotOffset, gotLength, err)
			}
		case gotOffset != first || gotLength != n || err != nil:
			t.Fatalf("%d+%d of %d = %d, %d, %v, want %d, %d", offset, length, size, gotOffset, gotLength, err, first, n)
		}
	})
}

func TestConditionsOfWrites(t *testing.T) {
	here := &Info{Key: "k", ETag: `"a"`, ModTime: baseTime.Add(500 * time.Millisecond)}
	for name, row := range map[string]struct {
		cond         Conditions
		over, absent bool // holds over the object, over nothing
	}{
		"none":                             {Conditions{}, true, true},
		"If-None-Match: *":                 {Conditions{IfNoneMatch: "*"}, false, true},
		"If-None-Match of it":              {Conditions{IfNoneMatch: `W/"a"`}, false, true},
		"If-None-Match of another":         {Conditions{IfNoneMatch: `"b"`}, true, true},
		"If-Match: *":                      {Conditions{IfMatch: "*"}, true, false},
		"If-Match of it":                   {Conditions{IfMatch: `"b", "a"`}, true, false},
		"If-Match of it, weakly":           {Conditions{IfMatch: `W/"a"`}, false, false},
		"If-Match of another":              {Conditions{IfMatch: `"b"`}, false, false},
		"If-Unmodified-Since its time":     {Conditions{IfUnmodifiedSince: baseTime}, true, false},
		"If-Unmodified-Since before":       {Conditions{IfUnmodifiedSince: baseTime.Add(-time.Second)}, false, false},
		"If-Match beats that":              {Conditions{IfMatch: "*", IfUnmodifiedSince: baseTime.Add(-time.Second)}, true, false},
		"If-Modified-Since does not count": {Conditions{IfModifiedSince: baseTime.Add(time.Hour)}, true, true},
	} {
		for what, c := range map[string]struct {
			info *Info
			want bool
		}{"the object": {here, row.over}, "nothing": {nil, row.absent}} {
			err := row.cond.CheckWrite("k", c.info)
			if (err == nil) != c.want || err != nil && CodeOf(err) != CodePreconditionFailed {
				t.Errorf("%s over %s: CheckWrite = %v, want that it holds: %t", name, what, err, c.want)
			}
			if err != nil && c.info != nil && InfoOf(err) == nil {
				t.Errorf("%s over %s: the error has no Info", name, what)
			}
		}
	}
}

func TestIdentityIsStrongTagAndLengthAndTimeOfForeigners(t *testing.T) {
	a := Info{Size: 10, ETag: `"x"`, ModTime: baseTime}
	for name, row := range map[string]struct {
		change func(b *Info)
		want   bool
	}{
		"the same":                       {func(*Info) {}, true},
		"another tag":                    {func(b *Info) { b.ETag = `"y"` }, false},
		"another length":                 {func(b *Info) { b.Size = 11 }, false},
		"a time within the same second":  {func(b *Info) { b.ModTime = baseTime.Add(time.Millisecond) }, true},
		"another time":                   {func(b *Info) { b.ModTime = baseTime.Add(time.Second) }, false},
		"a time that nobody knows":       {func(b *Info) { b.ModTime = time.Time{} }, true},
		"another time, one tag stored":   {func(b *Info) { b.ModTime, b.ETagStored = baseTime.Add(time.Second), true }, false},
		"a stored tag of the same time":  {func(b *Info) { b.ETagStored = true }, true},
		"no tag":                         {func(b *Info) { b.ETag = "" }, false},
		"a weak tag with the same words": {func(b *Info) { b.ETag = `W/"x"` }, false},
	} {
		b := a
		row.change(&b)
		if SameIdentity(&a, &b) != row.want || SameIdentity(&b, &a) != row.want {
			t.Errorf("%s: SameIdentity = %t, want %t both ways", name, SameIdentity(&a, &b), row.want)
		}
	}
	stored, later := a, a
	stored.ETagStored, later.ETagStored, later.ModTime = true, true, baseTime.Add(time.Hour)
	sum := Digests{SHA256: []byte("the sum of the bytes")}
	digested, digestedLater := Info{Size: 1, ETag: `"a"`, ModTime: stored.ModTime, Digests: sum}, Info{Size: 1, ETag: `"a"`, ModTime: stored.ModTime.Add(time.Hour), Digests: sum}
	if !SameIdentity(&digested, &digestedLater) {
		t.Error("copies of equal ETag, length and SHA-256 are not the same, though only their times differ")
	}
	digestedLater.Digests.SHA256 = []byte("another sum")
	if SameIdentity(&digested, &digestedLater) {
		t.Error("copies of another SHA-256 and another time are the same")
	}
	if !SameIdentity(&stored, &later) {
		t.Error("SameIdentity of two stored tags depends on time")
	}
	weak, none := Info{Size: 1, ETag: `W/"x"`}, Info{Size: 1}
	unknown := Info{Size: -1, ETag: `"x"`}
	if SameIdentity(&weak, &weak) || SameIdentity(&none, &none) || SameIdentity(&unknown, &unknown) {
		t.Error("SameIdentity without a strong tag and a length")
	}
}

func TestStrongTags(t *testing.T) {
	for tag, want := range map[string]bool{`"a"`: true, `""`: true, `W/"a"`: false, "": false, "a": false, `"a`: false, `"a"b`: false, ` "a"`: false, `"a b"`: false, `"a" `: false} {
		if got := IsStrong(tag); got != want {
			t.Errorf("IsStrong(%q) = %t, want %t", tag, got, want)
		}
	}
}
