package admin_test

import (
	"bytes"
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
	held := b.Connected(b.app, b.user)
	b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Fixture.Exec(`update account.memberships set permissions = permissions || '{account:write:members}'::text[]
		where user_id = $1`, b.user)
	b.signIn(id)
	dry, err := b.do(t.Context(), admin.DeleteUser{User: id, DryRun: true})
	got := b.values(dry, err)
	ends, _ := got["ends"].(map[string]any)
	if got["deleted"] != false || ends["connections"] != 1.0 || ends["tokens"] != 1.0 || ends["signIns"] != 1.0 {
		t.Errorf("dry run: %v", got)
	}
	var text bytes.Buffer
	_ = admin.Print(&text, false, dry)
	for _, words := range []string{
		"Nothing was changed", "1 grant, 1 personal access token, 1 sign-in,",
		"A permission of account has no enabled holder left in Riverside Food Bank",
	} {
		if !strings.Contains(text.String(), words) {
			t.Errorf("%q is missing in %s", words, text.String())
		}
	}
	b.events(audit.UserDeleted, "user:"+id, 0)
	b.Refreshed(b.app, held)
	held = b.Connected(b.app, b.user)
	if got := b.values(b.do(t.Context(), admin.DeleteUser{User: id})); got["deleted"] != true {
		t.Errorf("%v", got)
	}
	b.events(audit.UserDeleted, "user:"+id, 1)
	b.events(audit.MemberRemoved, "user:"+id, 1)
	if answer := b.Refresh(b.app, held.Refresh); answer.Status != 400 {
		t.Errorf("a refresh: %d", answer.Status)
	}
	for _, one := range b.list(b.do(t.Context(), admin.ListUsers{})) {
		if one["id"] == id {
			t.Errorf("listed as %v", one)
		}
	}
	for _, unknown := range []string{id, uuid.NewString(), "nobody@example.org"} {
		for _, dryRun := range []bool{true, false} {
			result, err := b.do(t.Context(), admin.DeleteUser{User: unknown, DryRun: dryRun})
			b.refused("user "+unknown, result, err)
		}
	}
}

func TestSetEmail_ChangesAddressAndEndsRequests(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id := b.user.String()
	b.Fixture.Exec(`insert into account.email_changes (id, user_id, old_email, new_email, old_token_hash,
		new_token_hash, expires_at) select gen_random_uuid(), id, email, 'eve@example.org', sha256('a'), sha256('b'),
		now() + '1 day' from account.users where id = $1`, b.user)
	got := b.values(b.do(t.Context(), admin.SetEmail{User: id, Email: "Ada@Example.org"}))
	if got["email"] != "ada@example.org" {
		t.Errorf("%v", got)
	}
	b.events(audit.UserEmailChanged, "user:"+id, 1)
	if b.Count(`select count(*) from account.users where id = $1 and email = 'ada@example.org'`, id) != 1 ||
		b.Count(`select count(*) from account.email_changes where ended_at is null`) != 0 {
		t.Error("the address is the old one, or the request is still open")
	}
	b.Fixture.User("sam@example.org")
	for _, email := range []string{"sam@example.org", "ada", ""} {
		result, err := b.do(t.Context(), admin.SetEmail{User: id, Email: email})
		b.refused(email, result, err)
	}
	result, err := b.do(t.Context(), admin.SetEmail{User: uuid.NewString(), Email: "new@example.org"})
	b.refused("an unknown user", result, err)
}
