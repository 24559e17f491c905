package postgres_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// The key of an invitation contains its workspace, so an answer changes only the invitation of that workspace.
func TestInvitations_AnswerNamesWorkspace(t *testing.T) {
	t.Parallel()
	m := newMemberTest(t)
	address := anAddress("sam")
	inviter, sam := m.person(manages...), m.fixture.User(address)
	offer := m.offer(m.invited(inviter, address))
	other := m.fixture.Workspace("Riverside")
	m.fixture.Exec(`
		insert into account.invitations (id, tenant_id, email, permissions, invited_by, token_hash, expires_at)
		select id, $2, email, permissions, invited_by, sha256(token_hash), expires_at
		from account.invitations where id = $1`, offer.ID, other)
	event := audit.Event{Actor: "user:" + sam.String(), Authorization: &audit.Authorization{UserID: sam}}
	if err := m.Decline(t.Context(), offer, &sam, event); err != nil {
		t.Fatal(err)
	}
	const open = `select count(*) from account.invitations where tenant_id = $1 and ended_at is null`
	if n := m.count(open, other); n != 1 {
		t.Error("the invitation to another workspace was declined")
	}
	if n := m.count(open, m.workspaceID); n != 0 {
		t.Error("the invitation is still open")
	}
}
