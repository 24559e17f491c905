package admin_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestAppointManagers_GivesToAdministratorsWhereNobodyManages(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	const managing = `select count(*) from account.memberships where tenant_id = $1 and user_id = $2
		and permissions @> '{account:read:members,account:write:members}'`
	unmanaged, managed := b.Fixture.WorkspaceID, b.Fixture.Workspace("Managed")
	administrator := b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead)
	disabled := b.Fixture.Member(perm.AccountAPIAccess, perm.AccountWriteMembers)
	b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled)
	b.Fixture.Join(managed, administrator, perm.AccountAPIAccess)
	b.Fixture.Join(managed, b.user, perm.AccountReadMembers, perm.AccountWriteMembers)

	appointed := b.list(b.do(ctx, admin.AppointManagers{}))
	if len(appointed) != 1 || appointed[0]["userId"] != administrator.String() ||
		appointed[0]["tenantId"] != unmanaged.String() {
		t.Errorf("appointed %v", appointed)
	}
	for _, c := range []struct {
		workspace, user uuid.UUID
		want            int
	}{
		{unmanaged, administrator, 1}, {unmanaged, b.user, 0}, {unmanaged, disabled, 0}, {managed, administrator, 0},
	} {
		if n := b.Count(managing, c.workspace, c.user); n != c.want {
			t.Errorf("%s manages %s: %d, want %d", c.user, c.workspace, n, c.want)
		}
	}
	const kept = `select count(*) from account.memberships where tenant_id = $1 and user_id = $2
		and permissions @> '{account:api:access,programmes:read:programmes}'`
	if n := b.Count(kept, unmanaged, administrator); n != 1 {
		t.Error("the administrator lost permissions")
	}
	b.events(audit.MemberPermissionsChanged, "user:"+administrator.String(), 1)
	if again := b.list(b.do(ctx, admin.AppointManagers{})); len(again) != 0 {
		t.Errorf("a second run appoints %v", again)
	}
	b.events(audit.MemberPermissionsChanged, "user:"+administrator.String(), 1)
}

func TestAppointManagers_OfOneWorkspace(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	administrator, other := b.Fixture.Member(perm.AccountAPIAccess), b.Fixture.Workspace("Other")
	b.Fixture.Join(other, administrator, perm.AccountAPIAccess)
	appointed := b.list(b.do(ctx, admin.AppointManagers{Workspace: other.String()}))
	if len(appointed) != 1 || appointed[0]["tenantId"] != other.String() {
		t.Errorf("appointed %v", appointed)
	}
	_, err := b.do(ctx, admin.AppointManagers{Workspace: uuid.NewString()})
	b.refused("unknown workspace", nil, err)
	_, err = b.do(ctx, admin.AppointManagers{Workspace: "main"})
	b.refused("no id", nil, err)
}
