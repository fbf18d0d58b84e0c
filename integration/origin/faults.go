package origin

import (
	"net/http"
	"time"
)

// Faults says how an origin misbehaves. The zero value is a well-behaved one.
// Offsets count bytes of the answer's body; 0 switches the fault off.
type Faults struct {
	// Only narrows the faults to the requests it returns true for. Default: all.
	Only func(*http.Request) bool
	// Times ends the faults after so many requests that met them. Default: no end.
	Times int

	// Delay is how long the origin waits before it answers at all.
	Delay time.Duration
	// Hang makes the origin read the request and never answer it.
	Hang bool
	// Drop resets the connection in place of an answer.
	Drop bool
	// Early answers with this status at once and never reads the request's body.
	Early int
	// Status answers with this status, Body and Header in place of the object.
	Status int
	// Body is the answer's body when Status is set.
	Body string
	// Header is added to every answer.
	Header http.Header
	// Redirect answers 302 to this location.
	Redirect string

	// ResetAfter resets the connection (RST) after so many body bytes.
	ResetAfter int64
	// CutAfter closes the connection in an orderly way (FIN) after so many body bytes.
	CutAfter int64
	// StallAfter goes silent after so many body bytes and keeps the connection.
	StallAfter int64
	// Drip sends the body in pieces of this many bytes, with DripEvery between them.
	Drip int64
	// DripEvery is the pause between two pieces. Default: 10ms.
	DripEvery time.Duration

	// IgnoreRange answers 200 with the whole body whatever range was asked for.
	IgnoreRange bool
	// Shift answers a range with bytes that start this much later, and says so.
	Shift int64
	// ShortBy declares a Content-Length this much longer than the body that comes.
	ShortBy int64
	// Chunked sends no Content-Length.
	Chunked bool
	// Gzip sends the body gzip-coded, whatever the request accepts.
	Gzip bool
	// ETag chooses the entity tags of the answers. Default: ETagFixed.
	ETag ETagMode
	// NoLastModified leaves the modification time out.
	NoLastModified bool
}

// ETagMode is the kind of entity tags an origin sends.
type ETagMode int

// The kinds of entity tags.
const (
	ETagFixed    ETagMode = iota // the object's own, strong
	ETagChanging                 // strong, another one on each answer
	ETagWeak                     // W/"..."
	ETagUnquoted                 // the bare word, as some servers send it
	ETagNone                     // none at all
)

// defaultDripEvery is the pause of a drip that names none.
const defaultDripEvery = 10 * time.Millisecond

// applies tells whether the faults are meant for r and counts the request.
// The origin's lock must be held.
func (f *Faults) applies(r *http.Request, used int) bool {
	if f.Times > 0 && used >= f.Times {
		return false
	}
	return f.Only == nil || f.Only(r)
}
