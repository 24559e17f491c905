package grant_test

import (
	"slices"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

// snapshotFirst is the default of testEnv.snapshotFirst.
var snapshotFirst bool

// The other tests decide directly, as requests of public clients do. These run again as those of authenticated clients.
func TestSnapshotFirst_KeepsInvariants(t *testing.T) {
	snapshotFirst = true
	defer func() { snapshotFirst = false }()
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
	} {
		t.Run(test.name, test.run)
	}
}

// A refused request changes nothing in either store, whatever it is refused for.
func TestDirect_RefusalUsesNothingUp(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	opened, code := b.consent()
	for what, sql := range map[string][2]string{
		"LLM integration": {
			`update account.tenant_features set enabled = false`,
			`update account.tenant_features set enabled = true`,
		},
		"user": {
			`update account.users set disabled_at = now()`,
			`update account.users set disabled_at = null`,
		},
		"permissions": {
			`update account.memberships set permissions = '{}'`,
			`update account.memberships set permissions = '{programmes:read:programmes}'`,
		},
		"client": {
			`update account.oauth_clients set deleted_at = now()`,
			`update account.oauth_clients set deleted_at = null`,
		},
	} {
		b.fixture.Exec(sql[0])
		b.notDirect(what, refresh, code)
		b.fixture.Exec(sql[1])
		if got := b.state(g.ID); got.State != grant.Active || got.Generation != 1 {
			t.Errorf("%s: grant is %s, generation %d", what, got.State, got.Generation)
		}
		if got := b.state(opened.ID); got.State != grant.Pending {
			t.Errorf("%s: opened grant is %s", what, got.State)
		}
	}
	if _, err := b.redeem(code, b.terms()); err != nil {
		t.Errorf("the code does not work: %v", err)
	}
	b.mustRotate(refresh)
}

// notDirect checks that neither the refresh token nor the code is accepted directly.
func (b *testEnv) notDirect(what string, refresh, code credential.Secret) {
	b.Helper()
	token, err := b.grants.ReadToken(grant.Refresh, refresh)
	if err != nil {
		b.Fatal(err)
	}
	if _, done, err := b.grants.RotateDirectly(b.Context(), b.app.ID, token, resource, grant.Sender{}); done ||
		err != nil {
		b.Errorf("%s: refresh: done %t, %v", what, done, err)
	}
	if token, err = b.grants.ReadToken(grant.Code, code); err != nil {
		b.Fatal(err)
	}
	if _, done, err := b.grants.RedeemDirectly(b.Context(), token, b.terms(), grant.Sender{}); done || err != nil {
		b.Errorf("%s: exchange: done %t, %v", what, done, err)
	}
}

// Postgres has revoked the grant, and Redis does not know. That is not a race: the client is told why.
func TestDirect_EarlierRevocationIsRefused(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	if err := b.store.Revoke(t.Context(), g.ID, grant.ByUser, "user:x", nil); err != nil {
		t.Fatal(err)
	}
	b.fixture.Exec(`update account.grants set revoked_at = now() - interval '1 minute' where id = $1`, g.ID)
	_, err := b.rotate(refresh)
	b.refused("refresh", err)
}

// A grant of older releases may have permissions that have no effect at its resource.
func TestDirect_UselessPermissionsAreRefused(t *testing.T) {
	const mcp = "https://api.example.org/mcp"
	b := newTestEnv(t)
	b.user = b.fixture.Member(perm.ProgrammesRead, perm.EngageReadForms)
	b.app = b.fixture.Connector(mcp, perm.ProgrammesRead)
	g, refresh := b.active()
	for permissions, usable := range map[string]bool{"programmes:read:programmes": true, "engage:read:forms": false} {
		b.fixture.Exec(`update account.grants set permissions = array[$2], resource = $3 where id = $1`, g.ID,
			permissions, mcp)
		if err := b.rdb.HSet(t.Context(), "g:{"+g.ID.String()+"}", "rs", mcp).Err(); err != nil {
			t.Fatal(err)
		}
		issued, err := b.rotateAs(refresh, b.app.ID, mcp)
		if usable != (err == nil) {
			t.Errorf("%s: %v", permissions, err)
		}
		if err == nil {
			refresh = issued.Refresh
		} else {
			b.refused(permissions, err)
		}
	}
}

// A process that does not know that Redis is silent gets no response once. Then it knows, and asks Postgres first.
func TestDirect_SilentStoreIsNotAskedFirst(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	if err := b.redis.Pause(); err != nil {
		t.Fatal(err)
	}
	_, err := b.rotate(refresh)
	unavailable(t, "refresh", err)
	b.fixture.Exec(`update account.tenant_features set enabled = false`)
	_, err = b.rotate(refresh)
	b.refused("refresh without LLM integration", err)
	b.redis.Resume()
	if given := b.state(g.ID).GivenUp; len(given) != 1 {
		t.Errorf("%d tries given up, want 1", len(slices.Compact(given)))
	}
}
