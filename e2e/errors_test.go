package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 7.1 and 9, contract sections 5 and 6: which service responds to unknown paths "before any credential is looked
// at (everywhere)", and how.

// callers are a caller without credentials, one with a bad credential, and one with a good one. All get the same
// response.
func callers(p *harness.Product) map[string]harness.API {
	return map[string]harness.API{
		"no credential":    p.API(),
		"a bad credential": p.As("nonsense").With("X-Tenant-Id", "nonsense"),
		"a good one":       p.In(p.Demo.Workspaces.Main, p.Demo.Tokens.Owner),
	}
}

func TestErrors_UnknownPathIs404BeforeAuthentication(t *testing.T) {
	p := inParallel(t)
	module := []string{
		"/", "/v1", "/v1/", "/v2/programmes/programmes", "/v1/programmes", "/v1/programmes/",
		"/v1/programmes/programmes/",
		"/v1/Programmes/programmes", "//v1/programmes/programmes", "/v1//programmes/programmes",
		"/v1/programmes/./programmes", "/v1/x/../programmes/programmes", "/v1/programmes%2Fprogrammes",
		"/v1/programmes/programmes;x=1", "/programmes/programmes", "/account/oauth/token",
		"/account/tenants/" + p.Demo.Workspaces.Main.ID + "/oauth-clients", "/v1/programmes/projects", "/v1/unknown",
		"/.well-known/unknown", "/v1/programmes/programmes/" + uuid.NewString() + "/unknown",
		"/v1/programmes/%70rogrammes", "/v1/programmes/../account/oauth/jwks", "/v1/%61ccount/oauth/jwks",
	}
	account := []string{
		"/v1/account/", "/v1/account", "/v1/account/unknown", "/v1/account/oauth", "/v1/account/oauth/token/",
		"/v1/account/oauth//token", "/v1/account/oauth/Token", "/v1/account/tenants",
		"/v1/account/tenants/" + p.Demo.Workspaces.Main.ID, "/v1/account/oauth-clients", "/v1/account/oauth/authorize",
		"/.well-known/oauth-authorization-server/unknown",
		// No path climbs to the other service or to the pages.
		"/v1/account/../programmes/programmes", "/v1/account/..%2fprogrammes/programmes", "/v1/account/../../login",
		"/v1/account/..;/..;/login", "/.well-known/oauth-authorization-server/../../login",
	}
	for who, api := range callers(p) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(who+" "+method, func(t *testing.T) {
				for _, path := range module {
					api.Send(t, method, path, "", "").WantsNested(t, http.StatusNotFound, "NOT_FOUND")
				}
				for _, path := range account {
					api.Send(t, method, path, "", "").WantsFlat(t, http.StatusNotFound, "not_found")
				}
			})
		}
	}
}

func TestErrors_UnknownPageIsHTML(t *testing.T) {
	p := inParallel(t)
	user := p.Person(t, p.Demo.Users.Owner)
	for _, path := range []string{"/nothing", "/oauth", "/oauth/authorize/", "/settings/unknown"} {
		user.Open(t, p.AppURL+path).WantsPage(t, http.StatusNotFound)
	}
	login := user.Request(t, http.MethodDelete, p.AppURL+"/login", "", "").WantsPage(t, http.StatusMethodNotAllowed)
	wantsAllow(t, login.Answer, "GET", "POST")
	logout := user.Request(t, http.MethodGet, p.AppURL+"/logout", "", "").WantsPage(t, http.StatusMethodNotAllowed)
	wantsAllow(t, logout.Answer, "POST")
}

// HEAD is like GET without a body, and responses must not be cached.
func TestErrors_HeadMatchesGet(t *testing.T) {
	p := inParallel(t)
	for who, api := range callers(p) {
		for _, path := range []string{
			programmes, "/v1/account/oauth/jwks", "/.well-known/oauth-authorization-server",
			harness.ClientsPath(p.Demo.Workspaces.Main), "/v1/nothing", "/v1/account/nothing",
		} {
			get, head := api.Get(t, path), api.Send(t, http.MethodHead, path, "", "")
			if head.Status != get.Status || len(head.Body) != 0 {
				t.Errorf("%s, %s: GET %d, HEAD %d with %d bytes", who, path, get.Status, head.Status, len(head.Body))
			}
			public := strings.HasSuffix(path, "/jwks") || strings.HasPrefix(path, "/.well-known/")
			if got := get.Header.Get("Cache-Control"); got != "no-store" && !public {
				t.Errorf("%s, %s: Cache-Control is %q", who, path, got)
			}
		}
	}
}

// wantsGateway checks for {"message":…} (spec 7.1, errors of the Account authorizer).
func wantsGateway(t testing.TB, a harness.Answer, status int, message string) {
	t.Helper()
	if object := a.Wants(t, status).WantsKeys(t, "message"); object["message"] != message {
		t.Errorf("want message %q:\n%s", message, a)
	}
}

// wantsAllow checks that Allow lists exactly these methods. HEAD and OPTIONS are ignored.
func wantsAllow(t testing.TB, a harness.Answer, methods ...string) {
	t.Helper()
	var got []string
	for method := range strings.SplitSeq(a.Header.Get("Allow"), ",") {
		if method = strings.TrimSpace(method); method != "HEAD" && method != "OPTIONS" {
			got = append(got, method)
		}
	}
	slices.Sort(got)
	slices.Sort(methods)
	if !slices.Equal(got, methods) {
		t.Errorf("Allow is %q, want %v:\n%s", a.Header.Get("Allow"), methods, a)
	}
}
