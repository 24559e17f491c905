package api_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestRegister_ConfidentialClientIsReturnedWithSecret(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	answer := b.registered(confidential(fields{"unknownKey": 1}))
	body := answer.Object()
	want := map[string]any{
		"kind":                    "confidential",
		"tenantId":                b.Fixture.WorkspaceID.String(),
		"name":                    "Donor sync",
		"redirectUris":            []any{"https://sync.example.org/callback"},
		"requiredPermissions":     []any{"programmes:read:programmes"},
		"tokenEndpointAuthMethod": "client_secret_json",
	}
	for name, value := range want {
		if !reflect.DeepEqual(body[name], value) {
			t.Errorf("%s: %v, want %v", name, body[name], value)
		}
	}
	if len(body) != len(want)+3 {
		t.Errorf("%d members, want clientId, clientSecret, createdAt and %d more", len(body), len(want))
	}
	if !credential.ClientSecret.Matches(answer.Text("clientSecret")) ||
		!strings.HasPrefix(answer.Text("clientSecret"), "alm_cs_") {
		t.Error("the secret does not have the format of a client secret")
	}
	if created, err := time.Parse(time.RFC3339Nano, answer.Text("createdAt")); err != nil ||
		time.Since(created) > time.Minute {
		t.Errorf("createdAt: %s", answer.Text("createdAt"))
	}
	id := answer.Text("clientId")
	if location := answer.Header.Get("Location"); location != b.path()+"/"+id {
		t.Errorf("Location: %s", location)
	}
	if n := b.events(audit.ClientRegistered, id); n != 1 {
		t.Errorf("%d audit events", n)
	}
	const stored = `select count(*) from account.client_secrets where client_id = $1 and hash = $2`
	if n := b.Count(stored, id, credential.Hash(answer.Text("clientSecret"))); n != 1 {
		t.Error("the stored hash is not the hash of the secret")
	}
}

func TestRegister_ConnectorHasNoSecret(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	for _, platform := range []string{"claude", "chatgpt"} {
		for _, resource := range []string{apitest.REST, apitest.MCP} {
			answer := b.registered(connector(fields{"connectorPlatform": platform, "resource": resource}))
			body := answer.Object()
			if _, there := body["clientSecret"]; there {
				t.Error("a connector got a secret")
			}
			if body["kind"] != "connector" || body["connectorPlatform"] != platform || body["resource"] != resource ||
				body["tokenEndpointAuthMethod"] != "none" ||
				len(body) != 10 {
				t.Errorf("%s, %s: %s", platform, resource, answer.Body)
			}
		}
	}
	if n := b.Count(`select count(*) from account.client_secrets`); n != 0 {
		t.Errorf("%d secrets are stored", n)
	}
	b.registered(connector(fields{"tokenEndpointAuthMethod": "none"}))
}

func TestRegister_StoresRequestedAuthMethod(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	for _, method := range []string{"client_secret_json", "client_secret_post", "client_secret_basic"} {
		if got := b.registered(confidential(fields{
			"tokenEndpointAuthMethod": method,
		})).Text("tokenEndpointAuthMethod"); got != method {
			t.Errorf("%s: %s", method, got)
		}
	}
}

