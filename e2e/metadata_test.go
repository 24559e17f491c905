package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jwk"
	"github.com/lestrrat-go/jwx/v2/jwt"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
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

// TestMetadata_EveryEndpointExists checks the deployment's addresses.
func TestMetadata_AuthorizationServer(t *testing.T) {
	p := inParallel(t)
	document := p.API().Get(t, "/.well-known/oauth-authorization-server").Wants(t, http.StatusOK).Object(t)
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
}

// A client that follows the metadata finds a handler at every endpoint.
func TestMetadata_EveryEndpointExists(t *testing.T) {
	p := inParallel(t)
	document := p.API().Get(t, "/.well-known/oauth-authorization-server").Wants(t, http.StatusOK).Object(t)
	if document["issuer"] != p.BaseURL || document["authorization_response_iss_parameter_supported"] != true {
		t.Errorf("wrong issuer or iss flag: %v", document)
	}
	for name, c := range map[string]struct {
		api                harness.API
		method, base, path string
	}{
		"token_endpoint":         {p.API(), http.MethodPost, p.BaseURL, harness.TokenPath},
		"revocation_endpoint":    {p.API(), http.MethodPost, p.BaseURL, harness.RevokePath},
		"introspection_endpoint": {p.API(), http.MethodPost, p.BaseURL, harness.IntrospectPath},
		"jwks_uri":               {p.API(), http.MethodGet, p.BaseURL, "/v1/account/oauth/jwks"},
		"authorization_endpoint": {p.App(), http.MethodGet, p.AppURL, "/oauth/authorize"},
	} {
		if document[name] != c.base+c.path {
			t.Errorf("%s is %v, want %s", name, document[name], c.base+c.path)
		}
		answer := c.api.Send(t, c.method, c.path, "", "")
		if answer.Status == http.StatusNotFound || answer.Status == http.StatusMethodNotAllowed ||
			answer.Status >= http.StatusInternalServerError {
			t.Errorf("%s has no handler:\n%s", name, answer)
		}
	}
}

// A client that knows only the API's URL reaches the consent page from the first 401.
func TestMetadata_ChallengeLeadsToConsentPage(t *testing.T) {
	p := inParallel(t)
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
	p := inParallel(t)
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
	p := inParallel(t)
	keys := p.API().Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK)
	same := p.API().Get(t, "/.well-known/jwks.json").Wants(t, http.StatusOK)
	if string(keys.Body) != string(same.Body) || same.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("the answers differ:\n%s\n%s", keys, same)
	}
}

// Clients that are not registered: the client id is the URL of their metadata document.

const nativeCallback = "http://localhost:54321/callback"

func TestDocuments_IdentifyClients(t *testing.T) {
	t.Parallel()
	p, site := enterWithDocuments(t)
	t.Run("metadata says so", func(t *testing.T) { metadataAnnouncesDocuments(t, p) })
	t.Run("native client", func(t *testing.T) { nativeClientConnects(t, p, site) })
	t.Run("no workspace is preselected", func(t *testing.T) { noWorkspaceIsPreselected(t, p, site) })
	t.Run("bad documents", func(t *testing.T) { invalidDocumentsShowPage(t, p, site) })
	t.Run("private_key_jwt", func(t *testing.T) { clientAuthenticatesWithJWT(t, p, site) })
	t.Run("the go-sdk's client", func(t *testing.T) { goSDKConnects(t, p, site) })
}

func metadataAnnouncesDocuments(t *testing.T, p *harness.Product) {
	document := p.API().Get(t, "/.well-known/oauth-authorization-server").Wants(t, http.StatusOK).Object(t)
	if document["client_id_metadata_document_supported"] != true ||
		!slices.Contains(texts(document["token_endpoint_auth_methods_supported"]), "private_key_jwt") ||
		!slices.Contains(texts(document["token_endpoint_auth_signing_alg_values_supported"]), "ES256") {
		t.Errorf("unexpected metadata: %v", document)
	}
}

