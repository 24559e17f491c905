package app_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Documents and pages without secrets are compressed. Responses of the token endpoint and pages with a form key or a
// token are not, because the compressed length would reveal parts of them.
func TestCompress_DocumentsButNoSecrets(t *testing.T) {
	s := shared(t)
	send := func(method, path string) http.Header {
		t.Helper()
		request, err := http.NewRequest(method, s.url+path, strings.NewReader(""))
		s.must(err)
		request.Header.Set("Accept-Encoding", "gzip")
		response, err := http.DefaultTransport.RoundTrip(request)
		s.must(err)
		s.must(response.Body.Close())
		return response.Header
	}
	for _, path := range []string{"/.well-known/oauth-authorization-server", "/static/site.css", "/login"} {
		equal(t, "GET "+path, send("GET", path).Get("Content-Encoding"), "gzip")
	}
	const clients = "/v1/account/tenants/5e0c4b5a-6b1f-4f7e-9a53-0f7f3f1c2a10/oauth-clients"
	for request, want := range map[string]bool{
		"GET /.well-known/oauth-authorization-server": true,
		"GET /login/forgotten":                        true, // too short to be compressed
		"GET " + clients:                              true,
		"GET /login/reset?token=x":                    false,
		"GET /email?token=x":                          false,
		"GET /invitation?token=x":                     false,
		"GET /settings/user":                          false,
		"POST /v1/account/oauth/token":                false,
		"POST /v1/account/oauth/introspect":           false,
		"POST /v1/account/oauth/revoke":               false,
		"POST " + clients:                             false,
	} {
		method, path, _ := strings.Cut(request, " ")
		may := slices.Contains(send(method, path).Values("Vary"), "Accept-Encoding")
		equal(t, request+" can be compressed", may, want)
	}
}
