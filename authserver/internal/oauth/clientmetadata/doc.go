// Package clientmetadata answers: what does a client say of itself at the address that is its client_id?
//
// A client that nobody has registered here may be known by its metadata document (OAuth Client ID Metadata Document, as
// MCP clients have one), if the document's host, or its place on that host, is one that this deployment serves. Whoever
// is at a browser chooses the address, so:
//
//  1. an address of a host that is not served costs a comparison of strings, and nothing is dialled;
//  2. only public addresses are dialled, which is decided about the address that the name led to, at the moment of dialling
//     (code.dny.dev/ssrf, whose one room this is): no name, redirect or later answer of the DNS leads into our own network;
//  3. an answer is short (5 KB), quick (5 s), plain JSON, and comes from the address itself: no redirect is followed;
//  4. one address is read once at a time, however many wait for it; of one host few are read at once, and those that nobody has used
//     yet apart from the others; a failure is remembered for a moment;
//  5. what was read is kept for as long as its Cache-Control says, within 30 s and 24 h, in the store that all processes share, and
//     stands in for a document that cannot be read for up to client.CopyLife. A document that can be read and is bad is refused.
//
// What makes a good document is said by package client. engine asks here for the client of an authorization request,
// and for the keys of one that signs; a token request of any other client never waits for the document's host.
package clientmetadata
