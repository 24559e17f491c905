package app

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Assistants and OAuth clients show the brand name of the deployment.
func TestBrand_NoOtherNameIsShown(t *testing.T) {
	t.Parallel()
	s := ownService(t, func(c *Config) { c.BrandName = "Harbour Trust" })
	workspaceID, user := s.member(perm.ProgrammesRead)
	token := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	const known = "/.well-known/oauth-protected-resource"
	for what, c := range map[string]struct {
		a    answer
		want string
	}{
		"metadata of the API":        {s.get(known+"/v1", nil), `"Harbour Trust API"`},
		"metadata of MCP":            {s.get(known+"/mcp", nil), `"Harbour Trust for assistants"`},
		"title of the server":        {s.post(assistant(token), initialize), `"title":"Harbour Trust"`},
		"instructions of the server": {s.post(assistant(token), initialize), `"Harbour Trust lets you read`},
		"documentation":              {s.get("/v1/docs", nil), "<title>Harbour Trust API</title>"},
	} {
		if !strings.Contains(c.a.Body, c.want) || what != "documentation" && strings.Contains(c.a.Body, "Almoner") {
			t.Errorf("%s: %s", what, c.a.Body)
		}
	}
}
