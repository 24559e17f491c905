package web

import (
	"net/http"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

// minCompressed is the length in bytes from which a JSON response is compressed (contract, section 6a).
const minCompressed = 1 << 10

func isJSON(contentType string) bool {
	return contentType == "application/json" || contentType == "application/json; charset=utf-8"
}

// Compress compresses the long JSON responses of next with gzip for clients that accept it, and adds Accept-Encoding to
// Vary. Streams of events are not JSON, so they pass unchanged.
//
// The length of a compressed response reveals whether two parts of it are alike (BREACH). So it must not wrap a
// response that has a secret: tokens, client secrets, invitation links. Such a response of a handler that Compress
// wraps must be marked with Uncompressed.
func Compress(next http.Handler) http.Handler { return compress(next, isJSON) }

// CompressPublic compresses files and pages of any type that compresses well. It must only wrap responses without
// secrets: no form key, no ticket and no token.
func CompressPublic(next http.Handler) http.Handler {
	return compress(next, gzhttp.DefaultContentTypeFilter)
}

func compress(next http.Handler, types func(contentType string) bool) http.Handler {
	pack, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressed), gzhttp.CompressionLevel(gzip.BestSpeed),
		gzhttp.EnableZstd(false), gzhttp.ContentTypeFilter(types))
	if err != nil {
		panic(err) // only for options that are not valid
	}
	packed := pack(next)
	// A response to HEAD has the fields of the one to GET (RFC 9110, sections 8.6 and 9.3.2), but gzhttp compresses
	// none to HEAD. net/http drops the content.
	packedHead := pack(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, withMethod(r, http.MethodHead))
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			packedHead.ServeHTTP(w, withMethod(r, http.MethodGet))
			return
		}
		packed.ServeHTTP(w, r)
	})
}

// withMethod returns a shallow copy of the request with the method.
func withMethod(r *http.Request, method string) *http.Request {
	other := *r
	other.Method = method
	return &other
}

// Uncompressed marks a response that has a secret, so that Compress leaves it unchanged.
func Uncompressed(h http.Header) { h.Set(gzhttp.HeaderNoCompression, "true") }
