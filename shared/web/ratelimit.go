package web

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Units of a RateLimit. The zero value means requests.
const (
	UnitRequests           = "requests"
	UnitConcurrentRequests = "concurrent-requests"
	UnitContentBytes       = "content-bytes"
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
	// Reset is when the remaining units grow again. If it is 0, the time is unknown and the parameter is not
	// written.
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
func (l RateLimit) policy() string {
	item := quoted(l.Name) + ";q=" + strconv.Itoa(max(0, l.Quota))
	if l.Unit != "" && l.Unit != UnitRequests {
		item += ";qu=" + quoted(l.Unit)
	}
	if l.Window > 0 {
		item += ";w=" + strconv.Itoa(wholeSeconds(l.Window))
	}
	return item
}

// state returns the item of RateLimit.
func (l RateLimit) state() string {
	item := quoted(l.Name) + ";r=" + strconv.Itoa(max(0, l.Remaining))
	if l.Reset > 0 {
		item += ";t=" + strconv.Itoa(wholeSeconds(l.Reset))
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
