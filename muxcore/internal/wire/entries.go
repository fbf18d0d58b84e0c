package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/suaveplan/caddy-storage-mux/muxcore"
)

// maxEntry is the most bytes that describe an entry.
const maxEntry = 64 << 10

// EachEntry reads an array of JSON, one entry after the other. More than MaxMembers are CodeUnsupported.
func EachEntry[T any](src io.Reader, each func(*T)) error { return eachEntry(src, MaxMembers, each) }

func eachEntry[T any](src io.Reader, most int, each func(*T)) error {
	in := Metered{Src: src, Most: maxEntry}
	dec := json.NewDecoder(&in)
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return errors.Join(err, errors.New("it is no array"))
	}
	for n := 0; dec.More(); n++ {
		if n == most {
			return &muxcore.Error{Code: muxcore.CodeUnsupported, Err: fmt.Errorf("more than %d entries", most)}
		}
		var entry T
		if err := dec.Decode(&entry); err != nil {
			return err
		}
		in.Again()
		each(&entry)
	}
	if _, err := dec.Token(); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}
