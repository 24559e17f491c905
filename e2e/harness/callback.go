package harness

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// A Callback is a redirect to an application: its target and its parameters.
type Callback struct {
	URI    string // without the query
	Values url.Values
	Raw    string // the query as it was sent
}

// Callback returns the redirect in this page. It must be a 302 or 303, so that browsers follow with GET, to a URL
// outside the app.
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

// Code returns the authorization code, or "".
func (c Callback) Code() string { return c.Values.Get("code") }

// Names returns the names of the parameters, sorted.
func (c Callback) Names() []string { return slices.Sorted(maps.Keys(c.Values)) }

// WantsError checks for an error of RFC 6749, section 4.1.2.1, with state and iss (RFC 9207) and no other parameter.
// Several codes mean that the contract allows any of them. An empty state means that the callback must not have one.
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
			"wrong state or iss in the error: iss %q, state of %d bytes, want %d",
			c.Values.Get("iss"),
			len(c.Values.Get("state")),
			len(state),
		)
	}
}
