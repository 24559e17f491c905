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
	b := ownTestEnv(t)
	unmanaged, managed := b.Fixture.WorkspaceID, b.Fixture.Workspace("Managed")
	administrator := b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead)
	disabled := b.Fixture.Member(perm.AccountAPIAccess, perm.AccountWriteMembers)
	b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled)
	b.Fixture.Join(managed, administrator, perm.AccountAPIAccess)
	b.Fixture.Join(managed, b.user, perm.AccountReadMembers, perm.AccountWriteMembers)

	appointed := b.list(admin.AppointManagers{})
	if len(appointed) != 1 || appointed[0]["userId"] != administrator.String() ||
		appointed[0]["tenantId"] != unmanaged.String() {
		t.Errorf("appointed %v", appointed)
	}
	b.WantsRows("managers with their former permissions", 1, `account.memberships where tenant_id = $1 and user_id = $2
		and permissions @> '{account:read:members,account:write:members}'
		and permissions @> '{account:api:access,programmes:read:programmes}'`, unmanaged, administrator)
	b.WantsRows("managers", 2, `account.memberships
		where permissions @> '{account:read:members,account:write:members}'`)
	b.events(audit.MemberPermissionsChanged, "user:"+administrator.String(), 1)
	if again := b.list(admin.AppointManagers{}); len(again) != 0 {
		t.Errorf("a second run appoints %v", again)
	}
	b.events(audit.MemberPermissionsChanged, "user:"+administrator.String(), 1)
}

func TestAppointManagers_OfOneWorkspace(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	administrator, other := b.Fixture.Member(perm.AccountAPIAccess), b.Fixture.Workspace("Other")
	b.Fixture.Join(other, administrator, perm.AccountAPIAccess)
	appointed := b.list(admin.AppointManagers{Workspace: other.String()})
	if len(appointed) != 1 || appointed[0]["tenantId"] != other.String() {
		t.Errorf("appointed %v", appointed)
	}
	b.refused("unknown workspace", admin.AppointManagers{Workspace: uuid.NewString()})
	b.refused("no id", admin.AppointManagers{Workspace: "main"})
}
