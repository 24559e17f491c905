package engine

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func (b *testEnv) granted(what, query, scope string) consent.Request {
	b.Helper()
	request, err := b.ask(query)
	if err != nil || request.Permissions.Scope() != scope {
		b.Errorf("%s: %q %v, want %q", what, request.Permissions.Scope(), err, scope)
	}
	return request
}

func TestParseAuthorization_ConnectorMayRequestSubset(t *testing.T) {
	b := newTestEnv(t)
	for what, c := range map[string]struct{ scope, granted string }{
		"no scope":               {"-", both},
		"an empty one":           {"", both},
		"spaces":                 {"  ", both},
		"all":                    {both, both},
		"one":                    {read, read},
		"surplus spaces":         {"  " + read + "  ", read},
		"twice":                  {read + " " + read, read},
		"offline access":         {" offline_access", both},
		"one and offline access": {read + " offline_access", read},
		"more than it may":       {read + " engage:read:forms account:api:access", read},
	} {
		b.granted(what, b.query(b.app, "scope", c.scope), c.granted)
	}
	request := b.granted("good", b.query(b.app), both)
	if request.Resource != rest || request.Challenge != challenge || string(request.State) != "s" ||
		request.RedirectURI != fixture.Callback ||
		request.Client.ID != b.app.ID {
		t.Errorf("request: %+v", request)
	}
}

// A connector registered before resources had permission sets may hold more than its resource can use.
func TestParseAuthorization_LimitsScopeToResource(t *testing.T) {
	b := newTestEnv(t)
	old := b.fixture.Connector(mcp, perm.ProgrammesRead, perm.ProgrammesWrite, perm.EngageReadForms)
	for _, scope := range []string{"-", "", "offline_access", both, read + " engage:read:forms"} {
		b.granted(scope, b.query(old, "scope", scope), read)
	}
	useless := b.fixture.Connector(mcp, perm.EngageReadForms)
	for c, scopes := range map[*client.Client][]string{
		&old:     {"programmes:write:programmes"},
		&useless: {"-", "", "engage:read:forms"},
	} {
		for _, scope := range scopes {
			b.redirected("scope "+scope, b.query(*c, "scope", scope), "invalid_scope", "s")
		}
	}
}

func TestParseAuthorization_ConfidentialClientRequestsAllRequired(t *testing.T) {
	b := newTestEnv(t)
	for _, changes := range [][]string{
		nil,
		{"scope", both},
		{"scope", "nonsense"},
		{"response_type", "code"},
		{"resource", rest},
		{"code_challenge", challenge, "code_challenge_method", "S256"},
		{"prompt", "consent", "request", "", "request_uri", "", "response_mode", "query", "audience", "y"},
	} {
		request := b.granted(strings.Join(changes, " "), b.query(b.linked, changes...), read)
		if request.Resource != rest {
			t.Errorf("%v: resource %s", changes, request.Resource)
		}
	}
	two, _ := b.fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	b.granted("a part of it", b.query(two, "scope", read), both)
}

