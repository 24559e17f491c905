package harness

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// A Callback is a redirect to an application: where to, and with which parameters.
type Callback struct {
	URI    string // without the query
	Values url.Values
	Raw    string // the query as it was sent
}

// Callback returns the redirect that this answer is. It must be a 302 or 303, so that browsers follow with GET, to an
// address outside the app URL.
func (p Page) Callback(t testing.TB) Callback {
	t.Helper()
	if p.Status != http.StatusSeeOther && p.Status != http.StatusFound {
		t.Fatalf("want a redirect to the callback:\n%s", p)
	}
	location := p.Header.Get("Location")
	if strings.HasPrefix(location, "/") || strings.HasPrefix(location, p.person.product.AppURL) {
		t.Fatalf("want a redirect to the callback, not within the app:\n%s", p)
	}
	uri, query, _ := strings.Cut(location, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatalf("the callback's query cannot be parsed:\n%s", p)
	}
	return Callback{URI: uri, Values: values, Raw: query}
}

// Code is the authorization code, or "".
func (c Callback) Code() string { return c.Values.Get("code") }

// Names are the names of the parameters, sorted.
func (c Callback) Names() []string { return slices.Sorted(maps.Keys(c.Values)) }

// WantsError checks for an error of RFC 6749, section 4.1.2.1, with state and iss (RFC 9207) and nothing else. More
// than one code means that the contract leaves open which. A state of "" means that none may come back.
func (c Callback) WantsError(t testing.TB, uri, state, issuer string, codes ...string) {
	t.Helper()
	want := []string{"error", "error_description", "iss", "state"}
	if state == "" {
		want = want[:3]
	}
	if c.URI != uri || !slices.Equal(c.Names(), want) {
		t.Errorf("redirected to %s with %v, want %s with %v", c.URI, c.Names(), uri, want)
	}
	if !slices.Contains(codes, c.Values.Get("error")) || c.Values.Get("error_description") == "" {
		t.Errorf(
			"error %q (%s), want %v and a description",
			c.Values.Get("error"),
			Redact(c.Values.Get("error_description")),
			codes,
		)
	}
	if c.Values.Get("state") != state || c.Values.Get("iss") != issuer {
		t.Errorf(
			"state or iss of the error is not what it was: iss %q, state of %d bytes, want %d",
			c.Values.Get("iss"),
			len(c.Values.Get("state")),
			len(state),
		)
	}
}
