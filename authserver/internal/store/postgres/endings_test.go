package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// tooMany is more grants than one transaction revokes.
const tooMany = 700

// manyGrants returns grants of the app: the first was redeemed, the others are copies of it.
func (l *storeTest) manyGrants(app client.Client) []grant.Grant {
	l.Helper()
	all, copies := []grant.Grant{l.consented(app, 0)}, make([]uuid.UUID, tooMany-1)
	for i := range copies {
		g := all[0]
		g.ID = uuid.New()
		copies[i] = g.ID
		all = append(all, g)
	}
	l.fixture.Exec(`insert into account.grants
		select one.* from account.grants original, unnest($2::uuid[]) copies (copy),
		jsonb_populate_record(original, jsonb_build_object('id', copy)) one where original.id = $1`, all[0].ID, copies)
	return all
}

// standingOf returns the standing of the access tokens of a grant.
func (l *storeTest) standingOf(g grant.Grant) standing.Standing {
	l.Helper()
	one, err := l.Standing(l.Context(), granted(g, "key", uuid.Nil, ""))
	must(l, err)
	return one
}

// refreshDirectly takes the step of a grant to generation 2 without a snapshot.
func (l *storeTest) refreshDirectly(g grant.Grant) (grant.UpdateResult, error) {
	step := grant.Step{GrantID: g.ID, WorkspaceID: g.WorkspaceID, Generation: 2, Hash: hash(2), Nonce: "n"}
	terms := grant.CodeTerms{ClientID: g.ClientID, Resource: g.Resource}
	_, result, err := l.AdvanceDirectly(l.Context(), step, terms, nil)
	return result, err
}

// accepts returns the grants that some statement accepts.
func (l *storeTest) accepts(all []grant.Grant) (accepted []grant.Grant) {
	l.Helper()
	for _, g := range all {
		snapshot, err := l.Snapshot(l.Context(), g.ClientID, g.Key())
		must(l, err)
		result, err := l.refreshDirectly(g)
		must(l, err)
		if l.standingOf(g).State == standing.Active || result != grant.Refused ||
			(snapshot.Client != nil && snapshot.Grant.State != grant.Revoked) {
			accepted = append(accepted, g)
		}
	}
	return accepted
}

// unchanged returns some of the grants that the request has left as they were.
func (l *storeTest) unchanged(all []grant.Grant) (left []grant.Grant) {
	l.Helper()
	for _, g := range all {
		now := l.stored(g)
		if now.State != grant.Revoked && len(now.Permissions) == len(g.Permissions) {
			left = append(left, g)
		}
		if len(left) == 20 {
			break
		}
	}
	if len(left) == 0 {
		l.Error("the request changed all grants")
	}
	return left
}

// wantLeftOver checks that the request has left some grants to EndNext, and that no statement accepts them.
func (l *storeTest) wantLeftOver(all []grant.Grant, reason grant.Reason) {
	l.Helper()
	left := l.unchanged(all)
	if accepted := l.accepts(left); len(accepted) != 0 {
		l.Errorf("%d of %d grants are accepted after their end", len(accepted), len(left))
	}
	for _, g := range left {
		if s, err := l.Snapshot(l.Context(), g.ClientID, g.Key()); err != nil || s.Grant.Reason != reason {
			l.Fatalf("a grant that waits for its end has the reason %q: %v", s.Grant.Reason, err)
		}
	}
}

// endEverything runs EndNext until nothing is left.
func (l *storeTest) endEverything() {
	l.Helper()
	for range 2 * tooMany {
		if _, found, err := l.EndNext(l.Context()); err != nil || !found {
			must(l, err)
			return
		}
	}
	l.Fatal("EndNext never finishes")
}

