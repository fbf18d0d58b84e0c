package wire

import (
	"bytes"
	"encoding/xml"
	"errors"
)

// maxNested is how deep the elements of an answer may lie in each other. None of those that we read has more than five.
const maxNested = 32

var errNested = errors.New("elements nested too deeply")

// UnmarshalXML is xml.Unmarshal for what others send. That one remembers every element that is open, with which a few
// megabytes of "<a>" become hundreds.
func UnmarshalXML(text []byte, into any) error {
	return xml.NewTokenDecoder(&shallow{in: xml.NewDecoder(bytes.NewReader(text))}).Decode(into)
}

// shallow reads tokens up to a depth.
type shallow struct {
	in    *xml.Decoder
	depth int
}

// Token implements xml.TokenReader. The tokens are raw: whoever reads them here matches ends with starts.
func (s *shallow) Token() (xml.Token, error) {
	t, err := s.in.RawToken()
	switch t.(type) {
	case xml.StartElement:
		if s.depth++; s.depth > maxNested {
			return nil, errNested
		}
	case xml.EndElement:
		s.depth--
	}
	return t, err
}
