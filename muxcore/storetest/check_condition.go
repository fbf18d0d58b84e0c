package storetest

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

var conditionChecks = []check{
	{"conditions of reads follow RFC 9110", needObjects, checkReadConditions},
	{"conditions are decided before the range", needObjects, checkConditionsFirst},
}

var conditionalWriteChecks = []check{
	{"conditions of writes hold or change nothing", needWrite | needConditional, checkWriteConditions},
	{"a store that cannot write conditionally refuses", needWrite, checkUnconditional},
	{"one of many writers creates an object", needWrite | needConditional, checkOneCreator},
	{"compare and swap loses no update", needWrite | needConditional, checkCompareAndSwap},
	{"one of many conditional deletes succeeds", needWrite | needConditional, checkOneDeleter},
}

// httpDate is a time as HTTP writes it, some seconds off.
func httpDate(t time.Time, seconds int) string {
	return t.Add(time.Duration(seconds) * time.Second).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")
}

func checkReadConditions(p *probe) {
	p.put("object", "conditional", muxcore.PutOptions{})
	info := p.holds("object", "conditional")
	const other = `"other"`
	type row struct {
		name string
		cond muxcore.Conditions
		want muxcore.Code
	}
	rows := []row{
		{"no condition", muxcore.Conditions{}, ""},
		{"If-Match: *", muxcore.Conditions{IfMatch: "*"}, ""},
		{"If-Match of another", muxcore.Conditions{IfMatch: other}, muxcore.CodePreconditionFailed},
		{"If-None-Match: *", muxcore.Conditions{IfNoneMatch: "*"}, muxcore.CodeNotModified},
		{"If-None-Match of another", muxcore.Conditions{IfNoneMatch: other + `, W/"more"`}, ""},
	}
	if tag := info.ETag; muxcore.IsStrong(tag) {
		rows = append(rows,
			row{"If-Match of it", muxcore.Conditions{IfMatch: tag}, ""},
			row{"If-Match of a list with it", muxcore.Conditions{IfMatch: other + ", " + tag}, ""},
			row{"If-Match of it as a weak tag", muxcore.Conditions{IfMatch: "W/" + tag}, muxcore.CodePreconditionFailed},
			row{"If-None-Match of it", muxcore.Conditions{IfNoneMatch: tag}, muxcore.CodeNotModified},
			row{"If-None-Match of it as a weak tag", muxcore.Conditions{IfNoneMatch: "W/" + tag}, muxcore.CodeNotModified},
			row{"If-None-Match of a list with it", muxcore.Conditions{IfNoneMatch: other + " ,," + tag}, muxcore.CodeNotModified},
		)
	}
	if at := info.ModTime; !at.IsZero() {
		before, after := at.Add(-time.Hour).Truncate(time.Second), at.Add(time.Hour).Truncate(time.Second)
		at = at.Truncate(time.Second)
		rows = append(rows,
			row{"If-Modified-Since its time", muxcore.Conditions{IfModifiedSince: at}, muxcore.CodeNotModified},
			row{"If-Modified-Since before", muxcore.Conditions{IfModifiedSince: before}, ""},
			row{"If-Modified-Since after", muxcore.Conditions{IfModifiedSince: after}, muxcore.CodeNotModified},
			row{"If-Unmodified-Since its time", muxcore.Conditions{IfUnmodifiedSince: at}, ""},
			row{"If-Unmodified-Since before", muxcore.Conditions{IfUnmodifiedSince: before}, muxcore.CodePreconditionFailed},
			row{"If-Match beats If-Unmodified-Since", muxcore.Conditions{IfMatch: "*", IfUnmodifiedSince: before}, ""},
			row{"If-None-Match beats If-Modified-Since", muxcore.Conditions{IfNoneMatch: other, IfModifiedSince: after}, ""},
			row{"If-Match fails before If-None-Match", muxcore.Conditions{IfMatch: other, IfNoneMatch: "*"}, muxcore.CodePreconditionFailed},
		)
	}
	for _, r := range rows {
		p.readsUnder(r.name, r.cond, r.want, info.ETag)
	}
}

// readsUnder reads the object, and nothing, under a condition: want is the code of the answer, "" for success.
func (p *probe) readsUnder(name string, cond muxcore.Conditions, want muxcore.Code, etag string) {
	_, got, err := p.get(p.ctx, "object", muxcore.GetOptions{Conditions: cond})
	_, serr := p.store.Stat(p.ctx, "object", cond)
	for call, err := range map[string]error{"Get": err, "Stat": serr} {
		if want == "" {
			if err != nil {
				p.errorf("%s, %s = %v, want success", call, name, err)
			}
			continue
		}
		if p.code(call+", "+name, err, want) {
			if known := muxcore.InfoOf(err); known == nil || known.ETag != etag {
				p.errorf("%s, %s: Error.Info = %+v, want the object's", call, name, known)
			}
		}
	}
	if want == "" && got != "conditional" {
		p.errorf("Get, %s = %q", name, got)
	}
	_, err = p.store.Stat(p.ctx, "absent", cond)
	p.code("Stat of nothing, "+name, err, muxcore.CodeKeyNotFound)
}

