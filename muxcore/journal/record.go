package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
)

// version of the file's format.
const version = 1

// maxLine is the longest line that is taken for one.
const maxLine = 1 << 20

// anyBackend, as the name of a backend or of a scope, stands for all.
const anyBackend = "*"

// record is a line of the file: the beginning of it, the state of a key, or the backends of a scope to be compared in full.
type record struct {
	Number   uint64   `json:"n"`                // from 1, without a gap
	Version  int      `json:"version,omitzero"` // of the first line
	Last     uint64   `json:"last,omitzero"`    // of the first line: the highest sequence number given out
	Scope    string   `json:"s,omitempty"`
	Key      string   `json:"k,omitempty"`
	Mark     *Mark    `json:"m,omitempty"`    // of Key; nil: nothing is left to remember
	Doubtful []string `json:"full,omitempty"` // of Scope, where there is no key
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendTo encodes the record as a line.
func (r *record) appendTo(buf []byte) []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic("journal: " + err.Error()) // strings and numbers
	}
	return fmt.Appendf(buf, "%08x %s\n", crc32.Checksum(text, castagnoli), text)
}

var errBadLine = errors.New("bad line")

// parseLine decodes a line, without its end.
func parseLine(line []byte) (*record, error) {
	sum, text, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(sum) != 8 {
		return nil, errBadLine
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || crc32.Checksum(text, castagnoli) != uint32(want) {
		return nil, errBadLine
	}
	r := new(record)
	if err := json.Unmarshal(text, r); err != nil || r.Number == 0 || r.Key == "" && r.Mark != nil {
		return nil, errBadLine
	}
	return r, nil
}

// content is what a file says.
type content struct {
	seq     uint64
	lines   uint64
	scopes  map[string]*scopeContent
	damaged bool // something is missing that was written to its end: what stood before is not to be relied on
	torn    bool // the last line was not written to its end
}

type scopeContent struct {
	marks    map[string]Mark
	doubtful []string
	told     bool // that these are all
}

// errVersion is what a file from the future is.
var errVersion = errors.New("written by a newer version")

// parse reads a file. The only errors are those of src, and a version that is unknown.
func parse(src io.Reader) (*content, error) {
	c := &content{scopes: make(map[string]*scopeContent)}
	in := bufio.NewReaderSize(src, 64<<10)
	bad, broken := false, false // since the last good line: anything, a line that was written to its end
	for {
		line, whole, err := readLine(in)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return nil, err
		}
		if len(line) > 0 || whole {
			r, lineErr := parseLine(line)
			if lineErr != nil || !whole {
				bad, broken = true, broken || whole
			} else if err := c.take(r, bad); err != nil {
				return nil, err
			} else {
				bad, broken = false, false
			}
		}
		if ended {
			if c.torn = bad; broken { // somebody may have been told that it is there
				c.damaged = true
				clear(c.scopes)
			}
			return c, nil
		}
	}
}

// readLine reads up to the end of a line, of which it gives back at most maxLine bytes. whole says that the end was there.
func readLine(in *bufio.Reader) (line []byte, whole bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if room := maxLine - len(line); len(part) > room {
			line = append(line, part[:room]...)
		} else {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		line, whole = bytes.CutSuffix(line, []byte{'\n'})
		return line, whole || err == nil, err
	}
}

// take takes in a good line. bad says that lines before it were not.
func (c *content) take(r *record, bad bool) error {
	first := c.lines == 0 && !bad
	if first && r.Version > version {
		return errVersion
	}
	if bad || r.Number != c.lines+1 || first && r.Version == 0 {
		c.damaged = true
		clear(c.scopes)
	}
	c.lines = r.Number
	c.seq = max(c.seq, r.Last)
	switch {
	case r.Version != 0:
		return nil
	case r.Key == "":
		c.scope(r.Scope).doubtful, c.scope(r.Scope).told = r.Doubtful, true
		return nil
	case r.Mark == nil:
		delete(c.scope(r.Scope).marks, r.Key)
		return nil
	}
	c.scope(r.Scope).marks[r.Key] = *r.Mark
	c.seq = max(c.seq, r.Mark.Seq)
	for _, i := range r.Mark.Open {
		c.seq = max(c.seq, i.Seq)
	}
	return nil
}

func (c *content) scope(name string) *scopeContent {
	s := c.scopes[name]
	if s == nil {
		s = &scopeContent{marks: make(map[string]Mark)}
		c.scopes[name] = s
	}
	return s
}
