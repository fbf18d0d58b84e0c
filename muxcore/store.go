package muxcore

import (
	"context"
	"io"
	"iter"
	"os"
	"strings"
	"time"
)

// Store keeps objects by key. It is what backends implement and what a [Mux] is.
//
// For implementers. Every method:
//   - must be safe for concurrent use, and must refuse keys that [CheckStoreKey] refuses;
//   - must return an [*Error] that carries the code that applies and the raw cause; what has no code of its own is
//     [CodeUnavailable]. It must not decide what an error means for health: only [Classify] does;
//   - should return soon after ctx ends, with an error that wraps ctx.Err(). One that may hang on is called on a
//     goroutine that the mux abandons (see [Waits]); its late result must then still release what it holds when the
//     mux closes the body. An error for which ctx is not to blame must not wrap a context error.
//
// No method may be called after Close, where a store has one (see [Close]).
type Store interface {
	// Get opens the object for reading. Conditions are decided first, then the range, as RFC 9110 orders them; an
	// unmet condition is CodeNotModified or CodePreconditionFailed, a range past the end CodeRangeNotSatisfiable,
	// each with Error.Info. The caller must close Object.Body; what it reads is one version of the object, whole, or
	// an error: a body that ends early must not end in io.EOF. ctx governs the body as well as the call.
	Get(ctx context.Context, key string, opts GetOptions) (*Object, error)

	// Stat describes the object without its body, under the same conditions as Get.
	Stat(ctx context.Context, key string, cond Conditions) (Info, error)

	// Put makes body the object at key, whole or not at all: until it returns nil, readers see what was there
	// before. size is the body's length, or -1 if unknown; a body of another length, or one that does not match
	// opts.Digests, is CodeBodyMismatch and changes nothing. Put must not close body, must not read it after it has
	// returned, and must not take a read error for its end. It must store opts.ETag and opts.Attributes where it can hold metadata.
	Put(ctx context.Context, key string, body io.Reader, size int64, opts PutOptions) (PutResult, error)

	// Delete removes the object; an absent one is CodeKeyNotFound.
	Delete(ctx context.Context, key string, opts DeleteOptions) (DeleteResult, error)

	// List yields the entries that opts ask for, in ascending byte order, each once. An error is yielded last, with
	// a zero Entry. Breaking off the loop releases everything; ctx ends it with an error. Objects that come or go
	// meanwhile may or may not show.
	List(ctx context.Context, opts ListOptions) iter.Seq2[Entry, error]
}

// Op names an operation of a store.
type Op uint8

// The operations.
const (
	OpNone Op = iota
	OpGet
	OpStat
	OpPut
	OpDelete
	OpList
	OpHealth // an active health check
)

var opNames = [...]string{"none", "get", "stat", "put", "delete", "list", "healthcheck"}

// String is the operation's name in spans, metrics and messages.
func (o Op) String() string { return opNames[o] }

// Writes tells whether the operation changes objects.
func (o Op) Writes() bool { return o == OpPut || o == OpDelete }

// Attributes are what an uploader says about an object, kept and given back as they were. The header values are those
// of the HTTP fields of the same name.
type Attributes struct {
	ContentType        string
	CacheControl       string
	ContentDisposition string
	ContentEncoding    string
	ContentLanguage    string
	Expires            string

	// Metadata is the user's own, by lower-case name ("colour" for X-Meta-Colour). Nobody may change a map that
	// came out of a store or went into one.
	Metadata map[string]string
}

// AttributeBytes is the number of bytes in all attributes, for stores that bound their memory.
func (a *Attributes) AttributeBytes() int {
	n := len(a.ContentType) + len(a.CacheControl) + len(a.ContentDisposition) + len(a.ContentEncoding) + len(a.ContentLanguage) + len(a.Expires)
	for name, value := range a.Metadata {
		n += len(name) + len(value)
	}
	return n
}

// Digests of a whole body, each raw bytes, nil where not known.
type Digests struct {
	MD5    []byte
	SHA256 []byte
	SHA512 []byte
}

// Empty tells whether no digest is known.
func (d *Digests) Empty() bool { return d.MD5 == nil && d.SHA256 == nil && d.SHA512 == nil }

// Or is d, with what it lacks from other.
func (d *Digests) Or(other Digests) Digests {
	all := *d
	if all.MD5 == nil {
		all.MD5 = other.MD5
	}
	if all.SHA256 == nil {
		all.SHA256 = other.SHA256
	}
	if all.SHA512 == nil {
		all.SHA512 = other.SHA512
	}
	return all
}