func checkConditionsFirst(p *probe) {
	p.put("object", "0123456789", muxcore.PutOptions{})
	past := muxcore.Range{Offset: 100}
	_, _, err := p.get(p.ctx, "object", muxcore.GetOptions{Range: past, Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
	p.code("Get with If-None-Match: * and a range past the end", err, muxcore.CodeNotModified)
	_, _, err = p.get(p.ctx, "object", muxcore.GetOptions{Range: past, Conditions: muxcore.Conditions{IfMatch: `"x"`}})
	p.code("Get with a wrong If-Match and a range past the end", err, muxcore.CodePreconditionFailed)
	_, _, err = p.get(p.ctx, "object", muxcore.GetOptions{Range: past, Conditions: muxcore.Conditions{IfMatch: "*"}})
	p.code("Get with If-Match: * and a range past the end", err, muxcore.CodeRangeNotSatisfiable)
}

func checkWriteConditions(p *probe) {
	p.refusesPut("fresh", muxcore.Conditions{IfMatch: "*"})
	p.refusesPut("fresh", muxcore.Conditions{IfMatch: `"x"`})
	p.absent("fresh")
	_, err := p.store.Delete(p.ctx, "fresh", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: "*"}})
	p.code("Delete of nothing with If-Match: *", err, muxcore.CodeKeyNotFound, muxcore.CodePreconditionFailed)

	p.put("fresh", "one", muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
	first := p.holds("fresh", "one")
	p.refusesPut("fresh", muxcore.Conditions{IfNoneMatch: "*"})
	p.refusesPut("fresh", muxcore.Conditions{IfMatch: `"other"`})
	p.holds("fresh", "one")
	p.put("fresh", "two", muxcore.PutOptions{Conditions: muxcore.Conditions{IfMatch: "*"}})
	second := p.holds("fresh", "two")
	if !muxcore.IsStrong(first.ETag) || first.ETag == second.ETag {
		p.errorf("ETags of two versions are %s and %s: conditions need strong ones that differ", first.ETag, second.ETag)
		return
	}
	p.refusesPut("fresh", muxcore.Conditions{IfMatch: first.ETag})
	p.refusesPut("fresh", muxcore.Conditions{IfNoneMatch: second.ETag})
	p.put("fresh", "three", muxcore.PutOptions{Conditions: muxcore.Conditions{IfMatch: first.ETag + ", " + second.ETag}})
	third := p.holds("fresh", "three")

	_, err = p.store.Delete(p.ctx, "fresh", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: second.ETag}})
	p.code("Delete with a stale If-Match", err, muxcore.CodePreconditionFailed)
	p.holds("fresh", "three")
	_, err = p.store.Delete(p.ctx, "fresh", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: third.ETag}})
	if err != nil {
		p.errorf("Delete with the right If-Match = %v", err)
	}
	p.absent("fresh")
}

// refusesPut demands that a Put fails for its condition and changes nothing.
func (p *probe) refusesPut(key string, cond muxcore.Conditions) {
	_, err := p.store.Put(p.ctx, key, strings.NewReader("refused"), 7, muxcore.PutOptions{Conditions: cond})
	p.code(fmt.Sprintf("Put(%q) with %+v", key, cond), err, muxcore.CodePreconditionFailed)
}

func checkUnconditional(p *probe) {
	if p.caps.ConditionalWrite {
		return
	}
	_, err := p.store.Put(p.ctx, "new", strings.NewReader("x"), 1, muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
	p.code("Put with a condition", err, muxcore.CodeUnsupported)
	p.absent("new")
	p.put("old", "kept", muxcore.PutOptions{})
	_, err = p.store.Delete(p.ctx, "old", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: "*"}})
	p.code("Delete with a condition", err, muxcore.CodeUnsupported)
	p.holds("old", "kept")
}

const writers = 24

func checkOneCreator(p *probe) {
	for round := range Times(1, 3) {
		key := fmt.Sprintf("round/%d", round)
		var winners atomic.Int32
		var winner atomic.Int32
		p.parallel(writers, func(i int) {
			body := fmt.Sprintf("writer %d", i)
			_, err := p.store.Put(p.ctx, key, strings.NewReader(body), int64(len(body)),
				muxcore.PutOptions{Conditions: muxcore.Conditions{IfNoneMatch: "*"}})
			if err == nil {
				winners.Add(1)
				winner.Store(int32(i))
				return
			}
			p.code("Put with If-None-Match: * beside others", err, muxcore.CodePreconditionFailed)
		})
		if n := winners.Load(); n != 1 {
			p.errorf("%d of %d writers with If-None-Match: * succeeded, want 1", n, writers)
			continue
		}
		p.holds(key, fmt.Sprintf("writer %d", winner.Load()))
	}
}

func checkCompareAndSwap(p *probe) {
	const swappers, swaps = 4, 4
	p.put("counter", "0", muxcore.PutOptions{})
	p.parallel(swappers, func(int) {
		for done := 0; done < swaps; {
			o, got, err := p.get(p.ctx, "counter", muxcore.GetOptions{})
			if err != nil {
				p.errorf("Get beside writers = %v", err)
				return
			}
			n, _ := strconv.Atoi(got)
			next := strconv.Itoa(n + 1)
			_, err = p.store.Put(p.ctx, "counter", strings.NewReader(next), int64(len(next)),
				muxcore.PutOptions{Conditions: muxcore.Conditions{IfMatch: o.ETag}})
			switch {
			case err == nil:
				done++
			case !p.code("Put with If-Match beside others", err, muxcore.CodePreconditionFailed):
				return
			}
		}
	})
	p.holds("counter", strconv.Itoa(swappers*swaps))
}

func checkOneDeleter(p *probe) {
	p.put("doomed", "x", muxcore.PutOptions{})
	var winners atomic.Int32
	p.parallel(writers, func(int) {
		_, err := p.store.Delete(p.ctx, "doomed", muxcore.DeleteOptions{Conditions: muxcore.Conditions{IfMatch: "*"}})
		if err == nil {
			winners.Add(1)
			return
		}
		p.code("Delete with If-Match: * beside others", err, muxcore.CodeKeyNotFound, muxcore.CodePreconditionFailed)
	})
	if n := winners.Load(); n != 1 {
		p.errorf("%d of %d conditional deletes succeeded, want 1", n, writers)
	}
	p.absent("doomed")
}
