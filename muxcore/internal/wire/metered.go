package wire

import (
	"fmt"
	"io"
)

// Metered refuses to read more than Most bytes for one entry of a list, or another piece of which a decoder would have to remember all.
type Metered struct {
	Src  io.Reader
	Most int

	used int
}

// Again begins another entry.
func (m *Metered) Again() { m.used = 0 }

// Read implements io.Reader.
func (m *Metered) Read(p []byte) (int, error) {
	if m.used >= m.Most {
		return 0, fmt.Errorf("more than %d bytes in one piece", m.Most)
	}
	n, err := m.Src.Read(p[:min(len(p), m.Most-m.used)])
	m.used += n
	return n, err
}
