package wire

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// A few megabytes of elements that never end cost hundreds while they were read.
func TestElementsThatLieTooDeepAreRefused(t *testing.T) {
	var doc struct {
		A string `xml:"a"`
	}
	if err := UnmarshalXML([]byte(`<x xmlns="urn:y"><a>1</a><b><a>2</a></b></x>`), &doc); err != nil || doc.A != "1" {
		t.Errorf("UnmarshalXML = %q, %v", doc.A, err)
	}
	if err := UnmarshalXML([]byte(strings.Repeat("<a>", 1<<20)), &doc); !errors.Is(err, errNested) {
		t.Errorf("UnmarshalXML of a million starts = %v, want %v", err, errNested)
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
