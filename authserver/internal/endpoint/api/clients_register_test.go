package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestRegister_ConfidentialClientIsReturnedWithSecret(t *testing.T) {
	b := newTestEnv(t)
	own := uuid.NewString()
	answer := b.registered(confidential(fields{"unknownKey": 1, "kind": "service", "clientId": own}))
	id, secret := answer.Text("clientId"), answer.Text("clientSecret")
	b.WantsAll("registration", answer, 201, map[string]any{
		"kind":                    "confidential",
		"tenantId":                b.Fixture.WorkspaceID.String(),
		"name":                    "Donor sync",
		"redirectUris":            []any{"https://sync.example.org/callback"},
		"requiredPermissions":     []any{"programmes:read:programmes"},
		"tokenEndpointAuthMethod": "client_secret_json",
		"clientId":                id,
		"clientSecret":            secret,
		"createdAt":               answer.Text("createdAt"),
	})
	b.Equal("has the id that was sent", id == own, false)
	if !credential.ClientSecret.Matches(secret) || !strings.HasPrefix(secret, "alm_cs_") {
		t.Error("the secret does not have the format of a client secret")
	}
	at, err := time.Parse(time.RFC3339Nano, answer.Text("createdAt"))
	if err != nil || time.Since(at).Abs() > time.Hour {
		t.Errorf("createdAt: %s, %v", at, err)
	}
	b.WantsHeader("registration", answer, "Location", b.base+clients+"/"+id)
	b.wantEvents(1, audit.ClientRegistered, "client:"+id)
	b.WantsRows("hashes of the secret", 1, `account.client_secrets where client_id = $1 and hash = $2`, id,
		credential.Hash(secret))
	for _, method := range []string{"client_secret_json", "client_secret_post", "client_secret_basic"} {
		answer := b.registered(confidential(fields{"tokenEndpointAuthMethod": method}))
		b.WantsMembers("the requested method", answer, map[string]any{"tokenEndpointAuthMethod": method})
	}
}

func TestRegister_ConnectorHasNoSecret(t *testing.T) {
	b := newTestEnv(t)
	for _, platform := range []string{"claude", "chatgpt"} {
		for _, resource := range []string{apitest.REST, apitest.MCP} {
			answer := b.registered(connector(fields{"connectorPlatform": platform, "resource": resource}))
			b.WantsMembers(platform, answer, map[string]any{
				"kind":                    "connector",
				"connectorPlatform":       platform,
				"resource":                resource,
				"tokenEndpointAuthMethod": "none",
				"clientSecret":            nil,
			})
			b.Equal("members", len(answer.Object()), 10)
		}
	}
	b.registered(connector(fields{"tokenEndpointAuthMethod": "none"}))
	b.wantSecrets(0)
}

// client.TestAccept_RefusesInvalidRegistrations and client.TestRefuseRedirect have what else is refused.
func TestRegister_BadRegistrationIs400(t *testing.T) {
	b := newTestEnv(t)
	const metadata, redirect = "invalid_client_metadata", "invalid_redirect_uri"
	app := func(name string, value any) string { return confidential(fields{name: value}) }
	bot := func(name string, value any) string { return connector(fields{name: value}) }
	twice := strings.TrimSuffix(confidential(nil), "}") + `,"redirectUris":["https://evil.example/"]}`
	otherCase := confidential(fields{"redirectUris": nil, "RedirectUris": []string{"https://evil.example/"}})
	uris := func(all ...string) string { return app("redirectUris", all) }
	for what, c := range map[string]struct{ body, code string }{
		"no name":                    {app("name", nil), metadata},
		"an empty name":              {app("name", ""), metadata},
		"a name that is a number":    {app("name", 7), metadata},
		"no permissions":             {app("requiredPermissions", nil), metadata},
		"an empty list":              {app("requiredPermissions", []string{}), metadata},
		"permissions as one text":    {app("requiredPermissions", "programmes:read:programmes"), metadata},
		"an unknown platform":        {bot("connectorPlatform", "other"), metadata},
		"a platform in another case": {bot("connectorPlatform", "Claude"), metadata},
		"an empty platform":          {bot("connectorPlatform", ""), metadata},
		"an empty resource":          {app("resource", ""), metadata},
		"an empty method":            {app("tokenEndpointAuthMethod", ""), metadata},
		"no redirect URIs":           {app("redirectUris", nil), redirect},
		"no redirect URI":            {uris(), redirect},
		"21 redirect URIs":           {uris(strings.Fields(strings.Repeat("https://a.example/ ", 21))...), redirect},
		"http":                       {uris("http://app.example.org/callback"), redirect},
		"malformed JSON":             {"{", metadata},
		"an array":                   {"[]", metadata},
		"null":                       {"null", metadata},
		"a key twice":                {`{"name":"a","name":"b"}`, metadata},
		"redirect URIs twice":        {twice, metadata},
		"RedirectUris":               {otherCase, redirect},
		"trailing data":              {confidential(nil) + "{}", metadata},
		"no body":                    {"", metadata},
		"Name":                       {confidential(fields{"name": nil, "Name": "Donor sync"}), metadata},
	} {
		b.Wants(what, b.send("POST", clients, c.body), 400, c.code)
	}
	b.Wants("a long body", b.send("POST", clients, app("name", strings.Repeat("x", 64<<10))), 413, "invalid_request")
	raw := func(headers ...string) apitest.Answer {
		return b.Send("POST", b.base+clients, confidential(nil), append(apitest.Bearer(b.token), headers...)...)
	}
	for _, contentType := range []string{"application/x-www-form-urlencoded", "text/plain", ""} {
		b.Wants("JSON with content type "+contentType, raw("Content-Type", contentType), 400, metadata)
	}
	encoded := raw("Content-Type", "application/json", "Content-Encoding", "gzip")
	b.Wants("an encoded body", encoded, 400, metadata)
	b.Contains("an encoded body", encoded.Body, "Content-Encoding is not supported")
	b.wantClients(0)
}

func TestRegister_LoopbackRedirectsAndLimitsAreAccepted(t *testing.T) {
	b := newTestEnv(t)
	const long = "https://app.example.org/"
	for _, uris := range [][]string{
		{"http://localhost:1234/cb"},
		{"http://127.0.0.1/cb"},
		{"http://[::1]:8090/cb"},
		{"https://app.example.org/cb?tenant=1"},
		{long + strings.Repeat("x", 2048-len(long))},
		strings.Fields(strings.Repeat("https://a.example/ ", 20)),
	} {
		answer := b.registered(confidential(fields{"redirectUris": uris}))
		if got, _ := answer.Object()["redirectUris"].([]any); len(got) != len(uris) || got[0] != uris[0] {
			t.Errorf("stored as %v", got)
		}
	}
}

// The registrar requires permissions that the token lacks, or that the user lacks.
func TestRegister_CannotRequireMoreThanCredentialHolds(t *testing.T) {
	b := newTestEnv(t)
	requires := func(permissions ...perm.Permission) string {
		return confidential(fields{"requiredPermissions": permissions})
	}
	more := requires(perm.ProgrammesRead, perm.ProgrammesWrite)
	b.Wants("the user lacks it", b.send("POST", clients, more), 403, "FORBIDDEN")
	b.token = b.Fixture.Token(b.manager, perm.AccountAPIAccess)
	b.Wants("the token lacks it", b.send("POST", clients, confidential(nil)), 403, "FORBIDDEN")
	b.registered(requires(perm.AccountAPIAccess))
	b.wantClients(1)
}