func nativeClientConnects(t *testing.T, p *harness.Product, site *harness.MetadataHost) {
	address := site.Client("/oauth/native", []string{"http://localhost/callback", "http://127.0.0.1/callback"}, nil)
	client := p.DocumentClient(address, nativeCallback, p.BaseURL+"/v1")
	attempt := client.Begin()
	page := p.Person(t, p.Demo.Users.Owner).Arrive(t, p.AuthorizeURL(attempt.Query))
	page.WantsText(t, "Claude Code", "From "+site.Name(), p.Demo.Workspaces.Main.Name, p.Demo.Workspaces.Empty.Name,
		p.Demo.Workspaces.LLMDisabled.Name, "Connectors are switched off here.")
	consent := page.Choose(t, p.Demo.Workspaces.Empty)
	consent.WantsText(t, "Claude Code asks for access to "+p.Demo.Workspaces.Empty.Name, "From "+site.Name(),
		"localhost:54321", "to an app on this computer")
	callback := consent.Press(t, "approve").Callback(t)
	if callback.URI != nativeCallback || callback.Values.Get("iss") != p.BaseURL ||
		callback.Values.Get("state") != attempt.Query.Get("state") {
		t.Fatalf("redirected to %s", callback.URI)
	}
	tokens := attempt.Post(t, attempt.CodeForm(callback.Code())).Tokens(t)
	p.In(p.Demo.Workspaces.Empty, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	p.In(p.Demo.Workspaces.Main, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusForbidden)
	if id := harness.Decode(t, tokens.AccessToken).Claims["client_id"]; id != address {
		t.Errorf("client_id is %v", id)
	}
	requests := site.Requests()
	refreshed := client.Refresh(t, tokens.RefreshToken).Tokens(t)
	if site.Requests() != requests {
		t.Error("a refresh fetched the document")
	}
	client.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	p.In(p.Demo.Workspaces.Empty, refreshed.AccessToken).Get(t, programmes).Wants(t, http.StatusUnauthorized)
	for _, elsewhere := range []string{
		"http://localhost:54321/other", "http://[::1]:54321/callback", "https://localhost:54321/callback",
	} {
		moved := p.DocumentClient(address, elsewhere, p.BaseURL+"/v1").Begin()
		p.Person(t, p.Demo.Users.Owner).Open(t, p.AuthorizeURL(moved.Query)).WantsPage(t, http.StatusBadRequest)
	}
}

func noWorkspaceIsPreselected(t *testing.T, p *harness.Product, site *harness.MetadataHost) {
	ws := p.NewWorkspace(t)
	attempt := p.DocumentClient(site.Client("/oauth/chosen", []string{nativeCallback}, nil), nativeCallback,
		p.BaseURL+"/v1").Begin()
	attempt.Query.Set("workspace", ws.Workspace.ID)
	person := p.Person(t, ws.Member(t, harness.ReadProgrammes)) // of one workspace alone
	page := person.Arrive(t, p.AuthorizeURL(attempt.Query))
	if page.IsConsent() || page.Find("input[name=workspace]").Length() != 1 ||
		page.Find("input[name=workspace][checked]").Length() != 0 {
		t.Errorf("want a page without a chosen workspace:\n%s", page)
	}
	page.Press(t, "choose").WantsPage(t, http.StatusBadRequest).WantsText(t, "Choose a workspace.")
	page.Choose(t, p.Demo.Workspaces.Empty).WantsPage(t, http.StatusForbidden)
	p.Database.SetLLM(t, ws.Workspace, false)
	person.Open(t, p.AuthorizeURL(attempt.Query)).WantsPage(t, http.StatusForbidden).
		WantsText(t, "can switch on its LLM integration")
	p.Database.SetLLM(t, ws.Workspace, true)
	if callback := page.Press(t, "deny").Callback(t); callback.Values.Get("error") != "access_denied" {
		t.Errorf("denied: %v", callback.Values)
	}
}

func invalidDocumentsShowPage(t *testing.T, p *harness.Product, site *harness.MetadataHost) {
	native := []string{nativeCallback}
	good := site.Client("/oauth/good", native, nil)
	with := func(member string, value any) string {
		return site.Client("/oauth/"+member, native, map[string]any{member: value})
	}
	person := p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	open := func(address string) harness.Page {
		return person.Open(t, p.AuthorizeURL(p.DocumentClient(address, nativeCallback, p.BaseURL+"/v1").Begin().Query))
	}
	for name, address := range map[string]string{
		"secret":         with("client_secret", "x"),
		"end of secret":  with("client_secret_expires_at", 0),
		"shared secret":  with("token_endpoint_auth_method", "client_secret_post"),
		"another's name": with("client_id", good),
		"too long":       with("x", strings.Repeat("x", 6<<10)),
		"redirect":       site.Answer("/oauth/moved", http.RedirectHandler(good, http.StatusFound).ServeHTTP),
		"a page": site.Answer("/oauth/page", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>"))
		}),
		"query":      good + "?x=1",
		"fragment":   good + "#x",
		"dots":       site.URL + "/oauth/./good",
		"user":       strings.Replace(good, "https://", "https://me@", 1),
		"http":       strings.Replace(good, "https://", "http://", 1),
		"no path":    "https://" + site.Name(),
		"not listed": "https://claude.ai/oauth/claude-code-client-metadata",
	} {
		if page := open(address); page.Status != http.StatusBadRequest || page.Header.Get("Location") != "" {
			t.Errorf("%s:\n%s", name, page)
		}
	}
	open(site.Answer("/oauth/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })).
		WantsPage(t, http.StatusServiceUnavailable).WantsText(t, "does not respond")
}

func clientAuthenticatesWithJWT(t *testing.T, p *harness.Product, site *harness.MetadataHost) {
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	key, err := jwk.FromRaw(raw)
	must(t, err)
	must(t, key.Set(jwk.KeyIDKey, "k"))
	public, err := key.PublicKey()
	must(t, err)
	const callback = "https://chatgpt.com/connector_platform_oauth_redirect"
	address := site.Client("/oauth/client.json", []string{callback}, map[string]any{
		"client_name":                "ChatGPT",
		"token_endpoint_auth_method": "private_key_jwt",
		"jwks_uri":                   site.Put("/oauth/jwks.json", map[string]any{"keys": []any{public}}),
	})
	client := p.DocumentClient(address, callback, p.BaseURL+"/mcp")
	signed := func(form url.Values, audience string) url.Values {
		token, err := jwt.NewBuilder().Issuer(address).Subject(address).Audience([]string{audience}).
			JwtID(uuid.NewString()).
			IssuedAt(time.Now()).
			Expiration(time.Now().Add(time.Minute)).
			Build()
		must(t, err)
		text, err := jwt.Sign(token, jwt.WithKey(jwa.ES256, key))
		must(t, err)
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", string(text))
		return form
	}
	attempt := client.Begin()
	page := p.Person(t, p.Demo.Users.Owner).Arrive(t, p.AuthorizeURL(attempt.Query)).Choose(t, p.Demo.Workspaces.Main)
	code := page.Approve(t)
	attempt.Post(t, attempt.CodeForm(code)).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	attempt.Post(t, signed(attempt.CodeForm(code), "https://evil.example")).
		WantsFlat(t, http.StatusBadRequest, "invalid_client")
	once := signed(attempt.CodeForm(code), p.BaseURL)
	tokens := attempt.Post(t, once).Tokens(t)
	again := client.RefreshForm(tokens.RefreshToken)
	again.Set("client_assertion_type", once.Get("client_assertion_type"))
	again.Set("client_assertion", once.Get("client_assertion"))
	client.Post(t, again).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	client.Post(t, client.RefreshForm(tokens.RefreshToken)).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	tokens = client.Post(t, signed(client.RefreshForm(tokens.RefreshToken), p.BaseURL+harness.TokenPath)).Tokens(t)
	rpc(t, mcp(p, tokens.AccessToken), "tools/list", nil).Wants(t, http.StatusOK)
}

func goSDKConnects(t *testing.T, p *harness.Product, site *harness.MetadataHost) {
	connector := p.DocumentClient(site.Client("/oauth/sdk", []string{"http://127.0.0.1/callback"}, nil),
		"http://127.0.0.1:41234/callback", p.BaseURL+"/mcp")
	person := p.Person(t, p.Demo.Users.Reader)
	w := &sdkUser{t: t, connector: connector}
	w.decide = func(address string) url.Values {
		return person.Arrive(t, address).Choose(t, p.Demo.Workspaces.Main).Press(t, "approve").Callback(t).Values
	}
	session := w.connect(p)
	for range 2 {
		result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "whoami"})
		mustRedacted(t, err)
		who, err := json.Marshal(result.StructuredContent)
		must(t, err)
		if result.IsError || !bytes.Contains(who, []byte(p.Demo.Workspaces.Main.Name)) ||
			!bytes.Contains(who, []byte(connector.ClientID)) {
			t.Errorf("whoami: %s", who)
		}
		w.source.expire()
	}
	if len(w.source.replays) != 2 || w.consents != 1 {
		t.Errorf("%d refresh tokens, %d consents", len(w.source.replays), w.consents)
	}
}

