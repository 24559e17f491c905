package grant_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// snapshotFirst is the test whose subtests set testEnv.snapshotFirst.
const snapshotFirst = "TestSnapshotFirst_KeepsInvariants"

// The other tests decide directly, as requests of public clients do. These run again as those of authenticated clients.
func TestSnapshotFirst_KeepsInvariants(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"G1 reuse", TestG1_CodeReuseRevokesGrant},
		{"G1 reuse that changes nothing", TestG1_InvalidReuseChangesNothing},
		{"G8 failed commit", TestG8_FailedCommitUndoesRotation},
		{"G8 locked row", TestG8_LockedRowKeepsGrantUsable},
		{"G9 uncommitted revocation", TestG9_UncommittedRevocationIsNotReported},
		{"G9 revocation in Redis alone", TestG9_ReportedRevocationIsCommitted},
		{"G10 lost replies", TestG10_LostReplyIsUndoneForEveryProcess},
		{"G10 undone by the next process", TestG10_NextProcessUndoesStepWithLostReply},
		{"G10 late step", TestG10_RevertedLateStepIsNoReplay},
		{"G11 crashed process", TestG11_RepetitionCompletesStepOfCrashedProcess},
		{"G11 undo", TestG11_UndoLeavesWhatRepetitionGave},
		{"G11 stalled request", TestG11_StalledRequestIsNoReplay},
	} {
		t.Run(test.name, test.run)
	}
}

// A request that is refused because of the user, the workspace or the client changes nothing in either store. Only
// given-up steps are remembered in Redis, where there is room for three.
func TestDirect_RefusalUsesNothingUp(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	refresh := b.lost(b.rotateWith(first, someKey))
	opened, code := b.consent()
	sql := func(text string, id uuid.UUID) func() { return func() { b.fixture.Exec(text, id) } }
	for what, change := range map[string]struct{ off, on func() }{
		"LLM integration": {func() { b.fixture.SetLLM(false) }, func() { b.fixture.SetLLM(true) }},
		"user": {
			sql(`update account.users set disabled_at = now() where id = $1`, b.user),
			sql(`update account.users set disabled_at = null where id = $1`, b.user),
		},
		"permissions": {
			sql(`update account.memberships set permissions = '{}' where user_id = $1`, b.user),
			sql(`update account.memberships set permissions = '{programmes:read:programmes}'
				where user_id = $1`, b.user),
		},
		"membership": {
			sql(`delete from account.memberships where user_id = $1`, b.user),
			func() { b.fixture.Join(b.fixture.WorkspaceID, b.user, perm.ProgrammesRead) },
		},
		"client": {
			sql(`update account.oauth_clients set deleted_at = now() where id = $1`, b.app.ID),
			sql(`update account.oauth_clients set deleted_at = null where id = $1`, b.app.ID),
		},
	} {
		change.off()
		b.notDirect(what, refresh, code)
		if what != "client" { // without it, there is no snapshot
			b.refused(what)(b.rotate(refresh))
			b.refused(what + " at exchange")(b.redeem(code, b.terms()))
		}
		change.on()
		b.generation(g, 2)
		if got := b.state(opened.ID); got.State != grant.Pending {
			t.Errorf("%s: opened grant is %s", what, got.State)
		}
		if undone := b.fields(g)["un"] + b.fields(opened)["un"]; undone != "" {
			t.Errorf("%s: Redis remembers %s", what, undone)
		}
	}
	b.mustRedeem(code)
	b.again("the request before", refresh)(b.rotateWith(first, someKey))
	b.mustRotate(refresh)
}

// notDirect checks that neither the refresh token nor the code is accepted directly.
func (b *testEnv) notDirect(what string, refresh, code credential.Secret) {
	b.Helper()
	token, err := b.grants.Tokens.Read(grant.Refresh, refresh.Reveal())
	testkit.Must(b, err)
	request := refreshOf(token, b.app.ID, atResource, grant.Sender{})
	if _, done, err := b.grants.ExchangeDirectly(b.Context(), request); done || err != nil {
		b.Errorf("%s: refresh: done %t, %v", what, done, err)
	}
	token, err = b.grants.Tokens.Read(grant.Code, code.Reveal())
	testkit.Must(b, err)
	request = grant.Request{Token: token, Terms: b.terms(), LoadKey: noKey}
	if _, done, err := b.grants.ExchangeDirectly(b.Context(), request); done || err != nil {
		b.Errorf("%s: exchange: done %t, %v", what, done, err)
	}
}

// Postgres has revoked the grant, and Redis does not know. That is not a race: the client is told why.
func TestDirect_EarlierRevocationIsRefused(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	refresh = b.mustRotate(refresh)
	testkit.Must(t, b.store.Revoke(t.Context(), g.Key(), grant.ByUser, "user:x", nil))
	b.fixture.Exec(`update account.grants set revoked_at = now() - interval '1 minute' where id = $1`, g.ID)
	b.refused("refresh")(b.rotate(refresh))
}