func TestParseAuthorization_RedirectsErrors(t *testing.T) {
	b := newTestEnv(t)
	long, plain := strings.Repeat("x", 2049), []string{"code_challenge", challenge, "code_challenge_method", "plain"}
	for _, c := range []struct {
		what  string
		app   client.Client
		query []string
		code  string
		state string
	}{
		{"no state", b.app, []string{"state", "-"}, "invalid_request", ""},
		{"an empty state", b.linked, []string{"state", ""}, "invalid_request", ""},
		{"a long state", b.linked, []string{"state", long}, "invalid_request", ""},
		{"request", b.app, []string{"request", "x"}, "request_not_supported", "s"},
		{"request, confidential", b.linked, []string{"request", "x"}, "request_not_supported", "s"},
		{"request_uri", b.app, []string{"request_uri", "https://a.example/"}, "request_uri_not_supported", "s"},
		{"a fragment", b.app, []string{"response_mode", "fragment"}, "invalid_request", "s"},
		{"a posted form", b.linked, []string{"response_mode", "form_post"}, "invalid_request", "s"},
		{"Query", b.app, []string{"response_mode", "Query"}, "invalid_request", "s"},
		{"request without state", b.app, []string{"request", "x", "state", "-"}, "invalid_request", ""},
		{"no response type", b.app, []string{"response_type", "-"}, "invalid_request", "s"},
		{"token", b.app, []string{"response_type", "token"}, "unsupported_response_type", "s"},
		{"token, confidential", b.linked, []string{"response_type", "token"}, "unsupported_response_type", "s"},
		{"code and token", b.app, []string{"response_type", "code token"}, "unsupported_response_type", "s"},
		{"Code", b.app, []string{"response_type", "CODE"}, "unsupported_response_type", "s"},
		{"no challenge", b.app, []string{"code_challenge", "-"}, "invalid_request", "s"},
		{"neither", b.app, []string{"code_challenge", "-", "code_challenge_method", "-"}, "invalid_request", "s"},
		{"no method", b.app, []string{"code_challenge_method", "-"}, "invalid_request", "s"},
		{"plain", b.app, []string{"code_challenge_method", "plain"}, "invalid_request", "s"},
		{"plain, confidential", b.linked, plain, "invalid_request", "s"},
		{"a method alone", b.linked, []string{"code_challenge_method", "S256"}, "invalid_request", "s"},
		{"a short challenge", b.app, []string{"code_challenge", challenge[1:]}, "invalid_request", "s"},
		{"padding", b.app, []string{"code_challenge", challenge[1:] + "="}, "invalid_request", "s"},
		{"no resource", b.app, []string{"resource", "-"}, "invalid_target", "s"},
		{"the other resource", b.app, []string{"resource", mcp}, "invalid_target", "s"},
		{"a resource with a slash", b.app, []string{"resource", rest + "/"}, "invalid_target", "s"},
		{"a confidential client's other resource", b.linked, []string{"resource", mcp}, "invalid_target", "s"},
		{"an unknown permission", b.app, []string{"scope", read + " nonsense"}, "invalid_scope", "s"},
		{"a permission in upper case", b.app, []string{"scope", "Programmes:read:programmes"}, "invalid_scope", "s"},
		{"nothing left", b.app, []string{"scope", "engage:read:forms"}, "invalid_scope", "s"},
	} {
		b.redirected(c.what, b.query(c.app, c.query...), c.code, c.state)
	}
	b.granted("the longest state", b.query(b.linked, "state", long[1:]), read)
}

func TestIdentify_ErrorIsPage(t *testing.T) {
	b := newTestEnv(t)
	deleted := b.fixture.Connector(mcp, perm.ProgrammesRead)
	b.fixture.Exec(`update account.oauth_clients set deleted_at = now() where id = $1`, deleted.ID)
	service, _ := b.service()
	b.fixture.Exec(`update account.oauth_clients set redirect_uris = array[$2] where id = $1`, service.ID,
		fixture.Callback)
	callback := func(old, changed string) string { return strings.Replace(fixture.Callback, old, changed, 1) }
	for what, query := range map[string]string{
		"unreadable":               "client_id=%zz",
		"no client":                b.query(b.app, "client_id", "-"),
		"unknown":                  b.query(b.app, "client_id", uuid.NewString()),
		"a service":                b.query(service),
		"deleted":                  b.query(deleted),
		"no redirect URI":          b.query(b.app, "redirect_uri", "-"),
		"a longer one":             b.query(b.app, "redirect_uri", fixture.Callback+"/"),
		"another port":             b.query(b.app, "redirect_uri", callback("8090", "8091")),
		"another loopback":         b.query(b.app, "redirect_uri", callback("127.0.0.1", "localhost")),
		"client twice":             b.query(b.app) + "&client_id=" + b.app.ID.String(),
		"an unknown twice":         b.query(b.app) + "&x=1&x=2",
		"state twice":              b.query(b.app) + "&state=s",
		"scope twice":              b.query(b.app, "scope", both) + "&scope=x",
		"resource twice":           b.query(b.app) + "&resource=" + url.QueryEscape(mcp),
		"bad address and no state": b.query(b.app, "redirect_uri", "https://evil.example", "state", "-"),
	} {
		b.shown(what, query)
	}
}

func TestIdentify_OutageIsUnavailable(t *testing.T) {
	t.Parallel()
	b := testEnvOver(t, fixture.New(t))
	defer b.fixture.Database.Cut(t)()
	if _, err := b.ask(b.query(b.app)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v, want store.ErrUnavailable", err)
	}
}
