package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 4.2 and contract, section 5: registration requests and responses.

// clientKeys are the fields that every application has: "every field as stored".
var clientKeys = []string{"clientId", "name", "redirectUris", "requiredPermissions", "tokenEndpointAuthMethod"}

// wantsClient checks that an application has the keys in clientKeys and more, and no secret unless more contains it.
// Other keys (a date, say) are allowed.
func wantsClient(t *testing.T, answer harness.Answer, object map[string]any, more ...string) {
	t.Helper()
	for _, key := range slices.Concat(clientKeys, more) {
		if _, there := object[key]; !there {
			t.Errorf("%s is missing:\n%s", key, answer)
		}
	}
	if _, there := object["clientSecret"]; there && !slices.Contains(more, "clientSecret") {
		t.Errorf("unexpected secret:\n%s", answer)
	}
}

func wantsList(t *testing.T, object map[string]any, key string, want ...string) {
	t.Helper()
	values, _ := object[key].([]any)
	got := make([]string, len(values))
	for i, value := range values {
		got[i], _ = value.(string)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s is %v, want %v", key, got, want)
	}
}

func TestRegister_ConfidentialReturnsFieldsAndSecret(t *testing.T) {
	t.Parallel()
	ws := enter(t).NewWorkspace(t)
	answer := ws.Register(t, harness.ConfidentialBody(harness.ReadProgrammes)).Wants(t, http.StatusCreated)
	answer.WantsHeader(t, "Cache-Control", "no-store")
	object := answer.Object(t)
	wantsClient(t, answer, object, "clientSecret")
	wantsList(t, object, "redirectUris", harness.RedirectURI)
	wantsList(t, object, "requiredPermissions", harness.ReadProgrammes)
	if object["name"] != "Gift Aid export" || object["tokenEndpointAuthMethod"] != "client_secret_json" {
		t.Errorf("wrong name, or not the default method:\n%s", answer)
	}
	if id, _ := object["clientId"].(string); id == "" {
		t.Errorf("no clientId:\n%s", answer)
	}
	secret, _ := object["clientSecret"].(string)
	if !regexp.MustCompile(`^alm_cs_[0-9A-Za-z]{43,}[0-9A-Za-z]{6}$`).MatchString(secret) {
		t.Errorf("the secret of %d characters does not have the format of section 2 of the contract", len(secret))
	}
}

func TestRegister_ConnectorHasNoSecret(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	for _, platform := range []string{"claude", "chatgpt"} {
		for resource, permissions := range map[string][]string{
			p.BaseURL + "/v1":  {harness.ReadProgrammes, harness.WriteProgrammes},
			p.BaseURL + "/mcp": {harness.ReadProgrammes},
		} {
			body := harness.ConnectorBody(resource, permissions...)
			body["connectorPlatform"] = platform
			answer := ws.Register(t, body).Wants(t, http.StatusCreated)
			object := answer.Object(t)
			wantsClient(t, answer, object, "connectorPlatform", "resource")
			if object["connectorPlatform"] != platform || object["resource"] != resource ||
				object["tokenEndpointAuthMethod"] != "none" {
				t.Errorf("wrong connectorPlatform, resource or tokenEndpointAuthMethod:\n%s", answer)
			}
		}
	}
}

func TestRegister_WorkspaceIsFromURL(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, other := p.NewWorkspace(t), p.NewWorkspace(t)
	caller := p.As(ws.Token).With("X-Tenant-Id", other.Workspace.ID)
	caller.JSON(t, http.MethodPost, ws.Clients(), harness.ConfidentialBody(harness.ReadProgrammes)).
		Wants(t, http.StatusCreated)
	if list := p.As(other.Token).Get(t, other.Clients()).Object(t)["data"].([]any); len(list) != 0 {
		t.Error("the tenant header had an effect on an account route")
	}
}

func TestRegister_IgnoresUnknownKeys(t *testing.T) {
	t.Parallel()
	ws := enter(t).NewWorkspace(t)
	body := harness.ConfidentialBody(harness.ReadProgrammes)
	body["kind"], body["clientId"], body["logo"] = "service", uuid.NewString(), map[string]any{"deep": []int{1}}
	object := ws.Register(t, body).Wants(t, http.StatusCreated).Object(t)
	if object["clientId"] == body["clientId"] || object["kind"] == "service" {
		t.Error("an unknown key had an effect")
	}
}

