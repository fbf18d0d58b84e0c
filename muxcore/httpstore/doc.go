// Package httpstore makes an HTTP origin a store: GET and HEAD read, PUT and DELETE write, and a WebDAV origin can list.
//
// # What goes out
//
// A key is appended to the base URL and percent-encoded exactly once; what RFC 3986 admits in a path segment stays as it
// is, except "+" and ";", to which some origins give a meaning of their own. Every request says Accept-Encoding: identity,
// unless the configured header says otherwise: bodies, lengths and digests are those of the stored representation, and a
// stored Content-Encoding comes through as it is. Proxies are taken from the environment (HTTP_PROXY, HTTPS_PROXY,
// NO_PROXY), as Caddy's own reverse_proxy does. An https origin may speak HTTP/2.
//
// # What is believed
//
// An origin's answer is checked against the question: conditions are decided again on the validators that came back, a 206
// must be exactly the part that was asked for, a body must have the announced length. A 200 in place of a part is cut to
// it, by skipping at most 4 MiB; beyond, the answer is CodeUnsupported. A 412 or 416 to a question without condition or range says nothing. A body whose end nothing marks (HTTP/1 without
// length and chunks, in the clear) is refused: a cut one would look whole. One request answers a read; there is a second
// one only after an origin that contradicted its own validators, or gave none (If-Range ignored, 412 for an ETag that it
// has, 412 without one).
//
// # Redirects
//
// Reads follow up to five, never from https to http. The configured header, the credentials, the client certificate and
// the trace context go to the origin only; whoever else is named gets a plain request, and what it redirects to as well. A
// redirect that only adds a slash says that the key names a collection: there is no such object. Writes follow none.
//
// # Writes
//
// A plain origin keeps neither PutOptions.ETag nor ModTime, and Attributes only as far as it likes; they are sent as
// header fields. Whether a PUT is whole or not at all is the origin's part; this side breaks off the request when the
// body is not what was declared, and sends bodies up to 64 KiB only after they were read and found right. Conditions on
// writes need Settings.ConditionalWrite, because an origin that ignores them cannot be told from one that met them.
//
// A body with a Content-Encoding that the origin does not keep could be read by nobody, and is CodeUnsupported. That is tried before the
// first such body on an object below the reserved prefix; where that cannot be put or looked at, the body itself is looked at, and
// deleted if it has lost its coding.
//
// # WebDAV
//
// Whether the origin speaks it is asked once, by OPTIONS, at the first write that must know. Then missing parents are made
// by MKCOL before the PUT, and a DELETE is preceded by a look at what it would delete, because a DELETE of a collection
// deletes everything in it. Lists walk the tree by PROPFIND with Depth 1. Empty collections do not show: a rolled-up entry
// is listed once a key below it was seen, which costs a request for each collection on the page.
package httpstore
