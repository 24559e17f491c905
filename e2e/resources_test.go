package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

var permissionID = regexp.MustCompile(`[a-z]+:[a-z]+:[a-z]+`)

// operationsUse returns the permissions that the operations of the REST API need, from their descriptions.
func operationsUse(t *testing.T) []string {
	t.Helper()
	checker, err := harness.Checker()
	must(t, err)
	var out []string
	for _, o := range checker.Document.Operations() {
		if !strings.HasPrefix(o.Path, "/v1/") {
			continue
		}
		for _, id := range permissionID.FindAllString(o.Text("description"), -1) {
			if !strings.HasPrefix(id, "account:") { // never granted to a connector
				out = append(out, id)
			}
		}
	}
	return slices.Compact(sorted(out))
}

// toolsUse returns the permissions that the listed tools need, from the errors for a credential without them.
func toolsUse(t *testing.T, p *harness.Product, ws harness.TestWorkspace) []string {
	t.Helper()
	nothing := mcp(p, p.Database.Token(t, ws.Workspace, ws.Owner, harness.APIAccess))
	var out []string
	tools, _ := rpc(t, nothing, "tools/list", nil).Wants(t, http.StatusOK).Object(t)["result"].(map[string]any)
	list, _ := tools["tools"].([]any)
	if len(list) == 0 {
		t.Fatal("there are no tools")
	}
	for _, entry := range list {
		tool, _ := entry.(map[string]any)
		answer := rpc(t, nothing, "tools/call", map[string]any{"name": tool["name"], "arguments": map[string]any{}})
		if answer.Status == http.StatusOK {
			continue
		}
		needed := permissionID.FindString(answer.WantsNested(t, http.StatusForbidden, "FORBIDDEN"))
		if needed == "" {
			t.Fatalf("the error of %v does not name the permission:\n%s", tool["name"], answer)
		}
		out = append(out, needed)
	}
	return slices.Compact(sorted(out))
}

// Contract, section 5: the challenge, the resource's metadata, the consent page and the token name exactly the
// permissions that the operations of the resource need, even if an older client is registered for more.
func TestConsent_NamesUsablePermissions(t *testing.T) {
	p, ws := inWorkspace(t)
	person := p.Person(t, ws.Owner)
	for path, want := range map[string][]string{"/v1": operationsUse(t), "/mcp": toolsUse(t, p, ws)} {
		t.Run(path, func(t *testing.T) {
			if len(want) == 0 {
				t.Fatal("no operation needs a permission")
			}
			same := func(where string, got []string) {
				t.Helper()
				if !slices.Equal(sorted(got), want) {
					t.Errorf("%s names %v, want %v", where, got, want)
				}
			}
			probe := map[string]string{"/v1": programmes, "/mcp": mcpPath}[path]
			for name, api := range map[string]harness.API{
				"the first challenge":          p.API(),
				"the challenge of a bad token": p.As("nonsense"),
			} {
				challenge := api.Get(t, probe).Wants(t, http.StatusUnauthorized).Header.Get("WWW-Authenticate")
				_, scope, _ := strings.Cut(challenge, `scope="`)
				scope, _, _ = strings.Cut(scope, `"`)
				same(name, strings.Fields(scope))
			}
			metadata := p.API().Get(t, "/.well-known/oauth-protected-resource"+path).Wants(t, http.StatusOK).Object(t)
			same("the metadata", texts(metadata["scopes_supported"]))

			connector := ws.ConnectorFor(t, p.BaseURL+path, want...)
			p.Database.Exec(t, `update account.oauth_clients set required_permissions = $2 where id = $1`,
				connector.ClientID, harness.ForConnectors())
			for _, scope := range []string{"", "offline_access", strings.Join(harness.ForConnectors(), " ")} {
				attempt := connector.Begin()
				attempt.Query.Set("scope", scope)
				page := person.Consent(t, attempt.Query)
				same("the consent page", onThePage(page))
				tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t)
				same("the answer of the token endpoint", strings.Fields(tokens.Scope))
				claimed, _ := harness.Decode(t, tokens.AccessToken).Claims["scope"].(string)
				same("the token", strings.Fields(claimed))
				refreshed := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
				same("a refreshed token", strings.Fields(refreshed.Scope))
			}
			for _, surplus := range perm.ForConnectors() {
				if slices.Contains(want, string(surplus)) {
					continue
				}
				body := harness.ConnectorBody(p.BaseURL+path, append(slices.Clone(want), string(surplus))...)
				ws.Register(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_client_metadata")
			}
		})
	}
}

// onThePage returns the permissions whose titles are on the consent page.
func onThePage(page harness.Page) []string {
	ids := map[string]string{}
	for _, entry := range perm.All() {
		ids[entry.Title] = string(entry.ID)
	}
	var out []string
	page.Find(".permission-title, .left-out li").Each(func(_ int, title *goquery.Selection) {
		out = append(out, ids[strings.TrimSpace(title.Text())])
	})
	return out
}
