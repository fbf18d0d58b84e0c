// Package s3store makes a bucket of Amazon S3, or of any service that speaks its protocol, a store.
//
// # Requests
//
// Signatures, credentials and the forms of addresses are those of github.com/minio/minio-go; its client is not used, as it
// retries, waits and follows on its own. A request is sent once: only a service that names the region to sign for, or says
// that a token has expired, is asked again, if the body can be. Redirects are not followed: they would carry a signature
// elsewhere. There are no checksum trailers and no chunk signatures, which many services refuse. A body that is one request
// is signed with its SHA-256; parts are sent as UNSIGNED-PAYLOAD, over plain http as well. HTTPS protects them on their
// way; over plain http nothing but TCP does.
//
// # Uploads
//
// A body of known length up to a part (8 MiB) is read into memory and is one PUT. It is not sent as it comes, because some
// services store what they have of a body whose sender dies; the signature keeps them from it. So do bodies of unknown
// length up to 64 KiB. All others go by parts of equal size, four at a time, each from a buffer. All uploads of a store together
// take 128 MiB of memory at most, but for bodies up to 64 KiB; a quarter of it is for uploads that have none yet. Where there is
// none left, a body of known length goes by parts that are sent one after the other as they come; one of unknown length, or one
// PUT with a condition, waits up to five seconds for some, and then could not be asked for, which is nobody's fault.
// An object of known length beyond 10,000 parts has larger ones, which are sent one after the other without being held; one of
// unknown length ends there, at 78 GiB. What fails or is given up is aborted
// in the background, again if need be. Nothing can abort what a killed process or a dead service leaves: let the bucket have
// a lifecycle rule AbortIncompleteMultipartUpload.
//
// # What is kept with an object
//
// Content-Type, Cache-Control, Content-Disposition, Content-Encoding, Content-Language and Expires are S3's own, the user's
// metadata is x-amz-meta-*, and x-amz-meta-storage-mux-* holds what S3 has no field for: the identity, the modification time,
// the digests that were known when the upload began. A SHA-256 that is known only at its end is not added: S3 cannot change
// metadata but by a copy of the whole. Amazon keeps 2 KiB of metadata in all; more is CodeTooLarge. An object without an
// identity is a foreign one, whose ETag is S3's. So is one whose length is no longer the one that was stored with it:
// some programs write new bytes and keep the metadata. New bytes of the same length show by S3's ETag, of objects that were one PUT
// (up to 8 MiB) after a first one has shown that ETags are MD5 there, which they are not with SSE-KMS; in all others they do
// not, and verify finds them by their digest alone.
//
// # Conditions
//
// On reads they are decided here, since S3 knows only its own ETag; a revalidation costs a HEAD. On writes they are decided
// on a HEAD, and the write carries If-None-Match: *, or If-Match with S3's own ETag of what was found, so that it changes
// just that. Many services take such fields for noise. So before the first conditional PUT, DELETE and completion of an
// upload by parts, the endpoint is tried on an object .storage_mux-probe-… of our own, which is removed in the background. One that
// writes there, or says 501, gets no such writes: they are CodeUnsupported, for good. After a 400 they are for a minute, then it is
// tried again. An upload by parts that somebody overtakes (409) is not completed again, as S3 wants all its parts anew: the condition
// has failed. Two versions with the same bytes have the same ETag at S3, and cannot be told apart by a write.
//
// # What cannot be known
//
// Without the right to list, S3 says 403 of a missing key: that is CodeDenied, "could not be asked". A PUT is then taken
// to be of a new object, and a DELETE succeeds whether there was one or not.
package s3store
