package wire

import (
	"bytes"
	"encoding/xml"
	"errors"
)

// What an answer may be made of. None of those that we read has elements more than five deep, or an entry of more than a few dozen.
const (
	maxNested = 32
	maxToken  = 64 << 10 // bytes of a tag, with its attributes, or of a text
	maxTokens = 1 << 18
	maxQuoted = 300 // bytes of an answer in an error
)

var (
	errNested = errors.New("elements nested too deeply")
	errTokens = errors.New("too many elements")
)

// UnmarshalXML is xml.Unmarshal for what others send. That one remembers every element that is open and every attribute, with which
// a few megabytes of tags or attributes become hundreds, and quotes whatever it cannot read.
func UnmarshalXML(text []byte, into any) error {
	in := &Metered{Src: bytes.NewReader(text), Most: maxToken}
	err := xml.NewTokenDecoder(&bounded{meter: in, in: xml.NewDecoder(in)}).Decode(into)
	if err != nil && len(err.Error()) > maxQuoted {
		return errors.New(Clip(err.Error(), maxQuoted))
	}
	return err
}

// bounded reads tokens within bounds.
type bounded struct {
	meter *Metered
	in    *xml.Decoder
	depth int
	count int
}

// Token implements xml.TokenReader. The tokens are raw: whoever reads them here matches ends with starts.
func (b *bounded) Token() (xml.Token, error) {
	b.meter.Again()
	t, err := b.in.RawToken()
	if b.count++; b.count > maxTokens {
		return nil, errTokens
	}
	switch t.(type) {
	case xml.StartElement:
		if b.depth++; b.depth > maxNested {
			return nil, errNested
		}
	case xml.EndElement:
		b.depth--
	}
	return t, err
}
