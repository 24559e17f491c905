package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
)

func TestAdmin_ShowsAndSetsConnectorPolicy(t *testing.T) {
	data := fixture.New(t)
	term := open(t, "ALMONER_DATABASE_URL="+data.Database.Authserver)
	workspace := data.WorkspaceID.String()
	if got := term.run("", "connector-policy", "show", workspace); got.code != 0 ||
		!strings.Contains(got.out, "claude, chatgpt, other") ||
		!strings.Contains(got.out, "30") {
		t.Errorf("%d %s%s", got.code, got.out, got.errors)
	}
	set := func(options ...string) output {
		t.Helper()
		return term.run("", append([]string{"connector-policy", "set", workspace}, options...)...)
	}
	if got := set("--platforms", "claude,other", "--days=7", "--dry-run"); got.code != 0 ||
		!strings.Contains(got.out, "nothing was changed.") {
		t.Errorf("%d %s%s", got.code, got.out, got.errors)
	}
	if got := set("--platforms", "claude,other", "--days=7"); got.code != 0 ||
		!strings.Contains(got.out, "Changed the policy: platforms claude, other;") {
		t.Errorf("%d %s%s", got.code, got.out, got.errors)
	}
	got := term.run("", "connector-policy", "show", workspace, "--json")
	var shown struct {
		Platforms, Permissions []string
		Days                   int
	}
	if err := json.Unmarshal([]byte(got.out), &shown); err != nil || len(shown.Platforms) != 2 || shown.Days != 7 ||
		len(shown.Permissions) == 0 {
		t.Errorf("%v: %s", err, got.out)
	}
	for _, options := range [][]string{
		{},
		{"--days=0"},
		{"--days=31"},
		{"--platforms=gemini"},
		{"--permissions=account:api:access"},
		{"--permissions=programmes:write:programmes"},
	} {
		if got := set(options...); got.code == 0 || got.out != "" || strings.Count(got.errors, "\n") != 1 {
			t.Errorf("%v: %d %q %q, want one line", options, got.code, got.out, got.errors)
		}
	}
}