// endAll runs EndNext until nothing is left, and checks that each grant was revoked once, for the reason.
func (l *storeTest) endAll(all []grant.Grant, reason grant.Reason) {
	l.Helper()
	l.endEverything()
	for what, sql := range map[string]string{
		"revoked": `select count(*) from account.grants where client_id = $1 and state = 'revoked'
			and revoke_reason = $2`,
		"audit events": `select count(*) from account.audit_events e where action = '` + string(audit.GrantRevoked) + `'
			and e.detail ->> 'client_id' = $1::uuid::text and e.detail ->> 'reason' = $2`,
		"events": `select count(distinct e.data ->> 'id') from account.events e join account.grants g
			on g.id::text = e.data ->> 'id' where e.type = 'connection.ended' and g.client_id = $1 and $2 <> ''`,
	} {
		l.wantCount(len(all), what, sql, all[0].ClientID, string(reason))
	}
	l.wantCount(0, "endings are left", `select count(*) from account.endings`)
}

func (l *storeTest) event(action audit.Action) audit.Event {
	event := audit.ByOperator().Event(action, "tenant:"+l.fixture.WorkspaceID.String(), map[string]any{}, nil)
	event.WorkspaceID = &l.fixture.WorkspaceID
	return event
}

func TestG7_DeletedClientHasMoreGrantsThanATransactionEnds(t *testing.T) {
	l := ownStoreTest(t)
	l.publish("key")
	app := l.fixture.Connector(l.grant.Resource, perm.ProgrammesRead)
	all := l.manyGrants(app)
	if accepted := l.accepts(all[1:2]); len(accepted) != 1 {
		t.Fatal("a copied grant is not accepted")
	}
	other := l.consented(l.fixture.Connector(l.grant.Resource, perm.ProgrammesRead), 0)
	ended, err := l.DeleteClient(t.Context(), l.fixture.WorkspaceID, app.ID, l.event(audit.ClientDeleted))
	if err != nil || len(ended.Grants) == 0 {
		t.Fatal(len(ended.Grants), err)
	}
	l.wantLeftOver(all, grant.ClientDeleted)
	if n, err := l.LiveConnections(t.Context(), l.fixture.WorkspaceID); err != nil || n.Assistants != 1 || n.All != 1 {
		t.Errorf("%+v connections are counted: %v", n, err)
	}
	if apps, err := l.ConnectedApps(t.Context(), other.UserID); err != nil || len(apps) != 1+len(ended.Grants) &&
		len(apps) != 500 {
		t.Errorf("%d connections are listed: %v", len(apps), err)
	}
	l.endAll(all, grant.ClientDeleted)
	if l.standingOf(other).State != standing.Active {
		t.Error("the grant of another client ended too")
	}
}

// endingOfNothing adds an ending to a workspace. It concerns no grant and no token.
const endingOfNothing = `insert into account.endings (id, tenant_id, client_id, reason, actor)
	values (gen_random_uuid(), $1, gen_random_uuid(), 'client_deleted', 'admin')`

// Requests for several grants share a statement, in a workspace with an ending too.
func TestG7_EndingConcernsItsClientAlone(t *testing.T) {
	l := newStoreTest(t)
	all := l.many(16)
	over := all[0]
	l.fixture.Exec(endingOfNothing, l.fixture.WorkspaceID)
	l.fixture.Exec(`update account.endings set client_id = $1 where tenant_id = $2`, over.ClientID,
		l.fixture.WorkspaceID)
	concurrently(len(all), func(i int) {
		g := all[i]
		state, result := grant.Active, grant.Updated
		if g.ID == over.ID {
			state, result = grant.Revoked, grant.Refused
		}
		snapshot, err := l.Snapshot(t.Context(), g.ClientID, g.Key())
		if err != nil || snapshot.Grant.State != state {
			t.Errorf("%+v %v, want the state %s", snapshot.Grant, err, state)
		}
		wants(t, result)(l.refreshDirectly(g))
	})
}

// toMetadataClient makes a client one that has a metadata document and belongs to no workspace.
const toMetadataClient = `update account.oauth_clients set tenant_id = null,
	metadata_url = 'https://app.example/' || id, resource = '', document_read_at = now(), document_fresh_until = now()
	where id = $1`

