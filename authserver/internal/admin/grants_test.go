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
	b := newTestEnv(t)
	active, revoked, over := b.connected(), b.connected(), b.connected()
	pending, _ := b.Consent(b.app, b.user)
	b.do(admin.RevokeGrant{Grant: revoked.Grant.ID.String()})
	b.Fixture.Exec(`update account.grants set ends_at = now() where id = $1`, over.Grant.ID)
	want := map[any]string{
		active.Grant.ID.String():  "active",
		revoked.Grant.ID.String(): "revoked",
		over.Grant.ID.String():    "ended by time",
		pending.ID.String():       "pending",
	}
	query := admin.GrantOptions{Workspace: admin.Named(b.workspace)}
	all := b.list(admin.ListGrants{GrantOptions: query, Limit: 200})
	if len(all) != len(want) || all[0]["id"] != pending.ID.String() {
		t.Errorf("%d grants, the latest %v", len(all), all[0]["id"])
	}
	for _, g := range all {
		state := want[g["id"]]
		if g["state"] != state || g["client"] != "Claude" || g["userId"] != b.user.String() ||
			g["tenantId"] != b.workspace || (g["reason"] == "revoked_by_administrator") != (state == "revoked") {
			t.Errorf("%v, want it %s", g, state)
		}
	}
	b.Equal("two at most", len(b.list(admin.ListGrants{Limit: 2})), 2)
	for _, limit := range []int{0, -1, 10_001} {
		b.refused("limit", admin.ListGrants{Limit: limit})
	}
}

func TestRevokeGrant_RevokesOneGrant(t *testing.T) {
	b := newTestEnv(t)
	held, sibling := b.connected(), b.connected()
	id := held.Grant.ID.String()
	b.wants("at first", admin.RevokeGrant{Grant: id}, map[string]any{"revoked": true})
	b.WantsGrant("revoked", held.Grant, grant.Revoked, grant.ByAdmin)
	b.wants("again", admin.RevokeGrant{Grant: id}, map[string]any{"revoked": false})
	b.events(audit.GrantRevoked, "grant:"+id, 1)
	b.Wants("a refresh", b.Refresh(b.app, held.Refresh), 400, "invalid_grant")
	b.Refreshed(b.app, sibling)
	for _, unknown := range []string{uuid.NewString(), "grant", ""} {
		b.refused("grant "+unknown, admin.RevokeGrant{Grant: unknown})
	}
}

func TestRevokeGrants_RevokesSelectedGrants(t *testing.T) {
	b := ownTestEnv(t)
	otherUser, otherApp := b.Fixture.Member(perm.ProgrammesRead), b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	b.Fixture.Exec(`update account.users set email = 'grace@example.org' where id = $1`, otherUser)
	elsewhere := b.Fixture.Workspace("Elsewhere")
	user, client := admin.Named(b.user.String()), admin.Named(otherApp.ID.String())
	own, away := admin.Named(b.workspace), admin.Named(elsewhere.String())
	later := admin.Named(time.Now().Add(time.Hour).Format(time.RFC3339))
	for what, c := range map[string]struct {
		query admin.GrantOptions
		ended [4]bool // of the first user, the other user, the other client, the other workspace
	}{
		"user":            {admin.GrantOptions{User: user}, [4]bool{true, false, true, true}},
		"address":         {admin.GrantOptions{User: "Grace@example.org"}, [4]bool{false, true, false, false}},
		"client":          {admin.GrantOptions{Client: client}, [4]bool{false, false, true, false}},
		"tenant":          {admin.GrantOptions{Workspace: away}, [4]bool{3: true}},
		"user and tenant": {admin.GrantOptions{User: user, Workspace: own}, [4]bool{0: true, 2: true}},
		"before now":      {admin.GrantOptions{IssuedBefore: later}, [4]bool{true, true, true, true}},
		"before then":     {admin.GrantOptions{IssuedBefore: "2020-01-01T00:00:00Z"}, [4]bool{}},
		"all":             {admin.GrantOptions{}, [4]bool{true, true, true, true}},
		"unknown client":  {admin.GrantOptions{Client: admin.Named(uuid.NewString())}, [4]bool{}},
	} {
		b.Fixture.Exec(`delete from account.grants`)
		grants := [4]apitest.Connection{
			b.connected(), b.Connected(b.app, otherUser), b.Connected(otherApp, b.user), b.connected(),
		}
		b.Fixture.Exec(`update account.grants set tenant_id = $2 where id = $1`, grants[3].Grant.ID, elsewhere)
		grants[3].Grant.WorkspaceID = elsewhere
		got, want := b.values(admin.RevokeGrants{GrantOptions: c.query, Report: silent}), 0.0
		for i, held := range grants {
			state, reason := grant.Active, grant.Reason("")
			if c.ended[i] {
				state, reason = grant.Revoked, grant.ByAdmin
				want++
			}
			b.WantsGrant(what, held.Grant, state, reason)
		}
		b.Equal(what, got["revokedGrants"], want)
	}
}

