package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

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

// A client that follows the metadata finds a handler at every endpoint, and no grant type that is not offered.
// token.TestMetadata_DescribesServer has the other members.
func TestMetadata_AuthorizationServer(t *testing.T) {
	p := inParallel(t)
	document := p.API().Get(t, "/.well-known/oauth-authorization-server").Wants(t, http.StatusOK).Object(t)
	if document["issuer"] != p.BaseURL || document["authorization_response_iss_parameter_supported"] != true {
		t.Errorf("wrong issuer or iss flag: %v", document)
	}
	for name, want := range map[string][]string{
		"grant_types_supported": {"authorization_code", "refresh_token"},
		"scopes_supported":      append(harness.ForConnectors(), "offline_access"),
	} {
		if got := texts(document[name]); !slices.Equal(sorted(got), sorted(want)) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
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
	attempt := p.DemoConnector().Begin()
	p.API().Form(t, "/token", attempt.CodeForm(attempt.Code(t, p.Person(t, p.Demo.Users.Owner)))).Tokens(t)
	keys := p.API().Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK)
	same := p.API().Get(t, "/.well-known/jwks.json").Wants(t, http.StatusOK)
	if string(keys.Body) != string(same.Body) || same.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("the answers differ:\n%s\n%s", keys, same)
	}
}

// Clients that are not registered: the client id is the URL of their metadata document.

const nativeCallback = "http://localhost:54321/callback"

// The go-sdk's client connects with its metadata document, which the two processes know as a client. Each rule for such
// clients is in authorize.TestDocumentClient_*, authorize.TestChoice_*, token.TestDocumentClient_* and
// token.TestAssertion_*, and TestBrowser_ChoosesWorkspace has the page on which the user chooses a workspace.
func TestDocuments_IdentifyClients(t *testing.T) {
	p, site := enterWithDocuments(t)
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
	running, p := inLaboratory(t)
	site := harness.NewMetadataHost(t)
	port := site.Name()[strings.LastIndex(site.Name(), ":"):]
	hosts := []string{
		site.Name(), "localhost" + port, "10.0.0.1" + port, "169.254.169.254" + port, "[::1]" + port,
		"[::ffff:127.0.0.1]" + port, "[64:ff9b::7f00:1]" + port,
	}
	running.Authservers[0].Set("ALMONER_CLIENT_DOMAINS", strings.Join(hosts, "=other,")+"=other")
	must(t, running.Authservers[0].Restart(t.Context()))
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
