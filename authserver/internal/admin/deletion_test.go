package admin_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/shared/perm"
)

func TestDeleteUser_EndsAccessAfterDryRun(t *testing.T) {
	b := newTestEnv(t)
	id := b.user.String()
	held := b.Connected(b.app, b.user)
	b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Fixture.Exec(`update account.memberships set permissions = permissions || '{account:write:members}'::text[]
		where user_id = $1`, b.user)
	b.signIn(id)
	dry, err := b.service.DeleteUser(t.Context(), id, true)
	got := b.values(dry, err)
	ends, _ := got["ends"].(map[string]any)
	if got["deleted"] != false || ends["connections"] != 1.0 || ends["tokens"] != 1.0 || ends["signIns"] != 1.0 {
		t.Errorf("dry run: %v", got)
	}
	var text bytes.Buffer
	_ = admin.Print(&text, false, dry)
	for _, words := range []string{
		"Nothing was changed", "1 grant, 1 personal access token, 1 sign-in,",
		"No member manages the members of Riverside Food Bank",
	} {
		if !strings.Contains(text.String(), words) {
			t.Errorf("%q is missing in %s", words, text.String())
		}
	}
	b.events(audit.UserDeleted, "user:"+id, 0)
	b.Refreshed(b.app, held)
	held = b.Connected(b.app, b.user)
	if got := b.values(b.service.DeleteUser(t.Context(), id, false)); got["deleted"] != true {
		t.Errorf("%v", got)
	}
	b.events(audit.UserDeleted, "user:"+id, 1)
	b.events(audit.MemberRemoved, "user:"+id, 1)
	if answer := b.Refresh(b.app, held.Refresh); answer.Status != 400 {
		t.Errorf("a refresh: %d", answer.Status)
	}
	for _, one := range b.list(b.service.Users(t.Context())) {
		if one["id"] == id {
			t.Errorf("listed as %v", one)
		}
	}
	for _, unknown := range []string{id, uuid.NewString(), "nobody@example.org"} {
		for _, dryRun := range []bool{true, false} {
			result, err := b.service.DeleteUser(t.Context(), unknown, dryRun)
			b.refused("user "+unknown, result, err)
		}
	}
}
