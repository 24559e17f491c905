package admin_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestListGrants_ShowsState(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	active, revoked, over := b.Connected(b.app, b.user), b.Connected(b.app, b.user), b.Connected(b.app, b.user)
	pending, _ := b.Consent(b.app, b.user)
	b.values(b.do(ctx, admin.RevokeGrant{Grant: revoked.Grant.ID.String()}))
	b.Fixture.Exec(`update account.grants set ends_at = now() where id = $1`, over.Grant.ID)
	want := map[string]string{
		active.Grant.ID.String():  "active",
		revoked.Grant.ID.String(): "revoked",
		over.Grant.ID.String():    "ended by time",
		pending.ID.String():       "pending",
	}
	all := b.list(b.do(ctx, admin.ListGrants{GrantOptions: admin.GrantOptions{}, Limit: 200}))
	if len(all) != len(want) || all[0]["id"] != pending.ID.String() {
		t.Errorf("%d grants, the latest %v", len(all), all[0]["id"])
	}
	for _, g := range all {
		id, _ := g["id"].(string)
		if g["state"] != want[id] || g["client"] != "Claude" || g["userId"] != b.user.String() ||
			g["tenantId"] != b.Fixture.WorkspaceID.String() {
			t.Errorf("%v, want it %s", g, want[id])
		}
		if (g["reason"] == "revoked_by_administrator") != (want[id] == "revoked") {
			t.Errorf("reason of %s: %v", want[id], g["reason"])
		}
	}
	if few := b.list(b.do(ctx, admin.ListGrants{GrantOptions: admin.GrantOptions{}, Limit: 2})); len(few) != 2 {
		t.Errorf("%d grants, at most 2 asked for", len(few))
	}
	for _, limit := range []int{0, -1, 10_001} {
		result, err := b.do(ctx, admin.ListGrants{GrantOptions: admin.GrantOptions{}, Limit: limit})
		b.refused("limit", result, err)
	}
}

func TestRevokeGrant_RevokesOneGrant(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held, sibling := b.Connected(b.app, b.user), b.Connected(b.app, b.user)
	id := held.Grant.ID.String()
	if got := b.values(b.do(t.Context(), admin.RevokeGrant{Grant: id})); got["revoked"] != true {
		t.Errorf("%v", got)
	}
	if g := b.Stored(held.Grant); g.State != grant.Revoked || g.Reason != grant.ByAdmin {
		t.Errorf("the grant is %s (%s)", g.State, g.Reason)
	}
	if got := b.values(b.do(t.Context(), admin.RevokeGrant{Grant: id})); got["revoked"] != false {
		t.Errorf("again: %v", got)
	}
	b.events(audit.GrantRevoked, "grant:"+id, 1)
	if answer := b.Refresh(b.app, held.Refresh); answer.Text("error") != "invalid_grant" {
		t.Errorf("a refresh: %d", answer.Status)
	}
	b.Refreshed(b.app, sibling)
	for _, unknown := range []string{uuid.NewString(), "grant", ""} {
		result, err := b.do(t.Context(), admin.RevokeGrant{Grant: unknown})
		b.refused("grant "+unknown, result, err)
	}
}

func TestRevokeGrants_RevokesSelectedGrants(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	otherUser, otherApp := b.Fixture.Member(perm.ProgrammesRead), b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	b.Fixture.Exec(`update account.users set email = 'grace@example.org' where id = $1`, otherUser)
	elsewhere := b.Fixture.Workspace("Elsewhere")
	for what, c := range map[string]struct {
		query admin.GrantOptions
		ended [4]bool // of the first user, the other user, the other client, the other workspace
	}{
		"user":    {admin.GrantOptions{User: admin.Named(b.user.String())}, [4]bool{true, false, true, true}},
		"address": {admin.GrantOptions{User: "Grace@example.org"}, [4]bool{false, true, false, false}},
		"client":  {admin.GrantOptions{Client: admin.Named(otherApp.ID.String())}, [4]bool{false, false, true, false}},
		"tenant":  {admin.GrantOptions{Workspace: admin.Named(elsewhere.String())}, [4]bool{false, false, false, true}},
		"user and tenant": {
			admin.GrantOptions{
				User:      admin.Named(b.user.String()),
				Workspace: admin.Named(b.Fixture.WorkspaceID.String()),
			},
			[4]bool{true, false, true, false},
		},
		"before now": {
			admin.GrantOptions{IssuedBefore: admin.Named(time.Now().Add(time.Hour).Format(time.RFC3339))},
			[4]bool{true, true, true, true},
		},
		"before then":    {admin.GrantOptions{IssuedBefore: "2020-01-01T00:00:00Z"}, [4]bool{}},
		"all":            {admin.GrantOptions{}, [4]bool{true, true, true, true}},
		"unknown client": {admin.GrantOptions{Client: admin.Named(uuid.NewString())}, [4]bool{}},
	} {
		b.Fixture.Exec(`delete from account.grants`)
		grants := [4]apitest.Connection{
			b.Connected(b.app, b.user),
			b.Connected(b.app, otherUser),
			b.Connected(otherApp, b.user),
			b.Connected(b.app, b.user),
		}
		b.Fixture.Exec(`update account.grants set tenant_id = $2 where id = $1`, grants[3].Grant.ID, elsewhere)
		grants[3].Grant.WorkspaceID = elsewhere
		want := 0
		for _, ended := range c.ended {
			if ended {
				want++
			}
		}
		got := b.values(b.do(ctx, admin.RevokeGrants{GrantOptions: c.query, Report: silent}))
		if got["revokedGrants"] != float64(want) {
			t.Errorf("%s: %v, want %d", what, got, want)
		}
		for i, held := range grants {
			if g := b.Stored(held.Grant); (g.State == grant.Revoked) != c.ended[i] {
				t.Errorf("%s: grant %d is %s", what, i, g.State)
			}
		}
	}
}

