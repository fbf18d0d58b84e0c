// Package bunnystore makes a storage zone of Bunny's Edge Storage a store.
//
// # What is kept, and what is not
//
// A zone keeps bytes, their SHA-256, a content type and the time of the last change. It keeps no identity, no other
// attributes and no user metadata: Capabilities say so. The ETag of an object is made of its SHA-256, in the very form in
// which a mux names a body by its digest; so an object whose identity is its SHA-256 has the same ETag here as on every
// other backend. One with a random identity (a large upload without a declared digest) has not, and its Last-Modified is
// Bunny's in any case.
//
// # Reads
//
// Bunny describes an object by the method DESCRIBE, and what it says with a GET is not documented. So a Get is a DESCRIBE, which
// decides the conditions, and a GET. That the bytes are those that were described is made sure: a small object is read whole first,
// and else the object is described once more when the GET has begun, and must be the same. The last bytes of a whole object come
// only when its SHA-256 is right.
//
// # Writes
//
// With a PUT goes the SHA-256, in upper-case hexadecimal, if it is known before the body is sent: it was declared, or the body is small. Bunny then
// refuses what does not match. A 201 has been seen with nothing stored, at the endpoint of another region; Settings.VerifyWrites looks after every PUT.
// What is put without a type, and with no extension that names one, is stored as application/octet-stream; type=unknown, and comes back without.
// A body with a Content-Encoding is refused: without it nobody could read the copy.
// There are no conditional writes. An object and a folder cannot have one name; a DELETE of a folder would delete all that is in it, so
// before each the key is looked at.
//
// # Lists
//
// Bunny lists a folder at a time. Lists walk the folders in order, and read each whole. Empty folders do not show.
package bunnystore
