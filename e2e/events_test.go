package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Connections and members write events too. A refresh changes nothing that an integration can see, and writes none.
func TestEvents_FollowConnectionsAndMembers(t *testing.T) {
	p, ws := inWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	events := func(after int64) (types []string, last int64) {
		t.Helper()
		page := api.Get(t, fmt.Sprint("/v1/events?limit=200&after=", after)).Wants(t, http.StatusOK).Object(t)
		last = after
		for _, one := range page["data"].([]any) {
			event := one.(map[string]any)
			types = append(types, event["type"].(string))
			last = int64(event["sequence"].(float64))
			if id, _ := event["data"].(map[string]any)["id"].(string); len(id) != 36 {
				t.Errorf("an event without id: %v", event)
			}
		}
		return types, last
	}
	wants := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	_, last := events(0)

	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	types, last := events(last)
	wants("approved", types, "connection.approved")
	for range 2 {
		tokens = connector.WantsWorking(t, tokens)
	}
	types, last = events(last)
	wants("refreshed", types)
	p.Database.Exec(t, `update account.grants set state = 'revoked', revoked_at = now(),
		revoke_reason = 'revoked_by_user' where tenant_id = $1 and state = 'active'`, ws.Workspace.ID)
	types, last = events(last)
	wants("ended", types, "connection.ended")

	member := ws.Member(t, harness.ReadProgrammes)
	p.Database.Exec(t, `update account.memberships set permissions = '{}' where user_id = $1`, member.ID)
	p.Database.Exec(t, `update account.memberships set permissions = '{}' where user_id = $1`, member.ID)
	p.Database.Exec(t, `delete from account.memberships where user_id = $1`, member.ID)
	types, _ = events(last)
	wants("members", types, "member.added", "member.updated", "member.removed")
}