// A grant of older releases may have permissions that have no effect at its resource.
func TestDirect_UselessPermissionsAreRefused(t *testing.T) {
	const mcp = "https://api.example.org/mcp"
	b := newTestEnv(t)
	b.user = b.fixture.Member(perm.ProgrammesRead, perm.EngageReadForms)
	b.app = b.fixture.Connector(mcp, perm.ProgrammesRead)
	g, refresh := b.active()
	const useful, useless = "programmes:read:programmes", "engage:read:forms"
	for _, permissions := range []string{useful, useful, useless} { // the first refresh is not direct
		b.fixture.Exec(`update account.grants set permissions = array[$2], resource = $3 where id = $1`, g.ID,
			permissions, mcp)
		b.setField(g, "rs", mcp)
		issued, err := b.rotateAs(refresh, b.app.ID, mcp)
		if permissions == useless {
			b.refused(useless)(issued, err)
		} else if refresh = issued.Refresh; err != nil {
			t.Errorf("%s: %v", permissions, err)
		}
	}
}

// A step whose outcome in Postgres is unknown is given up, so that Postgres does not take it later.
func TestDirect_GivenUpStepIsNotTakenLater(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	refresh = b.mustRotate(refresh)
	var late grant.Step
	losing := b.around(func(step grant.Step, _ stepFunc) (grant.UpdateResult, error) {
		late = step
		return grant.Refused, store.ErrUnavailable
	})
	b.unavailable("refresh")(losing.rotate(refresh))
	_, result, err := b.store.AdvanceDirectly(t.Context(), late, b.terms(), nil)
	if result != grant.Refused || err != nil {
		t.Errorf("the given-up step: %v %v, want it refused", result, err)
	}
	b.mustRotate(refresh)
	b.wantActive(g.ID)
}

// Postgres commits a step and its response is lost. Before the update is repeated, the user loses the right to it. The
// refusal does not mean that the step was not taken.
func TestDirect_RefusalAfterLostResponseKeepsGrant(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	refresh = b.mustRotate(refresh)
	calls := 0
	losing := b.around(func(step grant.Step, take stepFunc) (grant.UpdateResult, error) {
		calls++
		result, err := take(step)
		if calls == 1 {
			b.fixture.SetLLM(false)
			return grant.Refused, store.ErrUnavailable
		}
		return result, err
	})
	b.unavailable("refresh")(losing.rotate(refresh))
	b.refused("without LLM integration")(b.rotate(refresh))
	b.fixture.SetLLM(true)
	b.mustRotate(refresh)
	b.wantActive(g.ID)
}

// A user who was disabled before gets no token because the grant is revoked at the same moment.
func TestDirect_RaceWithRevocationNeedsStanding(t *testing.T) {
	t.Parallel()
	for _, disabled := range []bool{false, true} {
		b := sharedTestEnv(t)
		g, refresh := b.active()
		refresh = b.mustRotate(refresh)
		if disabled {
			b.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, b.user)
		}
		raced := b.around(func(step grant.Step, take stepFunc) (grant.UpdateResult, error) {
			if err := b.store.Revoke(t.Context(), g.Key(), grant.ByClient, "client:x", nil); err != nil {
				t.Error(err)
			}
			return take(step)
		})
		if _, err := raced.rotate(refresh); disabled != (err != nil) {
			t.Errorf("disabled %t: %v", disabled, err)
		}
	}
}

// A quietStore is a GrantStore that may not respond.
type quietStore struct {
	grant.GrantStore
	responds bool
}

func (s quietStore) Responds() bool { return s.responds }

// quietRotations is a RotationStore that may not respond. It counts direct tries.
type quietRotations struct {
	grant.RotationStore
	responds bool
	tries    int
}

func (r *quietRotations) Responds(context.Context, uuid.UUID) bool { return r.responds }

func (r *quietRotations) Decide(
	ctx context.Context, step grant.Step, request grant.Request, next [][]byte,
) (grant.ScriptResult, error) {
	if step.Direct() {
		r.tries++
	}
	return r.RotationStore.Decide(ctx, step, request, next)
}

// While a store does not respond, the other one may be enough to refuse a request, so nothing is decided directly.
func TestDirect_BothStoresMustRespond(t *testing.T) {
	b := newTestEnv(t)
	_, refresh := b.active()
	refresh = b.mustRotate(refresh) // the first one is not direct: the exchange could be repeated
	for _, c := range []struct {
		postgres, redis bool
		tries           int
	}{{true, true, 1}, {true, false, 0}, {false, true, 0}} {
		rotations := &quietRotations{RotationStore: redis.NewGrants(b.rdb), responds: c.redis}
		b.grants = b.serviceOf(quietStore{b.store, c.postgres}, rotations)
		refresh = b.mustRotate(refresh)
		if rotations.tries != c.tries {
			t.Errorf("Postgres responds %t, Redis %t: %d direct tries, want %d", c.postgres, c.redis,
				rotations.tries, c.tries)
		}
	}
}