// Via says how a mux came to an answer. A plain store leaves it zero.
type Via struct {
	Backend  string // the backend that answered, dotted through nested muxes: "eu.a"
	Attempts int    // calls made to backends until then
}

// Info describes an object.
type Info struct {
	Key     string
	Size    int64     // of the whole object, in bytes; -1 unknown
	ModTime time.Time // zero unknown; stores may hold whole seconds only

	// ETag is the entity tag with its quotes, W/ in front of a weak one; "" none. Strong ones change with every byte.
	ETag string

	// ETagStored says that ETag was given to Put by PutOptions.ETag: an identity that is the same on every backend
	// that holds it, where a foreign ETag is one backend's own word.
	ETagStored bool

	Digests Digests // what is known of the content; nothing must be computed for it
	Attributes
	Via Via

	// Record is what a Put has left on record of the object where something else says that its bytes may be others by
	// now. nil: there is no such record, or no such doubt.
	Record *Record
}

// Record is what a store has on record of an object that does not seem to be what was put any more. Whether its bytes
// are, the digests tell: a comparison reads them, and trusts no copy that was altered behind its store's back.
type Record struct {
	Info // as it was put

	// Noticed says that the object shows that somebody has been there, by its length or its time.
	Noticed bool
}

// Object is an open object. Body yields the bytes Offset to Offset+Length of it.
type Object struct {
	Info
	Offset int64
	Length int64 // -1 when Size is unknown

	// Body may offer more than Read, by way of the interfaces [BodyFile] looks for, io.WriterTo and io.Seeker.
	// It is for one goroutine at a time; Close may be called from any, and more than once.
	Body io.ReadCloser
}

// Range selects a part of an object. The zero value is the whole.
type Range struct {
	Offset int64 // from here; negative: the last -Offset bytes, or the whole if it is shorter
	Length int64 // this many, or fewer if the object ends; 0: to the end
}

// GetOptions narrow a Get.
type GetOptions struct {
	Range      Range
	Conditions Conditions

	// IfRange makes Range apply only if the object still has this strong ETag, or if it is a date (as in HTTP), was
	// last modified exactly then; else the whole object is opened. "" applies Range in any case.
	IfRange string

	// Same opens only a copy of the object that it describes (see [SameIdentity]), to go on with what was begun; the range
	// must be one of it. A mux asks on until it finds one, and makes sure that it is one: a plain store may leave it to that.
	Same *Info

	elsewhere bool // a mux above has others to go on with, so that nobody need wait in here
}

// PutOptions describe what is put.
type PutOptions struct {
	Attributes

	// ETag is the identity to store with the object, a strong ETag with quotes. "": the store makes one of its own.
	ETag string

	// ModTime to store. Zero: the time of the commit.
	ModTime time.Time

	// Conditions are decided atomically with the commit: CodePreconditionFailed leaves everything as it was. A store
	// that cannot do that refuses with CodeUnsupported.
	Conditions Conditions

	// Digests are verified before the commit.
	Digests Digests
}

// PutResult describes what was put.
type PutResult struct {
	Info

	// Existed says that the key held an object before.
	Existed bool

	// Missed names the backends of a mux that should have it and do not (yet).
	Missed []string
}

// DeleteOptions narrow a Delete.
type DeleteOptions struct {
	Conditions Conditions // as in PutOptions
}

// DeleteResult describes a Delete that found the object, or could not be sure that nobody has it.
type DeleteResult struct {
	Via    Via
	Missed []string // backends of a mux that could not be asked
}

// ListOptions select what a List yields.
type ListOptions struct {
	// Prefix begins every key that is listed. It need not end in a slash.
	Prefix string

	// Delimiter rolls keys up: all that have it after Prefix become one entry, their common beginning up to and
	// including the first one. "" none.
	Delimiter string

	// After leaves out every entry (key or rolled-up prefix) that is not greater.
	After string

	// Limit is the most entries to yield, 0 all.
	Limit int

	// Details asks for all that Stat tells of each object, where the store has it, even if that costs a look at each.
	// Without it, entries tell what comes for nothing: Key at least, and Size -1 where it does not.
	Details bool

	// OnDegraded, if set, is told of each backend of a mux whose part of the list is missing.
	OnDegraded func(backend string, err error)
}

