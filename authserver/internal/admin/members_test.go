package admin_test

import (
	"errors"
	"reflect"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestMembers_PermissionsAreSet(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	workspace := b.Fixture.WorkspaceID.String()
	id := b.text(b.values(b.do(ctx, admin.AddUser{Email: "ada@example.org", Name: "Ada"})), "id")
	holds := func() any {
		for _, one := range b.list(b.do(ctx, admin.ListMembers{Workspace: workspace})) {
			if one["userId"] == id {
				return one["permissions"]
			}
		}
		return "no member"
	}
	b.values(
		b.do(ctx, admin.AddMember{
			Workspace:   workspace,
			User:        "ada@example.org",
			Permissions: []string{"programmes:write:programmes", "programmes:read:programmes"},
		}),
	)
	if got := holds(); !reflect.DeepEqual(got, []any{"programmes:read:programmes", "programmes:write:programmes"}) {
		t.Errorf("holds %v", got)
	}
	changed := b.values(b.do(ctx, admin.SetPermissions{Workspace: workspace, User: id, Permissions: []string{"none"}}))
	if !reflect.DeepEqual(changed["former"], []any{"programmes:read:programmes", "programmes:write:programmes"}) ||
		!reflect.DeepEqual(holds(), []any{}) {
		t.Errorf("%v, holds %v", changed, holds())
	}
	b.values(b.do(ctx, admin.SetPermissions{Workspace: workspace, User: id, Permissions: []string{"all"}}))
	if got, _ := holds().([]any); len(got) != len(perm.All()) {
		t.Errorf("holds %v", got)
	}
	b.events(audit.MemberAdded, "user:"+id, 1)
	b.events(audit.MemberPermissionsChanged, "user:"+id, 2)
	const named = `select count(*) from account.audit_events
		where action like 'member.%' and tenant_id = $1 and user_id = $2`
	if n := b.Count(named, workspace, id); n != 3 {
		t.Errorf("%d events name workspace and user", n)
	}
	if n := b.Count(`select count(*) from account.audit_events
		where detail->'former' = '["programmes:read:programmes", "programmes:write:programmes"]'`); n != 1 {
		t.Error("the event does not say what the member held before")
	}
}

func TestMembers_InvalidChangeIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	workspace, user, unknown := b.Fixture.WorkspaceID.String(), b.user.String(), uuid.NewString()
	stranger := b.Fixture.User("stranger@example.org").String()
	read := []string{"programmes:read:programmes"}
	for what, try := range map[string]func() error{
		"member already": func() error {
			_, err := b.do(ctx, admin.AddMember{Workspace: workspace, User: user, Permissions: read})
			return err
		},
		"unknown tenant": func() error {
			_, err := b.do(ctx, admin.AddMember{Workspace: unknown, User: user, Permissions: read})
			return err
		},
		"unknown user": func() error {
			_, err := b.do(ctx, admin.AddMember{Workspace: workspace, User: unknown, Permissions: read})
			return err
		},
		"unknown address": func() error {
			_, err := b.do(ctx, admin.AddMember{Workspace: workspace, User: "x@example.org", Permissions: read})
			return err
		},
		"tenant of no shape": func() error {
			_, err := b.do(ctx, admin.AddMember{Workspace: "main", User: stranger, Permissions: read})
			return err
		},
		"unknown permission": func() error {
			bad := []string{"programmes:read"}
			_, err := b.do(ctx, admin.AddMember{Workspace: workspace, User: stranger, Permissions: bad})
			return err
		},
		"no permission": func() error {
			_, err := b.do(ctx, admin.AddMember{Workspace: workspace, User: stranger})
			return err
		},
		"none and one": func() error {
			both := append(read, "none")
			_, err := b.do(ctx, admin.SetPermissions{Workspace: workspace, User: user, Permissions: both})
			return err
		},
		"set for a stranger": func() error {
			_, err := b.do(ctx, admin.SetPermissions{Workspace: workspace, User: stranger, Permissions: read})
			return err
		},
		"remove a stranger": func() error {
			_, err := b.do(ctx, admin.RemoveMember{Workspace: workspace, User: stranger})
			return err
		},
		"list of no tenant": func() error { _, err := b.do(ctx, admin.ListMembers{Workspace: unknown}); return err },
	} {
		b.refused(what, nil, try())
	}
	if n := b.Count(`select count(*) from account.memberships`); n != 1 {
		t.Errorf("%d memberships", n)
	}
	if n := b.Count(`select count(*) from account.audit_events where action like 'member.%'`); n != 0 {
		t.Errorf("%d events of refused changes", n)
	}
}

