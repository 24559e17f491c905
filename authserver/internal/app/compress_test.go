package app_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
)

// Documents and pages without secrets are compressed. Responses of the token endpoint and pages with a form key or a
// token are not, because the compressed length would reveal parts of them.
func TestCompress_DocumentsButNoSecrets(t *testing.T) {
	t.Parallel()
	s := serve(t, func(*app.Config) {})
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
	document := send("GET", "/.well-known/oauth-authorization-server")
	if document.Get("Content-Encoding") != "gzip" || !slices.Contains(document.Values("Vary"), "Accept-Encoding") {
		t.Errorf("%v", document)
	}
	if sheet := send("GET", "/static/site.css"); sheet.Get("Content-Encoding") != "gzip" {
		t.Errorf("the style sheet is not compressed: %v", sheet)
	}
	if page := send("GET", "/login"); page.Get("Content-Encoding") != "gzip" {
		t.Errorf("the sign-in page is not compressed: %v", page)
	}
	if page := send("GET", "/login/forgotten"); !slices.Contains(page.Values("Vary"), "Accept-Encoding") { // short
		t.Errorf("the page cannot be compressed: %v", page)
	}
	for _, path := range []string{"/login/reset?token=x", "/email?token=x", "/invitation?token=x", "/settings/user"} {
		if page := send("GET", path); slices.Contains(page.Values("Vary"), "Accept-Encoding") {
			t.Errorf("%s can be compressed", path)
		}
	}
	for _, path := range []string{
		"/v1/account/oauth/token",
		"/v1/account/oauth/introspect",
		"/v1/account/oauth/revoke",
		"/v1/account/tenants/5e0c4b5a-6b1f-4f7e-9a53-0f7f3f1c2a10/oauth-clients",
	} {
		if h := send("POST", path); slices.Contains(h.Values("Vary"), "Accept-Encoding") {
			t.Errorf("%s: a response with a secret can be compressed", path)
		}
	}
	if h := send("GET", "/v1/account/tenants/5e0c4b5a-6b1f-4f7e-9a53-0f7f3f1c2a10/oauth-clients"); !slices.Contains(
		h.Values("Vary"), "Accept-Encoding") {
		t.Error("the list of applications cannot be compressed")
	}
}