// The platform decides which grants a policy ends. A setting that changes it meanwhile must not give them back.
func TestP3_ClientKeepsPlatformWhilePolicyIsApplied(t *testing.T) {
	l := newStoreTest(t)
	app := l.fixture.Connector(l.grant.Resource, perm.ProgrammesRead)
	l.fixture.Exec(toMetadataClient, app.ID)
	wantPlatform := func(want string) {
		t.Helper()
		must(t, l.SetClientPlatform(t.Context(), app.ID, "chatgpt"))
		got := l.read(`select connector_platform from account.oauth_clients where id = $1`, app.ID)
		if got != want {
			t.Errorf("the platform is %s, want %s", got, want)
		}
	}
	l.fixture.Exec(`insert into account.endings (id, tenant_id, platforms, permissions, days, reason, actor)
		values (gen_random_uuid(), $1, '{}', '{}', 1, 'policy', 'admin')`, l.fixture.WorkspaceID)
	wantPlatform("claude")
	l.fixture.Exec(`delete from account.endings where tenant_id = $1`, l.fixture.WorkspaceID)
	wantPlatform("chatgpt")
}

func TestG7_DeletedClientHasGrantsInManyWorkspaces(t *testing.T) {
	const workspaces = 60
	l := ownStoreTest(t)
	app := l.fixture.Connector(l.grant.Resource, perm.ProgrammesRead)
	g := l.consented(app, 0)
	l.fixture.Exec(toMetadataClient, app.ID)
	l.fixture.Exec(`with added as (insert into account.tenants (id, organisation_id, name)
			select gen_random_uuid(), organisation_id, name from account.tenants, generate_series(1, $2::int)
			where id = $3 returning id)
		insert into account.grants select one.* from account.grants original, added,
			jsonb_populate_record(original, jsonb_build_object('id', gen_random_uuid(), 'tenant_id', added.id)) one
		where original.id = $1`, g.ID, workspaces, g.WorkspaceID)
	ended, err := l.DeleteClient(t.Context(), uuid.Nil, app.ID, l.event(audit.ClientDeleted))
	if err != nil || !ended.More || len(ended.Grants) == 0 || len(ended.Grants) > workspaces {
		t.Fatal(len(ended.Grants), ended.More, err)
	}
	const ofClient = `select tenant_id, id from account.grants where client_id = $1`
	rows, _ := l.fixture.Owner.Query(t.Context(), ofClient, app.ID) // CollectRows returns the error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[grant.Key])
	if err != nil || len(all) != 1+workspaces {
		t.Fatal(len(all), err)
	}
	for _, key := range all {
		if now, err := l.Snapshot(t.Context(), app.ID, key); err != nil || now.Grant.State != grant.Revoked {
			t.Fatal("a grant of the deleted client is accepted", err)
		}
	}
	l.endEverything()
	l.wantCount(len(all), "grants were revoked",
		`select count(*) from account.grants where client_id = $1 and state = 'revoked'`, app.ID)
}