func TestRemoveMember_RevokesCredentialsOnlyInThatWorkspace(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	held := b.Connected(b.app, b.user)
	_, code := b.Consent(b.app, b.user)
	token := b.Fixture.Token(b.user, perm.ProgrammesRead)
	expired := b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Fixture.Exec(
		`update account.personal_access_tokens set expires_at = now() where hash = sha256($1)`,
		[]byte(expired.Reveal()),
	)
	other := b.Fixture.Member(perm.ProgrammesRead)
	others := b.Connected(b.app, other)
	b.Fixture.Token(other, perm.ProgrammesRead)
	elsewhere := b.Fixture.Workspace("Elsewhere")
	b.Fixture.Join(elsewhere, b.user, perm.ProgrammesRead)
	there := b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Fixture.Exec(
		`update account.personal_access_tokens set tenant_id = $2 where hash = sha256($1)`,
		[]byte(there.Reveal()),
		elsewhere,
	)

	got := b.values(b.do(ctx, admin.RemoveMember{Workspace: b.Fixture.WorkspaceID.String(), User: b.user.String()}))
	if got["revokedGrants"] != float64(2) || got["revokedTokens"] != float64(1) {
		t.Errorf("%v, want 2 grants and 1 token", got)
	}
	if g := b.Stored(held.Grant); g.State != grant.Revoked || g.Reason != grant.MembershipOver {
		t.Errorf("the grant is %s (%s)", g.State, g.Reason)
	}
	b.events(audit.MemberRemoved, "user:"+b.user.String(), 1)
	b.events(audit.GrantRevoked, "grant:"+held.Grant.ID.String(), 1)
	const revoked = `select count(*) from account.audit_events
		where action = '` + audit.TokenRevoked + `' and actor = 'admin'
		and user_id = $1 and detail->>'reason' = 'membership_ended'`
	if n := b.Count(revoked, b.user); n != 1 {
		t.Errorf("%d events of tokens", n)
	}
	if answer := b.Refresh(b.app, held.Refresh); answer.Text("error") != "invalid_grant" {
		t.Errorf("a refresh: %d", answer.Status)
	}
	b.Fixture.Join(b.Fixture.WorkspaceID, b.user, perm.ProgrammesRead) // a member again
	answer := b.Form(
		apitest.TokenPath,
		"grant_type", "authorization_code",
		"client_id", b.app.ID.String(),
		"resource", b.app.Resource,
		"code", code.Reveal(),
		"code_verifier", apitest.Verifier,
		"redirect_uri", "http://127.0.0.1:8090/callback",
	)
	if answer.Text("error") != "invalid_grant" {
		t.Errorf("a code of before: %d %s", answer.Status, answer.Body)
	}
	if n := b.Count(`select count(*) from account.personal_access_tokens where revoked_at is null`); n != 3 {
		t.Errorf("%d tokens are not revoked, want 3: of the other user, of the other workspace, and expired", n)
	}
	const ended = `select count(*) from account.personal_access_tokens
		where hash = sha256($1) and revoke_reason = 'membership_ended'`
	if n := b.Count(ended, []byte(token.Reveal())); n != 1 {
		t.Error("the token has no reason")
	}
	b.Refreshed(b.app, others)
}

func TestRemoveMember_IsPropagatedToRedis(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.values(b.do(t.Context(), admin.RemoveMember{Workspace: b.Fixture.WorkspaceID.String(), User: b.user.String()}))
	// The revocation is undone in Postgres, so that only Redis refuses.
	b.Fixture.Exec(
		`update account.grants set state = 'active', revoked_at = null, revoke_reason = null where id = $1`,
		held.Grant.ID,
	)
	b.Fixture.Join(b.Fixture.WorkspaceID, b.user, perm.ProgrammesRead)
	if answer := b.Refresh(b.app, held.Refresh); answer.Status != 400 {
		t.Errorf("the revocation is not in Redis: %d", answer.Status)
	}
}

func TestRemoveMember_WorksWithoutRedis(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.Redis.Kill()
	b.values(b.do(t.Context(), admin.RemoveMember{Workspace: b.Fixture.WorkspaceID.String(), User: b.user.String()}))
	if g := b.Stored(held.Grant); g.State != grant.Revoked {
		t.Errorf("the grant is %s", g.State)
	}
}

