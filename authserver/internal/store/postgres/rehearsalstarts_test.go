package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A movingStore changes a workspace between the parts of a rehearsal, and within them when they have begun.
type movingStore struct {
	*postgres.Store
	between, within func(n int) // the number of the part, and of the attempt to make the change
	parts, acts     int
}

func (m *movingStore) Rehearse(
	ctx context.Context, workspaceID uuid.UUID, part rehearsal.Part, act func(context.Context) error,
) (before, after rehearsal.State, err error) {
	m.parts++
	m.between(m.parts)
	return m.Store.Rehearse(ctx, workspaceID, part, func(ctx context.Context) error {
		m.acts++
		m.within(m.acts)
		return act(ctx)
	})
}

// R1: if what a change starts from is changed between two parts, or while one begins, the rehearsal begins anew. If it
// is changed once more, the rehearsal is refused.
func TestR1_PartsStartFromTheSame(t *testing.T) {
	l := ownStoreTest(t)
	l.fixture.Exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state)
		values ('now', '{}', '', 'current')`)
	l.fixture.Exec(`update account.memberships set permissions = $2 where user_id = $1`, l.grant.UserID,
		perm.NewSet(both...).Strings())
	all := l.manyGrants(l.fixture.Connector(l.grant.Resource, both...))
	by := audit.Actor{UserID: l.fixture.Member(perm.FullSet()...), WorkspaceID: l.fixture.WorkspaceID,
		Permissions: perm.FullSet()}
	by.Authorization.UserID = by.UserID
	less := perm.NewSet(both[0])
	for what, c := range map[string]struct {
		change rehearsal.Change
		move   string // what the change would do, or back if $2 is true
	}{
		"switch": {rehearsal.SwitchAssistants(false),
			`update account.tenant_features set enabled = $2 where tenant_id = $1`},
		"module": {rehearsal.DisableModule("programmes"),
			`update account.tenant_modules set enabled = $2 where tenant_id = $1 and module = 'programmes'`},
		"policy": {rehearsal.SetPolicy(policyOf(30, workspace.Platforms(), both[0]), nil),
			`insert into account.connector_policies values ($1, '{claude,chatgpt,other}',
				('{programmes:read:programmes,programmes:write:programmes}'::text[])[:1 + $2::boolean::int], 30)
				on conflict (tenant_id) do update set permissions = excluded.permissions`},
		"permissions": {rehearsal.SetPermissions(all[0].UserID, less, nil),
			`update account.memberships set permissions =
				('{programmes:read:programmes,programmes:write:programmes}'::text[])[:1 + $2::boolean::int]
				where tenant_id = $1 and not 'account:api:access' = any (permissions)`},
	} {
		for when, m := range map[string]struct {
			between, within map[int]bool // what move gets
			affected        int
			err             error
		}{
			"never":         {affected: len(all)},
			"between parts": {between: map[int]bool{2: false}},
			"within a part": {within: map[int]bool{1: false}},
			"twice":         {between: map[int]bool{2: false, 4: true}, err: rehearsal.ErrBusy},
		} {
			moves := func(at map[int]bool) func(int) {
				return func(n int) {
					if back, planned := at[n]; planned {
						l.fixture.Exec(c.move, by.WorkspaceID, back)
					}
				}
			}
			l.fixture.Exec(c.move, by.WorkspaceID, true)
			r := l.rehearsals()
			r.Store = &movingStore{Store: l.Store, between: moves(m.between), within: moves(m.within)}
			said, err := r.Run(t.Context(), by, c.change)
			if len(said.Affected) != m.affected || !errors.Is(err, m.err) {
				t.Errorf("%s, moved %s: %d affected, %v", what, when, len(said.Affected), err)
			}
		}
		l.fixture.Exec(c.move, by.WorkspaceID, true)
	}
	// What another person ends within a part is no effect of the change.
	r := l.rehearsals()
	r.Store = &movingStore{Store: l.Store, between: func(int) {}, within: func(int) {
		l.fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now() where id = $1`, all[0].ID)
	}}
	said, err := r.Run(t.Context(), by, rehearsal.SwitchAssistants(false))
	if ended := said.With(rehearsal.Ends, false); err != nil || len(ended) > 0 || len(said.Affected) < len(all)-1 {
		t.Errorf("of %d affected, %v end: %v", len(said.Affected), ended, err)
	}
}
