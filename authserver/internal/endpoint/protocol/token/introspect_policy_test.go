package token_test

import (
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A grant that a policy has narrowed is described as it is now, whatever its access token says.
func TestIntrospect_DescribesNarrowedGrantAsItIsNow(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	b.Fixture.Exec(`update account.grants set created_at = now() - interval '1 day' + interval '10 minutes'`)
	b.LimitConnectors(
		workspace.ConnectorPolicy{
			Platforms:   workspace.Platforms(),
			Permissions: perm.NewSet(perm.ProgrammesRead),
			Days:        1,
		},
	)
	got := b.active("narrowed", held.Access)
	if list := texts(got["permissions"]); len(list) != 1 || list[0] != string(perm.ProgrammesRead) ||
		got["scope"] != string(perm.ProgrammesRead) {
		t.Errorf("%v %v", got["permissions"], got["scope"])
	}
	if exp, _ := got["exp"].(float64); exp > float64(time.Now().Add(11*time.Minute).Unix()) {
		t.Errorf("exp is after the grant's end: %v", got["exp"])
	}
	b.LimitConnectors(workspace.DefaultConnectorPolicy())
	if list := texts(b.active("raised", held.Access)["permissions"]); len(list) != 1 {
		t.Errorf("raising gave %v", list)
	}
	b.LimitConnectors(workspace.ConnectorPolicy{Permissions: perm.ForConnectors(), Days: 30})
	b.inactive("no platform is allowed", held.Access)
	answer := b.Form(
		apitest.TokenPath,
		"grant_type", "refresh_token",
		"client_id", held.Grant.ClientID.String(),
		"resource", apitest.REST,
		"refresh_token", held.Refresh.Reveal(),
	)
	if answer.Status != 400 || answer.Text("error") != "invalid_grant" ||
		!strings.HasPrefix(
			answer.Text("error_description"),
			"The workspace's connector policy ended this connection on ",
		) {
		t.Errorf("%d %s", answer.Status, answer.Body)
	}
}