// A removal that fails changes nothing.
func TestRemoveMember_IsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.Fixture.Token(b.user, perm.ProgrammesRead)
	lock, err := b.Fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = lock.Exec(t.Context(), `lock table account.personal_access_tokens in access exclusive mode`)
	if err != nil {
		t.Fatal(err)
	}
	remove := admin.RemoveMember{Workspace: b.Fixture.WorkspaceID.String(), User: b.user.String()}
	if _, err := b.do(t.Context(), remove); err == nil {
		t.Error("the removal reports success")
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := b.Stored(held.Grant); g.State != grant.Active {
		t.Errorf("the grant is %s", g.State)
	}
	if n := b.Count(`select count(*) from account.memberships where user_id = $1`, b.user); n != 1 {
		t.Error("the membership was removed")
	}
	b.events(audit.MemberRemoved, "user:"+b.user.String(), 0)
	b.Refreshed(b.app, held)
}

func TestRemoveMember_ConcurrentRemovalsHaveOneWinner(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.Fixture.Exec(
		`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state, ends_at)
		select gen_random_uuid(), 'connector', $1, $2, $3, '{programmes:read:programmes}', $4, 'active',
		now() + interval '1 day' from generate_series(1, 1000)`,
		b.app.ID,
		b.user,
		b.Fixture.WorkspaceID,
		b.app.Resource,
	)
	errs := make([]error, 4)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(
			func() {
				_, errs[i] = b.do(t.Context(),
					admin.RemoveMember{Workspace: b.Fixture.WorkspaceID.String(), User: b.user.String()})
			},
		)
	}
	group.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			b.refused("a later removal", nil, err)
		}
	}
	if won != 1 {
		t.Errorf("%d removals won", won)
	}
	b.endRest()
	if n := b.Count(`select count(*) from account.audit_events where action = $1`, audit.GrantRevoked); n != 1000 {
		t.Errorf("%d events of 1000 grants", n)
	}
	if n := b.Count(`select count(*) from account.grants where state = 'revoked'`); n != 1000 {
		t.Errorf("%d grants are revoked", n)
	}
}

// An operator adds a user with an address that was never proven only after confirming it: another person may have made
// the account.
func TestProven_OperatorAddsOnlyProvenUsers(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	workspace := b.Fixture.WorkspaceID.String()
	id := b.text(b.values(b.do(ctx, admin.AddUser{Email: "ceo@example.org", Name: "Ceo"})), "id")
	shown := func() any {
		got := b.values(b.do(ctx, admin.ShowUser{User: "ceo@example.org"}))
		if (got["emailProvenAt"] == nil) != (got["emailProvenBy"] == nil) {
			t.Errorf("%v", got)
		}
		return got["emailProvenBy"]
	}
	if by := shown(); by != "operator" {
		t.Errorf("a user that an operator added is proven by %v", by)
	}
	b.Fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null`)
	for _, user := range []string{"ceo@example.org", id} {
		_, err := b.do(ctx, admin.AddMember{Workspace: workspace, User: user, Permissions: []string{"all"}})
		if !errors.Is(err, admin.ErrUnproven) {
			t.Errorf("%s was added: %v", user, err)
		}
	}
	member := uuid.MustParse(id)
	b.Fixture.Join(b.Fixture.WorkspaceID, member, perm.AccountAPIAccess, perm.ProgrammesRead)
	more := []string{"account:api:access", "programmes:read:programmes", "programmes:write:programmes"}
	_, err := b.do(ctx, admin.SetPermissions{Workspace: workspace, User: id, Permissions: more})
	if !errors.Is(err, admin.ErrUnproven) {
		t.Errorf("an unproven member gets a permission: %v", err)
	}
	got, err := b.do(ctx, admin.AppointManagers{Workspace: workspace})
	if err != nil || len(got.(admin.List[admin.Manager])) != 0 {
		t.Errorf("an unproven member was appointed: %v %v", got, err)
	}
	fewer := []string{"programmes:read:programmes"}
	b.values(b.do(ctx, admin.SetPermissions{Workspace: workspace, User: id, Permissions: fewer}))
	b.Fixture.Exec(`delete from account.memberships where user_id = $1`, member)
	if by := shown(); by != nil {
		t.Errorf("proven by %v", by)
	}
	b.values(b.do(ctx, admin.SetEmail{User: id, Email: "president@example.org"}))
	if n := b.Count(`select count(*) from account.users where email_proven_at is not null`); n != 0 {
		t.Error("an operator's change of the address proves it")
	}
	if err := (admin.ConfirmEmail{}).Check(); err == nil {
		t.Error("without a user, all addresses are confirmed")
	}
	b.values(b.do(ctx, admin.ConfirmEmail{All: true}))
	b.values(b.do(ctx, admin.ConfirmEmail{User: id})) // again
	all := []string{"all"}
	b.values(b.do(ctx, admin.AddMember{Workspace: workspace, User: "president@example.org", Permissions: all}))
	b.events(audit.UserEmailProven, "user:"+id, 1)
}