func TestRevokeGrants_IssuedBeforeIsTimeOfConsent(t *testing.T) {
	b := newTestEnv(t)
	early, late := b.connected(), b.connected()
	b.Fixture.Exec(`update account.grants set created_at = '2026-03-01T11:59:59Z' where id = $1`, early.Grant.ID)
	b.Fixture.Exec(`update account.grants set created_at = '2026-03-01T12:00:00Z' where id = $1`, late.Grant.ID)
	query := admin.GrantOptions{Workspace: admin.Named(b.workspace), IssuedBefore: "2026-03-01T13:00:00+01:00"}
	b.do(admin.RevokeGrants{GrantOptions: query, Report: silent})
	b.WantsGrant("early", early.Grant, grant.Revoked, grant.ByAdmin)
	b.WantsGrant("late", late.Grant, grant.Active, "")
}

// silent ignores progress.
func silent(int) {}

// manyGrants adds active grants with and without time left.
func (b *testEnv) manyGrants(alive, expired int) {
	b.t.Helper()
	b.Fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
			ends_at)
		select gen_random_uuid(), 'connector', $1, $2, $3, '{}', $4, 'active',
			now() + case when n > $5::int then interval '-1 day' else interval '1 day' end
		from generate_series(1, $5::int + $6) n`, b.app.ID, b.user, b.workspace, b.app.Resource, alive, expired)
}

// wantRevoked requires a number of revoked grants, and that Redis knows them.
func (b *testEnv) wantRevoked(want int) {
	b.t.Helper()
	b.WantsRows("revoked grants", want, `account.grants where state = 'revoked'`)
	keys, err := b.Parts.Redis.DBSize(b.t.Context()).Result()
	if err != nil || keys != int64(want) {
		b.t.Errorf("%d grants are revoked in Redis, want %d: %v", keys, want, err)
	}
}

// An interrupted command keeps the batches that it has committed, and a repeated one revokes the rest, but no expired
// grants.
func TestRevokeGrants_RevokesThousandsAndResumesAfterInterruption(t *testing.T) {
	b := ownTestEnv(t)
	b.manyGrants(1200, 0)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var reports []int
	_, err := b.service.Run(ctx, admin.RevokeGrants{Report: func(revoked int) {
		if reports = append(reports, revoked); len(reports) == 2 {
			interrupt()
		}
	}})
	if !slices.Equal(reports, []int{500, 1000}) || err == nil ||
		!strings.HasPrefix(err.Error(), "1000 grants revoked; run the command again") {
		t.Errorf("reported %v, then %v", reports, err)
	}
	b.wantRevoked(1000)
	b.manyGrants(0, 10)
	b.wants("again", admin.RevokeGrants{Report: silent}, map[string]any{"revokedGrants": 200.0})
	b.wantRevoked(1200)
	b.WantsRows("active", 10, `account.grants where state = 'active'`)
	b.WantsRows("events", 1200, `account.audit_events where action = '`+audit.GrantRevoked+`' and actor = 'admin'
		and detail->>'reason' = 'revoked_by_administrator'`)
}

func TestGrants_InvalidQueryIsRefused(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	for what, query := range map[string]admin.GrantOptions{
		"a user of no shape":   {User: "ada"},
		"an unknown address":   {User: "x@example.org"},
		"a client of no shape": {Client: "app"},
		"a tenant of no shape": {Workspace: "main"},
		"a day":                {IssuedBefore: "2026-03-01"},
		"no time":              {IssuedBefore: "yesterday"},
	} {
		b.refused(what, admin.RevokeGrants{GrantOptions: query, Report: silent})
		b.refused(what, admin.ListGrants{GrantOptions: query, Limit: 10})
	}
	b.Refreshed(b.app, held)
}
