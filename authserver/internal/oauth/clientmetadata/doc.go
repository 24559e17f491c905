// Package clientmetadata fetches and caches client metadata documents.
//
// A client that is not registered here may be known by its metadata document (OAuth Client ID Metadata Document, which
// MCP clients use) if this deployment serves the document's host or path. The user at the browser chooses the URL, so:
//
//  1. a URL that is not served costs a string comparison, and no connection;
//  2. only public IP addresses are dialled (shared/net/publicnet);
//  3. a response is short (5 KB), fast (5 s) and plain JSON, and comes from the URL itself: redirects are
//     not followed;
//  4. concurrent requests for one URL share one fetch. Each host has a limit of concurrent fetches, with a
//     separate limit for URLs that were never used. A failure is remembered for 30 s;
//  5. a document is stored for as long as its Cache-Control says, within 30 s and 24 h, in the store that
//     all processes share. The copy replaces a document that cannot be fetched for up to client.CacheLife.
//     A document that can be fetched and is invalid is refused.
//
// Package client decides whether a document is valid. engine calls this package for the client of an authorization
// request, and for the keys of a client that signs. Any other token request never waits for the document's host.
package clientmetadata
