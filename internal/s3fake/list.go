package s3fake

import (
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// listing is a page of a list.
type listing struct {
	XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
	EncodingType          string   `xml:",omitempty"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listed
	CommonPrefixes        []rolled
}

type listed struct {
	Key  string
	ETag string
	Size int
}

type rolled struct{ Prefix string }

// list serves a page. Its order is that of the bytes, the token of the next one is where that begins.
func (s *Service) list(w http.ResponseWriter, q url.Values, objects map[string]*object) *Refusal {
	limit, err := strconv.Atoi(q.Get("max-keys"))
	if err != nil || limit < 0 || q.Get("list-type") != "2" {
		return Refuse(http.StatusBadRequest, "InvalidArgument", "Argument maxKeys must be an integer between 0 and 2147483647")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noList {
		return denied("AccessDenied", "Access Denied")
	}
	l := listing{EncodingType: q.Get("encoding-type")}
	show := func(text string) string {
		if l.EncodingType == "url" {
			return url.QueryEscape(text)
		}
		return text
	}
	after, prefix, delimiter := q.Get("start-after"), q.Get("prefix"), q.Get("delimiter")
	if token := q.Get("continuation-token"); token != "" {
		var ok bool
		if after, ok = strings.CutPrefix(token, "after:"); !ok {
			return Refuse(http.StatusBadRequest, "InvalidArgument", "The continuation token provided is incorrect")
		}
	}
	n, last, lastRolled := 0, after, ""
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if !strings.HasPrefix(key, prefix) || key <= after {
			continue
		}
		sub := ""
		if i := strings.Index(key[len(prefix):], delimiter); delimiter != "" && i >= 0 {
			if sub = key[:len(prefix)+i+len(delimiter)]; sub == lastRolled {
				last = key
				continue
			}
		}
		if n == min(limit, 1000) {
			l.IsTruncated, l.NextContinuationToken = true, "after:"+last
			break
		}
		n, last, lastRolled = n+1, key, sub
		if sub != "" {
			l.CommonPrefixes = append(l.CommonPrefixes, rolled{show(sub)})
		} else {
			l.Contents = append(l.Contents, listed{show(key), objects[key].tag, len(objects[key].body)})
		}
	}
	document(w, l)
	return nil
}