func TestRegister_BadRegistrationIs400(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	const metadata, redirect = "invalid_client_metadata", "invalid_redirect_uri"
	uris := func(all ...string) fields { return fields{"redirectUris": all} }
	for what, c := range map[string]struct{ body, code string }{
		"no name":                 {confidential(fields{"name": nil}), metadata},
		"an empty name":           {confidential(fields{"name": ""}), metadata},
		"a name of spaces":        {confidential(fields{"name": "  "}), metadata},
		"a name that is a number": {confidential(fields{"name": 7}), metadata},
		"no permissions":          {confidential(fields{"requiredPermissions": nil}), metadata},
		"an empty list":           {confidential(fields{"requiredPermissions": []string{}}), metadata},
		"an unknown permission": {
			confidential(fields{"requiredPermissions": []string{"programmes:read:everything"}}),
			metadata,
		},
		"a permission in upper case": {
			confidential(fields{"requiredPermissions": []string{"Programmes:Read:Programmes"}}),
			metadata,
		},
		"permissions as one text": {
			confidential(fields{"requiredPermissions": "programmes:read:programmes"}),
			metadata,
		},
		"an unknown platform":        {connector(fields{"connectorPlatform": "other"}), metadata},
		"a platform in another case": {connector(fields{"connectorPlatform": "Claude"}), metadata},
		"an empty platform":          {connector(fields{"connectorPlatform": ""}), metadata},
		"an empty resource":          {confidential(fields{"resource": ""}), metadata},
		"an empty method":            {confidential(fields{"tokenEndpointAuthMethod": ""}), metadata},
		"a platform alone":           {connector(fields{"resource": nil}), metadata},
		"a resource alone":           {connector(fields{"connectorPlatform": nil}), metadata},
		"another resource":           {connector(fields{"resource": "https://api.example.org"}), metadata},
		"a resource with a slash":    {connector(fields{"resource": apitest.MCP + "/"}), metadata},
		"account:api:access": {
			connector(fields{"requiredPermissions": []string{"account:api:access"}}),
			metadata,
		},
		"a connector's secret": {connector(fields{"tokenEndpointAuthMethod": "client_secret_post"}), metadata},
		"no secret for an app": {confidential(fields{"tokenEndpointAuthMethod": "none"}), metadata},
		"an unknown method":    {confidential(fields{"tokenEndpointAuthMethod": "private_key_jwt"}), metadata},
		"no redirect URIs":     {confidential(fields{"redirectUris": nil}), redirect},
		"no redirect URI":      {confidential(uris()), redirect},
		"21 redirect URIs": {
			confidential(uris(strings.Split(strings.Repeat("https://a.example/ ", 21), " ")[:21]...)),
			redirect,
		},
		"a relative one":   {confidential(uris("/callback")), redirect},
		"http":             {confidential(uris("http://app.example.org/callback")), redirect},
		"another scheme":   {confidential(uris("javascript:alert(1)")), redirect},
		"a fragment":       {confidential(uris("https://app.example.org/#x")), redirect},
		"user info":        {confidential(uris("https://me@app.example.org/")), redirect},
		"a wildcard":       {confidential(uris("https://*.example.org/")), redirect},
		"a code parameter": {confidential(uris("https://app.example.org/?code=1")), redirect},
		"an iss parameter": {confidential(uris("https://app.example.org/?a=1&iss=2")), redirect},
		"too long": {
			confidential(uris("https://app.example.org/" + strings.Repeat("x", 2048))),
			redirect,
		},
		"one good, one bad": {confidential(uris("https://app.example.org/", "ftp://x.example/")), redirect},
		"malformed JSON":    {"{", metadata},
		"an array":          {"[]", metadata},
		"null":              {"null", metadata},
		"a key twice":       {`{"name":"a","name":"b"}`, metadata},
		"trailing data":     {confidential(nil) + "{}", metadata},
	} {
		b.refused(what, b.send("POST", b.path(), c.body), 400, c.code)
	}
	b.refused("no body", b.send("POST", b.path(), ""), 400, metadata)
	for _, contentType := range []string{"application/x-www-form-urlencoded", "text/plain", ""} {
		answer := b.Send(
			"POST",
			b.path(),
			confidential(nil),
			append(apitest.Bearer(b.token), "Content-Type", contentType)...)
		b.refused("JSON with content type "+contentType, answer, 400, metadata)
	}
	encoded := b.Send(
		"POST",
		b.path(),
		confidential(nil),
		append(apitest.Bearer(b.token), "Content-Type", "application/json", "Content-Encoding", "gzip")...)
	b.refused("an encoded body", encoded, 400, metadata)
	if !strings.Contains(encoded.Body, "Content-Encoding is not supported") {
		t.Errorf("the response does not name the cause: %s", encoded.Body)
	}
	if n := b.Count(`select count(*) from account.oauth_clients`); n != 0 {
		t.Errorf("%d clients were registered", n)
	}
}

func TestRegister_MemberNamesAreCaseSensitive(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	b.refused(
		"Name",
		b.send("POST", b.path(), confidential(fields{"name": nil, "Name": "Donor sync"})),
		400,
		"invalid_client_metadata",
	)
}

func TestRegister_LongBodyIs413(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	answer := b.send("POST", b.path(), confidential(fields{"name": strings.Repeat("x", 64<<10)}))
	if answer.Status != 413 {
		t.Errorf("%d %s", answer.Status, answer.Body)
	}
}

func TestRegister_LoopbackRedirectsAndLimitsAreAccepted(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	const long = "https://app.example.org/"
	for _, uris := range [][]string{
		{"http://localhost:1234/cb"},
		{"http://127.0.0.1/cb"},
		{"http://[::1]:8090/cb"},
		{"https://app.example.org/cb?tenant=1"},
		{long + strings.Repeat("x", 2048-len(long))},
		strings.Split(strings.Repeat("https://a.example/ ", 20), " ")[:20],
	} {
		answer := b.registered(confidential(fields{"redirectUris": uris}))
		if got, _ := answer.Object()["redirectUris"].([]any); len(got) != len(uris) || got[0] != uris[0] {
			t.Errorf("stored as %v", got)
		}
	}
}

// The registrar requires permissions that the token lacks, or that the user lacks.
func TestRegister_CannotRequireMoreThanCredentialHolds(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	b.forbidden(
		"the user lacks it",
		b.send(
			"POST",
			b.path(),
			confidential(
				fields{"requiredPermissions": []string{"programmes:read:programmes", "programmes:write:programmes"}},
			),
		),
	)
	b.token = b.Fixture.Token(b.registrar, perm.AccountAPIAccess)
	b.forbidden("the token lacks it", b.send("POST", b.path(), confidential(nil)))
	b.registered(confidential(fields{"requiredPermissions": []string{"account:api:access"}}))
	if n := b.Count(`select count(*) from account.oauth_clients`); n != 1 {
		t.Errorf("%d clients", n)
	}
}

func TestRegister_UnauthorizedCallerIsRefusedBeforeBody(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	b.token = b.Fixture.Token(b.registrar, perm.ProgrammesRead)
	b.forbidden("permission missing and a bad body", b.send("POST", b.path(), "{"))
	if answer := b.Send(http.MethodPost, b.path(), "{"); answer.Status != 401 {
		t.Errorf("no bearer and a bad body: %d", answer.Status)
	}
}