// In production the server connects to no private or local address, even if the host is listed.
func TestDocuments_OnlyPublicAddressesAreFetched(t *testing.T) {
	t.Parallel()
	site := harness.NewMetadataHost(t)
	port := site.Name()[strings.LastIndex(site.Name(), ":"):]
	hosts := []string{
		site.Name(), "localhost" + port, "10.0.0.1" + port, "169.254.169.254" + port, "[::1]" + port,
		"[::ffff:127.0.0.1]" + port, "[64:ff9b::7f00:1]" + port,
	}
	settings := map[string]string{"ALMONER_CLIENT_DOMAINS": strings.Join(hosts, "=other,") + "=other"}
	p := harness.NewProduct(t, harness.Private(t, harness.Options{Settings: settings}), &met)
	site.Client("/oauth/client", []string{nativeCallback}, nil)
	for _, host := range hosts {
		const timeout = 5 * time.Second // of a host that is dialled
		tries := 0
		testkit.Quick(t, timeout, func() {
			address := "https://" + host + "/oauth/client"
			if tries++; tries > 1 { // the failure is remembered
				address += fmt.Sprint(tries)
			}
			attempt := p.DocumentClient(address, nativeCallback, p.BaseURL+"/v1").Begin()
			p.Person(t, p.Demo.Users.Owner).Open(t, p.AuthorizeURL(attempt.Query)).
				WantsPage(t, http.StatusServiceUnavailable)
		})
	}
	if asked := site.Requests(); asked != 0 {
		t.Errorf("%d requests to the website", asked)
	}
}
