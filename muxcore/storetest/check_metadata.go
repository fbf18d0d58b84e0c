package storetest

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var metadataChecks = []check{
	{"attributes come back as they were", needWrite | needMetadata, checkAttributes},
	{"a stored identity comes back as it was", needWrite | needMetadata, checkIdentity},
	{"an overwrite takes the old attributes away", needWrite | needMetadata, checkAttributesGo},
	{"a stored identity decides conditions", needWrite | needMetadata, checkIdentityDecides},
	{"a content coding is kept, or the body refused", needWrite, checkCoding},
	{"a store's own ETag is not a stored one", needWrite, checkOwnETag},
}

// attributesDiff says where two sets of attributes differ.
func attributesDiff(a, b *muxcore.Attributes) string {
	var diff []string
	for _, f := range []struct{ name, a, b string }{
		{"ContentType", a.ContentType, b.ContentType},
		{"CacheControl", a.CacheControl, b.CacheControl},
		{"ContentDisposition", a.ContentDisposition, b.ContentDisposition},
		{"ContentEncoding", a.ContentEncoding, b.ContentEncoding},
		{"ContentLanguage", a.ContentLanguage, b.ContentLanguage},
		{"Expires", a.Expires, b.Expires},
	} {
		if f.a != f.b {
			diff = append(diff, fmt.Sprintf("%s %q and %q", f.name, f.a, f.b))
		}
	}
	if !maps.Equal(a.Metadata, b.Metadata) {
		diff = append(diff, fmt.Sprintf("Metadata %q and %q", a.Metadata, b.Metadata))
	}
	return strings.Join(diff, "; ")
}

func fullAttributes() muxcore.Attributes {
	return muxcore.Attributes{
		ContentType:        `text/x-suite; charset="utf-8"`,
		CacheControl:       "public, max-age=31536000, immutable",
		ContentDisposition: `attachment; filename="a b.txt"; filename*=UTF-8''%e2%82%ac.txt`,
		ContentEncoding:    "gzip",
		ContentLanguage:    "de, en-GB",
		Expires:            "Thu, 01 Dec 2044 16:00:00 GMT",
		Metadata:           map[string]string{"colour": "blue", "empty-not": `q"uo\te; x=1, y`, "long": strings.Repeat("m", 1500)},
	}
}

func checkAttributes(p *probe) {
	want := fullAttributes()
	res := p.put("full.bin", "attributes", muxcore.PutOptions{Attributes: want})
	if diff := attributesDiff(&res.Attributes, &want); diff != "" {
		p.errorf("Put gives and was given: %s", diff)
	}
	info := p.holds("full.bin", "attributes")
	if diff := attributesDiff(&info.Attributes, &want); diff != "" {
		p.errorf("Stat gives and Put was given: %s", diff)
	}
	for _, one := range []muxcore.Attributes{
		{ContentType: "image/avif"},
		{CacheControl: "no-store"},
		{ContentDisposition: "inline"},
		{ContentEncoding: "br"},
		{ContentLanguage: "mi"},
		{Expires: "0"},
		{Metadata: map[string]string{"only": "this"}},
	} {
		p.put("one.txt", "attributes", muxcore.PutOptions{Attributes: one})
		info := p.holds("one.txt", "attributes")
		if one.ContentType == "" {
			one.ContentType = info.ContentType // by extension, as the store likes
		}
		if diff := attributesDiff(&info.Attributes, &one); diff != "" {
			p.errorf("Stat gives and Put was given: %s", diff)
		}
	}
}

func checkIdentity(p *probe) {
	const tag = `"suite-identity/1"`
	p.put("identified", "bytes", muxcore.PutOptions{ETag: tag, ModTime: aWhileAgo})
	info := p.holds("identified", "bytes")
	if info.ETag != tag || !info.ETagStored {
		p.errorf("Stat: ETag = %s, ETagStored = %t, want %s, true", info.ETag, info.ETagStored, tag)
	}
	if d := info.ModTime.Sub(aWhileAgo).Abs(); d > p.h.TimeResolution {
		p.errorf("Stat: ModTime = %v, want %v (resolution %v)", info.ModTime, aWhileAgo, p.h.TimeResolution)
	}
	future := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	p.put("identified", "other bytes", muxcore.PutOptions{ETag: tag, ModTime: future})
	if info := p.holds("identified", "other bytes"); info.ModTime.Sub(future).Abs() > p.h.TimeResolution {
		p.errorf("Stat: ModTime = %v, want %v", info.ModTime, future)
	}
}

