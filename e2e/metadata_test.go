package e2e

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, sections 1 and 5: the metadata for discovery (RFC 8414, RFC 9728).

func texts(value any) []string {
	var out []string
	list, _ := value.([]any)
	for _, entry := range list {
		text, _ := entry.(string)
		out = append(out, text)
	}
	return out
}

func TestMetadata_AuthorizationServer(t *testing.T) {
	t.Parallel()
	p := enter(t)
	answer := p.API().Get(t, "/.well-known/oauth-authorization-server").Wants(t, http.StatusOK)
	document := answer.Object(t)
	for name, want := range map[string]any{
		"issuer":                 p.BaseURL,
		"authorization_endpoint": p.AppURL + "/oauth/authorize",
		"token_endpoint":         p.BaseURL + harness.TokenPath,
		"jwks_uri":               p.BaseURL + "/v1/account/oauth/jwks",
		"revocation_endpoint":    p.BaseURL + "/v1/account/oauth/revoke",
		"introspection_endpoint": p.BaseURL + "/v1/account/oauth/introspect",
		"authorization_response_iss_parameter_supported": true,
	} {
		if document[name] != want {
			t.Errorf("%s is %v, want %v", name, document[name], want)
		}
	}
	for name, want := range map[string][]string{
		"response_types_supported":         {"code"},
		"grant_types_supported":            {"authorization_code", "refresh_token"},
		"code_challenge_methods_supported": {"S256"},
		"scopes_supported":                 append(harness.ForConnectors(), "offline_access"),
	} {
		if got := texts(document[name]); !slices.Equal(sorted(got), sorted(want)) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if !slices.Contains(texts(document["token_endpoint_auth_methods_supported"]), "none") {
		t.Errorf("token_endpoint_auth_methods_supported lacks none:\n%s", answer)
	}
	if _, there := document["registration_endpoint"]; there {
		t.Error("unexpected registration_endpoint")
	}
	for _, name := range []string{
		"token_endpoint", "jwks_uri", "revocation_endpoint", "introspection_endpoint", "authorization_endpoint",
	} {
		address, _ := document[name].(string)
		path := strings.TrimPrefix(strings.TrimPrefix(address, p.BaseURL), p.AppURL)
		api := p.API()
		if strings.HasPrefix(address, p.AppURL) {
			api = p.App()
		}
		if got := api.Get(t, path); got.Status == http.StatusNotFound {
			t.Errorf("%s does not exist", name)
		}
	}
}

func TestMetadata_ProtectedResource(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for path, resource := range map[string]string{
		"/.well-known/oauth-protected-resource/v1":  p.BaseURL + "/v1",
		"/.well-known/oauth-protected-resource/mcp": p.BaseURL + "/mcp",
		"/.well-known/oauth-protected-resource":     p.BaseURL + "/mcp",
	} {
		answer := p.API().Get(t, path).Wants(t, http.StatusOK).WantsHeader(t, "Access-Control-Allow-Origin", "*")
		document := answer.Object(t)
		if document["resource"] != resource ||
			!slices.Equal(texts(document["authorization_servers"]), []string{p.BaseURL}) {
			t.Errorf("wrong resource or authorization_servers:\n%s", answer)
		}
		want := harness.ForConnectors()
		if resource == p.BaseURL+"/mcp" {
			want = []string{harness.ReadProgrammes}
		}
		if got := texts(document["scopes_supported"]); !slices.Equal(sorted(got), sorted(want)) {
			t.Errorf("scopes_supported is %v", got)
		}
		if !slices.Equal(texts(document["bearer_methods_supported"]), []string{"header"}) {
			t.Errorf("wrong bearer_methods_supported:\n%s", answer)
		}
	}
	p.API().Get(t, "/.well-known/oauth-protected-resource/v2").WantsNested(t, http.StatusNotFound, "NOT_FOUND")
}

// A client that knows only the API's URL reaches the consent page from the first 401.
func TestMetadata_ChallengeLeadsToConsentPage(t *testing.T) {
	t.Parallel()
	p := enter(t)
	challenge := p.API().Get(t, programmes).Header.Get("WWW-Authenticate")
	_, rest, found := strings.Cut(challenge, `resource_metadata="`)
	address, _, closed := strings.Cut(rest, `"`)
	if !found || !closed {
		t.Fatalf("no resource_metadata in %q", challenge)
	}
	resource := p.API().Get(t, strings.TrimPrefix(address, p.BaseURL)).Wants(t, http.StatusOK).Object(t)
	server := texts(resource["authorization_servers"])[0]
	metadata := p.API().Get(t, strings.TrimPrefix(server, p.BaseURL)+"/.well-known/oauth-authorization-server").
		Wants(t, http.StatusOK).
		Object(t)
	connector := p.DemoConnector()
	connector.Resource, _ = resource["resource"].(string)
	attempt := connector.Begin()
	page := p.Person(t, p.Demo.Users.Owner).
		Arrive(t, metadata["authorization_endpoint"].(string)+"?"+attempt.Query.Encode())
	callback := page.Press(t, "approve").Callback(t)
	if callback.Values.Get("iss") != metadata["issuer"] {
		t.Error("the callback's iss is not the issuer of the metadata")
	}
	p.API().
		Form(t, strings.TrimPrefix(metadata["token_endpoint"].(string), p.BaseURL), attempt.CodeForm(callback.Code())).
		Tokens(t)
}

// Paths that clients try when discovery fails (contract, section 1).
func TestMetadata_GuessedPaths(t *testing.T) {
	t.Parallel()
	p := enter(t)
	query := url.Values{"client_id": {"x y"}, "state": {`a+b&"c"`}}.Encode() + "&odd=%zz&&="
	answer := p.API().Get(t, "/authorize?"+query).Wants(t, http.StatusFound)
	if answer.Header.Get("Location") != p.AppURL+"/oauth/authorize?"+query {
		t.Errorf("redirected to %q", answer.Header.Get("Location"))
	}
	wantsAllow(t, p.API().Send(t, http.MethodPost, "/authorize", "", "").Wants(t, http.StatusMethodNotAllowed), "GET")
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		p.API().Send(t, method, "/register", "application/json", "{}").WantsFlat(t, http.StatusNotFound, "not_found")
	}
	wantsAllow(t, p.API().Get(t, "/token").Wants(t, http.StatusMethodNotAllowed), "POST")
}

// "the public keys (at /.well-known/jwks.json of base_url too)"
func TestMetadata_KeysAreAtWellKnownPathToo(t *testing.T) {
	t.Parallel()
	p := enter(t)
	keys := p.API().Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK)
	same := p.API().Get(t, "/.well-known/jwks.json").Wants(t, http.StatusOK)
	if string(keys.Body) != string(same.Body) || same.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("the answers differ:\n%s\n%s", keys, same)
	}
}