// Of several removals at once, one ends the membership.
func TestM3_MemberWhoComesBackFindsNoFormerGrantsAndTokens(t *testing.T) {
	l := ownStoreTest(t)
	l.publish("key")
	app := l.fixture.Connector(l.grant.Resource, perm.ProgrammesRead)
	all := l.manyGrants(app)
	user := all[0].UserID
	token := standing.Query{PATHash: credential.Hash(l.fixture.Token(user, perm.ProgrammesRead).Reveal())}
	l.fixture.Exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions,
			expires_at)
		select gen_random_uuid(), sha256(n::text::bytea), user_id, tenant_id, name, permissions, expires_at
		from account.personal_access_tokens, generate_series(1, $1::int) n`, tooMany)
	workspaceID := l.fixture.WorkspaceID
	end := func() error {
		removal, err := l.EndMembership(t.Context(), workspaceID, user, l.event(audit.MemberRemoved))
		if err == nil && (!removal.More || len(removal.Grants) == 0 || removal.Tokens == 0) {
			t.Errorf("%d grants, %d tokens, more: %v", len(removal.Grants), removal.Tokens, removal.More)
		}
		return err
	}
	if won := succeeded(t, "a later removal", membership.ErrNoMember, at(end, end, end, end)); won != 1 {
		t.Fatalf("%d removals ended the membership", won)
	}
	l.fixture.Exec(`update account.users set email_proven_at = now(), email_proven_by = 'operator' where id = $1`, user)
	held := perm.NewSet(perm.ProgrammesRead)
	must(t, l.AddMember(t.Context(), workspaceID, user, held, l.event(audit.MemberAdded)))
	l.wantLeftOver(all, grant.MembershipOver)
	// The token in question is one that waits for its end.
	l.fixture.Exec(`update account.personal_access_tokens set hash = sha256('former') where hash = $1`, token.PATHash)
	l.fixture.Exec(`update account.personal_access_tokens set hash = $1 where id =
		(select id from account.personal_access_tokens where revoked_at is null limit 1)`, token.PATHash)
	if s, err := l.Standing(t.Context(), token); err != nil || s.State != "revoked" {
		t.Errorf("a former token is %s: %v", s.State, err)
	}
	if m, err := l.WorkspaceMember(t.Context(), workspaceID, user); err != nil || m.Connections+m.Tokens != 0 {
		t.Errorf("%d connections and %d tokens are counted: %v", m.Connections, m.Tokens, err)
	}
	if tokens, err := l.ActiveTokens(t.Context(), user); err != nil || len(tokens) != 0 {
		t.Errorf("%d tokens are listed as active: %v", len(tokens), err)
	}
	again := l.consented(l.fixture.Connector(l.grant.Resource, perm.ProgrammesRead), 0)
	fresh := standing.Query{PATHash: credential.Hash(l.fixture.Token(user, perm.ProgrammesRead).Reveal())}
	l.endAll(all, grant.MembershipOver)
	l.wantCount(1, "tokens are not revoked, want the one of the new membership",
		`select count(*) from account.personal_access_tokens where revoked_at is null`)
	if s, err := l.Standing(t.Context(), fresh); err != nil || s.State != standing.Active ||
		l.standingOf(again).State != standing.Active {
		t.Error("a grant or token of the new membership was revoked", s.State, err)
	}
}

func TestP2_PolicyNarrowsMoreGrantsThanATransactionChanges(t *testing.T) {
	l := ownStoreTest(t)
	l.publish("key")
	l.fixture.Exec(`update account.memberships set permissions = $1`, perm.NewSet(both...).Strings())
	narrowed := l.manyGrants(l.fixture.Connector(l.grant.Resource, both...))
	ended := l.manyGrants(l.fixture.Connector(l.grant.Resource, perm.ProgrammesWrite))
	limit := policyOf(7, workspace.Platforms(), perm.ProgrammesRead)
	change := l.limit(limit)
	if want := (consent.PolicyEffect{End: tooMany, Lose: tooMany, Sooner: tooMany}); change.Effect != want {
		t.Errorf("%+v, want %+v", change.Effect, want)
	}
	// The policy is raised again, which must not give back anything (P3).
	l.limit(policyOf(30, workspace.Platforms(), both...))
	if accepted := l.accepts(l.unchanged(ended)); len(accepted) != 0 {
		t.Errorf("%d grants of which nothing is left are accepted", len(accepted))
	}
	left := l.unchanged(narrowed)
	wantNarrow := func() {
		t.Helper()
		for _, g := range left {
			end := g.Created.Add(7 * day).Add(time.Second)
			s, err := l.Snapshot(t.Context(), g.ClientID, g.Key())
			now := l.standingOf(g)
			if err != nil || s.Grant.Permissions.Has(perm.ProgrammesWrite) || s.Grant.Ends.After(end) ||
				now.State != standing.Active || now.CredentialPermissions.Scope() != "programmes:read:programmes" ||
				now.EndsAt.After(end) {
				t.Fatalf("a grant exceeds the policy: %+v %+v %v", s.Grant, now, err)
			}
		}
	}
	wantNarrow()
	l.endAll(ended, grant.ByPolicy)
	wantNarrow()
	l.wantCount(tooMany, "grants are narrowed", `select count(*) from account.grants
		where narrowed_at is not null and cardinality(permissions) = 1`)
	l.events(audit.GrantNarrowed, tooMany)
}
