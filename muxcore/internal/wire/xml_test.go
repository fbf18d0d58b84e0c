package wire

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// A few megabytes of elements that never end, of attributes, or of entries with nothing in them, cost hundreds while they were read.
func TestAnAnswerOfXMLIsReadWithinBounds(t *testing.T) {
	var doc struct {
		A string `xml:"a"`
	}
	if err := UnmarshalXML([]byte(`<x xmlns="urn:y"><a>1</a><b><a>2</a></b></x>`), &doc); err != nil || doc.A != "1" {
		t.Errorf("UnmarshalXML = %q, %v", doc.A, err)
	}
	if err := UnmarshalXML([]byte(strings.Repeat("<a>", 1<<20)), &doc); !errors.Is(err, errNested) {
		t.Errorf("UnmarshalXML of a million starts = %v, want %v", err, errNested)
	}
	for name, text := range map[string]string{
		"attributes":       "<x " + strings.Repeat("a='' ", maxToken) + "/>",
		"entries":          "<x>" + strings.Repeat("<c/>", maxTokens) + "</x>",
		"a long text":      "<x><a>" + strings.Repeat("x", 2*maxToken) + "</a></x>",
		"no number at all": "<x><n>" + strings.Repeat("x", 1000) + "</n></x>",
	} {
		var doc struct {
			A string `xml:"a"`
			N int    `xml:"n"`
		}
		if err := UnmarshalXML([]byte(text), &doc); err == nil || len(err.Error()) > maxQuoted {
			t.Errorf("UnmarshalXML of %s = %.500v", name, err)
		}
	}
	for _, text := range []string{"<a></b>", "<a>", "", "<a/><a/>x", "<a xmlns:p=''><p:b/></a>"} {
		if err := UnmarshalXML([]byte(text), &doc); err == nil && strings.Contains(text, "</b>") {
			t.Errorf("UnmarshalXML(%q) succeeds", text)
		}
	}
}

func TestAnEntryIsReadUpToItsLimit(t *testing.T) {
	m := Metered{Src: strings.NewReader(strings.Repeat("x", 25)), Most: 10}
	if n, err := io.Copy(io.Discard, &m); n != 10 || err == nil {
		t.Errorf("%d bytes, %v, want 10 and an error", n, err)
	}
	m.Again()
	if n, err := io.Copy(io.Discard, &m); n != 10 || err == nil {
		t.Errorf("%d bytes, %v, want 10 more and an error", n, err)
	}
}