func checkAttributesGo(p *probe) {
	p.put("again.bin", "one", muxcore.PutOptions{Attributes: fullAttributes(), ETag: `"old"`, ModTime: aWhileAgo})
	p.put("again.bin", "two", muxcore.PutOptions{Attributes: muxcore.Attributes{ContentType: "text/plain"}})
	info := p.holds("again.bin", "two")
	if diff := attributesDiff(&info.Attributes, &muxcore.Attributes{ContentType: "text/plain"}); diff != "" {
		p.errorf("after an overwrite Stat gives, and Put was given: %s", diff)
	}
	if info.ETag == `"old"` || info.ETagStored {
		p.errorf("after an overwrite without identity: ETag = %s, ETagStored = %t", info.ETag, info.ETagStored)
	}
	if info.ModTime.Equal(aWhileAgo) {
		p.errorf("after an overwrite the old modification time is still there")
	}
	p.put("again.bin", "one", muxcore.PutOptions{Attributes: fullAttributes(), ETag: `"old"`})
	p.remove("again.bin")
	p.put("again.bin", "three", muxcore.PutOptions{})
	if info := p.holds("again.bin", "three"); info.ETagStored || info.CacheControl != "" || info.Metadata["colour"] != "" {
		p.errorf("after a delete the old attributes are still there: %+v", info)
	}
}

func checkIdentityDecides(p *probe) {
	const tag = `"the-identity"`
	p.put("identified", "0123456789", muxcore.PutOptions{ETag: tag, ModTime: aWhileAgo})
	_, _, err := p.get(p.ctx, "identified", muxcore.GetOptions{Conditions: muxcore.Conditions{IfNoneMatch: tag}})
	p.code("Get with If-None-Match of the stored ETag", err, muxcore.CodeNotModified)
	if info := muxcore.InfoOf(err); info != nil && !info.ETagStored {
		p.errorf("Get with If-None-Match of the stored ETag: Error.Info.ETagStored = false")
	}
	_, got, err := p.get(p.ctx, "identified", muxcore.GetOptions{IfRange: tag, Range: muxcore.Range{Offset: 8}})
	if err != nil || got != "89" {
		p.errorf("Get with If-Range of the stored ETag = %q, %v, want 89", got, err)
	}
	_, _, err = p.get(p.ctx, "identified", muxcore.GetOptions{Conditions: muxcore.Conditions{IfModifiedSince: aWhileAgo.Truncate(time.Second)}})
	p.code("Get with If-Modified-Since of the stored time", err, muxcore.CodeNotModified)
	if p.caps.ConditionalWrite {
		p.refusesPut("identified", muxcore.Conditions{IfNoneMatch: tag})
		p.put("identified", "next", muxcore.PutOptions{ETag: `"next"`, Conditions: muxcore.Conditions{IfMatch: tag}})
		p.holds("identified", "next")
	}
}

// checkCoding: a coded body that comes back without its coding is bytes that nobody can read.
func checkCoding(p *probe) {
	for _, key := range []string{"coded", "coded/deep", "coded"} {
		opts := muxcore.PutOptions{Attributes: muxcore.Attributes{ContentEncoding: "gzip"}}
		_, err := p.store.Put(p.ctx, key+".txt", strings.NewReader("no gzip at all"), -1, opts)
		if errors.Is(err, muxcore.ErrUnsupported) {
			p.absent(key + ".txt")
			continue
		}
		if err != nil {
			p.errorf("Put with a Content-Encoding: %v", err)
			continue
		}
		o, got, err := p.get(p.ctx, key+".txt", muxcore.GetOptions{})
		if err != nil || got != "no gzip at all" || o.ContentEncoding != "gzip" {
			p.errorf("Put with Content-Encoding gzip, and Get gives %q, %v of %+v", got, err, o)
		}
		if info, err := p.store.Stat(p.ctx, key+".txt", muxcore.Conditions{}); err != nil || info.ContentEncoding != "gzip" {
			p.errorf("Put with Content-Encoding gzip, and Stat gives %q, %v", info.ContentEncoding, err)
		}
	}
}

func checkOwnETag(p *probe) {
	p.put("own", "bytes", muxcore.PutOptions{})
	if info := p.holds("own", "bytes"); info.ETagStored {
		p.errorf("Put without an ETag, and ETagStored = true (ETag %s)", info.ETag)
	}
}
