// Package swiftstore makes a container of an OpenStack Swift cluster a store, Rackspace's Cloud Files included.
//
// # Signing in
//
// Authentication is that of github.com/ncw/swift: versions 1, 2 and 3, and Rackspace's own form of version 2. A token is
// got at the first call, renewed in the background when little of its time is left, and renewed once for all who wait when
// the cluster refuses it. The request that met the 401 is then sent again, if its body can be: small ones can, and so can
// those of which nobody has read yet, as they are sent only when the cluster says 100 Continue. Everything else is sent by this
// package: ncw's own calls hold a lock while they sign in, whatever becomes of the caller's context, throw a new token away
// for the 401 of an old one, and retry.
//
// # What is kept with an object
//
// Content-Type, Content-Encoding, Content-Disposition, Content-Language, Cache-Control and Expires are Swift's own. The
// identity, the modification time, the digests and the user's metadata are one JSON record, cut into fields
// X-Object-Meta-Storage-Mux-0, -1, … of 256 bytes, as many as Swift admits in one. An object without such a record is a
// foreign one: its ETag is Swift's, the MD5 of its content.
//
// # Conditions
//
// On reads they are decided here, since Swift knows only its own ETag; a revalidation costs a HEAD. On writes Swift has
// If-None-Match: * alone, and decides it before it reads the body: of two that create a key at once, both may succeed. That
// is no condition a mux could build on, so all conditional writes are CodeUnsupported.
//
// # Large objects
//
// A manifest reads as the one object that it stands for; its ETag is not the MD5 of anything that is read, and is never
// compared with one. Deleting it deletes its segments, static ones by Swift, dynamic ones by their prefix; so does putting
// another object in its place, once that is there. The segments of a dynamic one are left alone where its prefix would take other objects
// with them: an empty prefix, or one in this very container that does not end in a slash. What is put here is at most what
// the cluster takes in one piece, 5 GiB by default.
//
// # Lists
//
// They come page by page in byte order. Without details an entry is key and size, or the key alone where Swift says 0, as
// it does of dynamic manifests too.
package swiftstore
