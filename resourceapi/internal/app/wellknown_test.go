package app

import (
	"slices"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// RFC 9728; contract, sections 1 and 5.
func TestWellKnown_MetadataIsPublic(t *testing.T) {
	s := newService(t)
	const known = "/.well-known/oauth-protected-resource"
	for path, resource := range map[string]string{
		known + "/v1":  base + "/v1",
		known + "/mcp": base + "/mcp",
		known:          base + "/mcp",
		"/mcp" + known: base + "/mcp",
	} {
		a := s.get(path, header{"Origin": "https://elsewhere.example"})
		var document struct {
			Resource             string   `json:"resource"`
			AuthorizationServers []string `json:"authorization_servers"`
			Scopes               []string `json:"scopes_supported"`
			Methods              []string `json:"bearer_methods_supported"`
			Name                 string   `json:"resource_name"`
		}
		a.decode(t, &document)
		if a.Status != 200 || a.Header.Get("Content-Type") != "application/json" || document.Resource != resource ||
			document.Name == "" || !slices.Equal(document.AuthorizationServers, []string{base}) ||
			!slices.Equal(document.Methods, []string{"header"}) {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		want := perm.ForConnectors()
		if resource == base+"/mcp" {
			want = perm.NewSet(perm.ProgrammesRead)
		}
		if !slices.Equal(document.Scopes, want.Strings()) || slices.Contains(document.Scopes, "offline_access") ||
			slices.Contains(document.Scopes, "account:api:access") {
			t.Errorf("%v", document.Scopes)
		}
		preflight := s.do("OPTIONS", path, header{
			"Origin":                         "https://elsewhere.example",
			"Access-Control-Request-Method":  "GET",
			"Access-Control-Request-Headers": "mcp-protocol-version",
		}, "")
		for _, one := range []answer{a, preflight} {
			one.header(t, "Access-Control-Allow-Origin", "*").
				header(t, "Access-Control-Expose-Headers", "WWW-Authenticate").
				header(t, "Access-Control-Allow-Credentials", "")
		}
		preflight.wants(t, 204).header(t, "Access-Control-Allow-Headers", "*, Authorization")
	}
	workspaceID, pat := s.reader()
	a := s.get(listPath, as(pat, workspaceID).with("Origin", "https://elsewhere.example"))
	a.header(t, "Access-Control-Allow-Origin", "")
}