// The rows "invalid body" of the table: each body has one error.
func TestRegister_RejectsInvalidMetadata(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	wrong := func(key string, value any) map[string]any {
		body := harness.ConfidentialBody(harness.ReadProgrammes)
		body[key] = value
		return body
	}
	wrongConnector := func(key string, value any) map[string]any {
		body := harness.ConnectorBody(p.BaseURL+"/v1", harness.ReadProgrammes)
		body[key] = value
		return body
	}
	without := func(body map[string]any, key string) map[string]any { delete(body, key); return body }
	bodies := map[string]any{
		"malformed JSON":         `{"name":"x"`,
		"not an object":          `[]`,
		"empty body":             ``,
		"two objects":            `{"name":"x"}{"name":"y"}`,
		"no name":                without(harness.ConfidentialBody(harness.ReadProgrammes), "name"),
		"empty name":             wrong("name", ""),
		"blank name":             wrong("name", "   "),
		"name no text":           wrong("name", 7),
		"no permissions":         without(harness.ConfidentialBody(), "requiredPermissions"),
		"empty permissions":      wrong("requiredPermissions", []string{}),
		"unknown permission":     wrong("requiredPermissions", []string{"programmes:delete:programmes"}),
		"permission in capitals": wrong("requiredPermissions", []string{"Programmes:Read:Programmes"}),
		"permissions no list":    wrong("requiredPermissions", harness.ReadProgrammes),
		"unknown auth method":    wrong("tokenEndpointAuthMethod", "private_key_jwt"),
		"unknown platform":       wrongConnector("connectorPlatform", "copilot"),
		"platform in capitals":   wrongConnector("connectorPlatform", "Claude"),
		"platform, no resource":  without(harness.ConnectorBody("", harness.ReadProgrammes), "resource"),
		"other resource":         wrongConnector("resource", p.BaseURL+"/v2"),
		"resource with slash":    wrongConnector("resource", p.BaseURL+"/v1/"),
		"resource in capitals":   wrongConnector("resource", p.BaseURL+"/V1"),
		"connector, API access": wrongConnector("requiredPermissions",
			[]string{harness.APIAccess, harness.ReadProgrammes}),
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			p.As(ws.Token).JSON(t, http.MethodPost, ws.Clients(), body).
				WantsFlat(t, http.StatusBadRequest, "invalid_client_metadata")
		})
	}
}

func TestRegister_ChecksRedirectURIs(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	register := func(t *testing.T, uris ...string) harness.Answer {
		body := harness.ConfidentialBody(harness.ReadProgrammes)
		body["redirectUris"] = append([]string{}, uris...)
		return ws.Register(t, body)
	}
	for _, uri := range []string{
		"https://a.example/cb",
		"https://a.example",
		"https://a.example:8443/cb?app=1&mode=x",
		"http://localhost/cb",
		"http://localhost:3000/cb",
		"http://127.0.0.1:8090/callback",
		"http://[::1]:9000/cb",
		"https://a.example/" + strings.Repeat("p", 2048-len("https://a.example/")),
	} {
		t.Run("good "+uri[:min(len(uri), 40)], func(t *testing.T) {
			object := register(t, uri).Wants(t, http.StatusCreated).Object(t)
			wantsList(t, object, "redirectUris", uri)
		})
	}
	native := harness.ConnectorBody(p.BaseURL+"/v1", harness.ReadProgrammes)
	for _, uri := range []string{"cursor://anysphere.cursor-mcp/oauth/callback", "com.example.app:/cb"} {
		native["redirectUris"] = []string{uri}
		wantsList(t, ws.Register(t, native).Wants(t, http.StatusCreated).Object(t), "redirectUris", uri)
		register(t, uri).WantsFlat(t, http.StatusBadRequest, "invalid_redirect_uri")
	}
	for _, uri := range []string{
		"intent://a/cb", "web+app://a/cb", "MS-app:/cb", "cursor://a/cb?code=1", "cursor://a/#x",
	} {
		native["redirectUris"] = []string{uri}
		ws.Register(t, native).WantsFlat(t, http.StatusBadRequest, "invalid_redirect_uri")
	}
	for _, uri := range []string{
		"",
		"/cb",
		"a.example/cb",
		"//a.example/cb",
		"http://a.example/cb",
		"http://localhost.a.example/cb",
		"http://127.0.0.1.a.example/cb",
		"https://a.example/cb#part",
		"https://a.example/cb#",
		"https://me@a.example/cb",
		"https://me:pw@a.example/cb",
		"https://*.a.example/cb",
		"https://a.example/*",
		"javascript:alert(1)",
		"JAVASCRIPT:alert(1)",
		"data:text/html,x",
		"app.almoner:/cb",
		"https:///cb",
		"https://",
		"https://a.example/cb?code=1",
		"https://a.example/cb?x=1&state=2",
		"https://a.example/cb?iss=x",
		"https://a.example/cb?error=x",
		"https://a.example/cb?error_description=x",
		"https://a.example/cb?response=x",
		"https://a.example/cb?c%6Fde=1",
		"https://a.example/" + strings.Repeat("p", 2049-len("https://a.example/")),
		"https://a.example/c b",
		" https://a.example/cb",
	} {
		t.Run("bad "+uri[:min(len(uri), 40)], func(t *testing.T) {
			register(t, uri).WantsFlat(t, http.StatusBadRequest, "invalid_redirect_uri")
			register(t, "https://a.example/good", uri).WantsFlat(t, http.StatusBadRequest, "invalid_redirect_uri")
		})
	}
}

func TestRegister_OneToTwentyRedirectURIs(t *testing.T) {
	t.Parallel()
	ws := enter(t).NewWorkspace(t)
	var uris []string
	for i := range 21 {
		uris = append(uris, "https://a.example/cb/"+string(rune('a'+i)))
	}
	body := harness.ConfidentialBody(harness.ReadProgrammes)
	body["redirectUris"] = uris[:20]
	wantsList(t, ws.Register(t, body).Wants(t, http.StatusCreated).Object(t), "redirectUris", uris[:20]...)
	for _, wrong := range []any{uris, []string{}, "https://a.example/cb", []any{"https://a.example/cb", 7}} {
		body["redirectUris"] = wrong
		ws.Register(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_redirect_uri", "invalid_client_metadata")
	}
	delete(body, "redirectUris")
	ws.Register(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_redirect_uri", "invalid_client_metadata")
}