func TestRevokeGrants_IssuedBeforeIsTimeOfConsent(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	early, late := b.Connected(b.app, b.user), b.Connected(b.app, b.user)
	b.Fixture.Exec(`update account.grants set created_at = '2026-03-01T11:59:59Z' where id = $1`, early.Grant.ID)
	b.Fixture.Exec(`update account.grants set created_at = '2026-03-01T12:00:00Z' where id = $1`, late.Grant.ID)
	query := admin.GrantOptions{IssuedBefore: "2026-03-01T13:00:00+01:00"}
	b.values(b.do(t.Context(), admin.RevokeGrants{GrantOptions: query, Report: silent}))
	if b.Stored(early.Grant).State != grant.Revoked || b.Stored(late.Grant).State != grant.Active {
		t.Errorf("early: %s, late: %s", b.Stored(early.Grant).State, b.Stored(late.Grant).State)
	}
}

// silent ignores progress.
func silent(int) {}

// manyGrants adds active grants with and without time left.
func (b *testEnv) manyGrants(alive, expired int) {
	b.t.Helper()
	b.Fixture.Exec(
		`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state, ends_at)
		select gen_random_uuid(), 'connector', $1, $2, $3, '{}', $4, 'active',
		now() + case when n > $5::int then interval '-1 day' else interval '1 day' end
		from generate_series(1, $5::int + $6) n`,
		b.app.ID,
		b.user,
		b.Fixture.WorkspaceID,
		b.app.Resource,
		alive,
		expired,
	)
}

// revokedInRedis returns the number of grants that Redis knows.
func (b *testEnv) revokedInRedis() int64 {
	b.t.Helper()
	keys, err := b.Parts.Redis.DBSize(b.t.Context()).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return keys
}

func TestRevokeGrants_RevokesThousandsButNotExpired(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.manyGrants(1200, 10)
	if got := b.values(b.do(t.Context(), admin.RevokeGrants{Report: silent})); got["revokedGrants"] !=
		float64(1200) {
		t.Errorf("%v", got)
	}
	if n := b.Count(`select count(*) from account.grants where state = 'active'`); n != 10 {
		t.Errorf("%d are active", n)
	}
	const revoked = `select count(*) from account.audit_events where action = '` + audit.GrantRevoked + `'
		and actor = 'admin' and detail->>'reason' = 'revoked_by_administrator'`
	if n := b.Count(revoked); n != 1200 {
		t.Errorf("%d events", n)
	}
	if n := b.revokedInRedis(); n != 1200 {
		t.Errorf("%d grants are revoked in Redis", n)
	}
}

// An interrupted command keeps the batches that it has committed, and a repeated one revokes the rest.
func TestRevokeGrants_InterruptedIsResumed(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.manyGrants(1200, 0)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var reports []int
	_, err := b.do(ctx, admin.RevokeGrants{GrantOptions: admin.GrantOptions{}, Report: func(revoked int) {
		reports = append(reports, revoked)
		if len(reports) == 2 {
			interrupt()
		}
	}})
	if !slices.Equal(reports, []int{500, 1000}) || err == nil ||
		!strings.HasPrefix(err.Error(), "1000 grants revoked; run the command again") {
		t.Errorf("reported %v, then %v", reports, err)
	}
	const revoked = `select count(*) from account.grants where state = 'revoked'`
	if stored, inRedis := b.Count(revoked), b.revokedInRedis(); stored != 1000 || inRedis != 1000 {
		t.Errorf("%d grants are revoked, %d in Redis", stored, inRedis)
	}
	again := b.values(b.do(t.Context(), admin.RevokeGrants{GrantOptions: admin.GrantOptions{}, Report: silent}))
	if n := b.Count(revoked); again["revokedGrants"] != float64(200) || n != 1200 {
		t.Errorf("%v; %d grants are revoked", again, n)
	}
}

func TestGrants_InvalidQueryIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	for what, query := range map[string]admin.GrantOptions{
		"a user of no shape":   {User: "ada"},
		"an unknown address":   {User: "x@example.org"},
		"a client of no shape": {Client: "app"},
		"a tenant of no shape": {Workspace: "main"},
		"a day":                {IssuedBefore: "2026-03-01"},
		"no time":              {IssuedBefore: "yesterday"},
	} {
		result, err := b.do(t.Context(), admin.RevokeGrants{GrantOptions: query, Report: silent})
		b.refused(what, result, err)
		result, err = b.do(t.Context(), admin.ListGrants{GrantOptions: query, Limit: 10})
		b.refused(what, result, err)
	}
	b.Refreshed(b.app, held)
}
