package admin_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestDeleteUser_EndsAccessAfterDryRun(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id := b.user.String()
	held := b.connected()
	b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.setPermissions(b.user, perm.ProgrammesRead, perm.AccountWriteMembers)
	b.signIn(id)
	var got map[string]any
	text := b.printed(b.do(admin.DeleteUser{User: id, DryRun: true}), &got)
	ends, _ := got["ends"].(map[string]any)
	if got["deleted"] != false || ends["connections"] != 1.0 || ends["tokens"] != 1.0 || ends["signIns"] != 1.0 {
		t.Errorf("dry run: %v", got)
	}
	for _, words := range []string{
		"Nothing was changed", "1 grant, 1 personal access token, 1 sign-in,",
		"A permission of account has no enabled holder left in Riverside Food Bank",
	} {
		if !strings.Contains(text, words) {
			t.Errorf("%q is missing in %s", words, text)
		}
	}
	b.events(audit.UserDeleted, "user:"+id, 0)
	held = b.Refreshed(b.app, held)
	b.wants("deleted", admin.DeleteUser{User: id}, map[string]any{"deleted": true})
	b.events(audit.UserDeleted, "user:"+id, 1)
	b.events(audit.MemberRemoved, "user:"+id, 1)
	b.Wants("a refresh", b.Refresh(b.app, held.Refresh), 400, "invalid_grant")
	if one := find(b.list(admin.ListUsers{}), "id", id); one != nil {
		t.Errorf("listed as %v", one)
	}
	for _, unknown := range []string{id, uuid.NewString(), "nobody@example.org"} {
		b.refused("user "+unknown, admin.DeleteUser{User: unknown})
		b.refused("user "+unknown, admin.DeleteUser{User: unknown, DryRun: true})
	}
}

func TestSetEmail_ChangesAddressAndEndsRequests(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id, email, taken := b.user.String(), person(), person()
	b.Fixture.Exec(`insert into account.email_changes (id, user_id, old_email, new_email, old_token_hash,
		new_token_hash, expires_at) select gen_random_uuid(), id, email, 'eve@example.org', sha256($2), sha256($3),
		now() + '1 day' from account.users where id = $1`, b.user, []byte(email), []byte(taken))
	b.wants("changed", admin.SetEmail{User: id, Email: strings.ToUpper(email)}, map[string]any{"email": email})
	b.events(audit.UserEmailChanged, "user:"+id, 1)
	b.WantsRows("users with the new address", 1, `account.users where id = $1 and email = $2`, id, email)
	b.WantsRows("open requests", 0, `account.email_changes where user_id = $1 and ended_at is null`, id)
	b.Fixture.User(taken)
	for _, email := range []string{taken, "ada", ""} {
		b.refused(email, admin.SetEmail{User: id, Email: email})
	}
	b.refused("an unknown user", admin.SetEmail{User: uuid.NewString(), Email: person()})
}
