// Package web provides what every HTTP server of Almoner needs, independent of its routes.
//
// It has request ids, the access log, the response to a panic, methods, JSON, addresses behind proxies, and a
// server with time limits that drains before it stops.
package web

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

// JSON writes value as a JSON response. Responses are for one caller at one moment, so they must not be cached.
func JSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = NewEncoder(w).Encode(value) // an error means that the caller has left
}

// EncodeJSON returns value as JSON in the format of NewEncoder, without the trailing line break.
func EncodeJSON(value any) ([]byte, error) {
	var out bytes.Buffer
	if err := NewEncoder(&out).Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// NewEncoder returns an encoder for API responses that does not escape <, > and &. encoding/json escapes them
// with six bytes each for JSON within HTML; for such JSON use json.Marshal instead.
func NewEncoder(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}

// Methods calls the handler of the request's method (GET also serves HEAD). For other methods it sets Allow
// and calls refuse (RFC 9110, section 15.5.6).
func Methods(handlers map[string]http.Handler, refuse http.Handler) http.Handler {
	var allowed []string
	for method := range handlers {
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		handler, ok := handlers[method]
		if !ok {
			w.Header().Set("Allow", allow)
			handler = refuse
		}
		handler.ServeHTTP(w, r)
	})
}

// EncodedWords is the message for a request whose body is Encoded.
const EncodedWords = "Content-Encoding is not supported. Send the body without encoding."

// Encoded reports whether a body was compressed or otherwise encoded (RFC 9110, section 8.4). The services do
// not decode it, because the content could be of any size.
func Encoded(h http.Header) bool {
	return slices.ContainsFunc(h.Values("Content-Encoding"), func(value string) bool {
		value = strings.TrimSpace(value)
		return value != "" && !strings.EqualFold(value, "identity")
	})
}

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

// Units of a RateLimit. The zero value means requests.
const (
	UnitRequests           = "requests"
	UnitConcurrentRequests = "concurrent-requests"
)

// A RateLimit is one limit of a route and its remaining quota, as in draft-ietf-httpapi-ratelimit-headers-10.
type RateLimit struct {
	// Name identifies the limit in both headers, for example "token-refusals-per-client". Printable ASCII.
	Name string
	// Quota is how many units the limit allows, within Window if it has one.
	Quota int
	// Window is the time for which Quota is counted, or 0 if the limit does not depend on time, such as
	// requests in flight.
	Window time.Duration
	// Unit is what Quota counts. "" means requests and is not written.
	Unit string
	// Remaining is how many units are left. It is never written below 0.
	Remaining int
	// Reset is when the remaining units grow again. If it is 0, the time is unknown and the parameter is not written.
	Reset time.Duration
}

// SetRateLimits writes the headers RateLimit-Policy and RateLimit for the limits of one route, replacing
// those of an outer handler. Without limits it writes nothing.
func SetRateLimits(h http.Header, limits ...RateLimit) {
	if len(limits) == 0 {
		return
	}
	policies, states := make([]string, len(limits)), make([]string, len(limits))
	for i, limit := range limits {
		policies[i], states[i] = limit.policy(), limit.state()
	}
	h.Set("RateLimit-Policy", strings.Join(policies, ", "))
	h.Set("RateLimit", strings.Join(states, ", "))
}

// SetRetryAfter writes the header Retry-After in whole seconds, rounded up and at least 1.
func SetRetryAfter(h http.Header, wait time.Duration) {
	h.Set("Retry-After", strconv.Itoa(max(1, wholeSeconds(wait))))
}

// SetRateLimited writes the headers of a 429 response: those of the limits, and Retry-After.
func SetRateLimited(h http.Header, wait time.Duration, limits ...RateLimit) {
	SetRateLimits(h, limits...)
	SetRetryAfter(h, wait)
}

// policy returns the item of RateLimit-Policy: a structured field string with parameters (RFC 9651).
func (r RateLimit) policy() string {
	item := quoted(r.Name) + ";q=" + strconv.Itoa(max(0, r.Quota))
	if r.Unit != "" && r.Unit != UnitRequests {
		item += ";qu=" + quoted(r.Unit)
	}
	if r.Window > 0 {
		item += ";w=" + strconv.Itoa(wholeSeconds(r.Window))
	}
	return item
}

// state returns the item of RateLimit.
func (r RateLimit) state() string {
	item := quoted(r.Name) + ";r=" + strconv.Itoa(max(0, r.Remaining))
	if r.Reset > 0 {
		item += ";t=" + strconv.Itoa(wholeSeconds(r.Reset))
	}
	return item
}

func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// quoted returns text as a string of a structured field (RFC 9651, section 3.3.3). It omits characters that
// such a string cannot contain.
func quoted(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' {
			continue
		}
		if c == '"' || c == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	b.WriteByte('"')
	return b.String()
}