// RollUp is the rolled-up prefix that a key below Prefix is listed as, if it is one.
func (o *ListOptions) RollUp(key string) (prefix string, ok bool) {
	if o.Delimiter == "" || !strings.HasPrefix(key, o.Prefix) {
		return "", false
	}
	i := strings.Index(key[len(o.Prefix):], o.Delimiter)
	if i < 0 {
		return "", false
	}
	return key[:len(o.Prefix)+i+len(o.Delimiter)], true
}

// Entry is one entry of a list: an object, or keys rolled up.
type Entry struct {
	Info          // of a rolled-up entry only Key is set
	IsPrefix bool // Key is a prefix that other keys share
}

// Capabilities say what a store can do, as far as it knows by now. A mux does not ask for what its backend cannot, and goes on to
// the next where a call is refused with CodeUnsupported all the same.
type Capabilities struct {
	Write            bool // Put and Delete
	List             bool
	ConditionalWrite bool // PutOptions.Conditions and DeleteOptions.Conditions, atomically
	Metadata         bool // keeps PutOptions.ETag, ModTime and Attributes
	Range            bool // opens a part of an object without reading what is before it
	Digests          bool // tells digests of what it holds, where it was given them or has its own
	Purge            bool // a content delivery network stands in front of it: the store is a [CDN]
	Public           bool // a content delivery network serves its objects to anyone, whether it can be told to purge or not
	Locks            bool // its conditional writes decide between all who write there, whatever their process: locks can live in it
}

// Waits says how a store's calls behave while they wait for something.
type Waits uint8

// How calls wait.
const (
	WaitsUnbounded   Waits = iota // may hang beyond the end of ctx: called on a goroutine that can be abandoned
	WaitsWithContext              // return promptly when ctx ends, body reads as well
	WaitsNever                    // wait for nothing: called directly, without a timer
)

// Optional abilities of a store.
type (
	// Capable is a store that cannot do everything. Others are taken to. It is asked for each operation, so it must answer at
	// once, of what it has learnt so far.
	Capable interface{ Capabilities() Capabilities }

	// Waiter is a store that says how its calls wait. Others may hang.
	Waiter interface{ Waits() Waits }

	// KeyChecker is a store with a narrower key rule than CheckStoreKey. The error must be an *Error with CodeInvalidKey.
	KeyChecker interface{ CheckKey(key string) error }

	// Prober is a store that has a cheap request to tell whether it is well. Without it, the mux asks for a key.
	Prober interface {
		Probe(ctx context.Context) error
	}

	// Peeker is a store that can answer some reads without waiting for anything, as from a cache. A mux peeks before it gets: ok tells
	// whether that is the answer. The body must not wait either.
	Peeker interface {
		Peek(key string, opts GetOptions) (obj *Object, ok bool, err error)
	}

	// FileBody is a body whose bytes are those of a file from its current position on, for zero-copy. The file
	// stays the body's: whoever takes it must not close it, and must not read past Object.Length.
	FileBody interface{ File() *os.File }
)

// CapabilitiesOf asks s what it can do.
func CapabilitiesOf(s Store) Capabilities {
	if c, ok := s.(Capable); ok {
		return c.Capabilities()
	}
	return Capabilities{Write: true, List: true, ConditionalWrite: true, Metadata: true, Range: true, Digests: true}
}

// WaitsOf asks s how its calls wait.
func WaitsOf(s Store) Waits {
	if w, ok := s.(Waiter); ok {
		return w.Waits()
	}
	return WaitsUnbounded
}

// CheckKeyOf applies the key rule of s.
func CheckKeyOf(s Store, key string) error {
	if c, ok := s.(KeyChecker); ok {
		return c.CheckKey(key)
	}
	return CheckStoreKey(key)
}

// Probe asks s for a sign of life by the cheapest means that it has: its own, else a Stat of key, for which an
// absent object is as good as a present one.
func Probe(ctx context.Context, s Store, key string) error {
	if p, ok := s.(Prober); ok && key == "" {
		return p.Probe(ctx)
	}
	if key == "" {
		key = "health"
	}
	_, err := s.Stat(ctx, key, Conditions{})
	if Classify(ctx, err) == ClassSemantic {
		return nil
	}
	return err
}

// BodyFile is the file behind body, or nil.
func BodyFile(body io.Reader) *os.File {
	switch b := body.(type) {
	case *os.File:
		return b
	case FileBody:
		return b.File()
	}
	return nil
}

// Close releases what s holds, where it holds anything.
func Close(s Store) error {
	if c, ok := s.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
