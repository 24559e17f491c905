package engine

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// recorded requires so many events of refusals about a grant, for a reason, with what the client was told.
func (b *testEnv) recorded(want int, reason string, g grant.Grant, caller uuid.UUID, refused *TokenError) {
	b.Helper()
	n := b.count(`select count(*) from account.audit_events where action = $1
		and subject = $2 and detail->>'reason' = $3 and detail->>'error' = $4 and detail->>'description' = $5
		and detail->>'client_id' = $6 and actor = $7 and tenant_id = $8 and user_id = $9`, audit.GrantRefused,
		"grant:"+g.ID.String(), reason, refused.Code, refused.Description, g.ClientID.String(),
		"client:"+caller.String(), g.WorkspaceID, g.UserID)
	if n != want {
		b.Errorf("%s: %d events with %q, want %d", reason, n, refused.Description, want)
	}
}

// events counts the events of refusals in the workspace.
func (b *testEnv) events() int {
	b.Helper()
	return b.count(`select count(*) from account.audit_events where tenant_id = $1 and action = $2`,
		b.fixture.WorkspaceID, audit.GrantRefused)
}

func TestRefusal_IsRecordedWithItsReason(t *testing.T) {
	t.Parallel()
	sql := func(text string, of func(*testEnv) uuid.UUID) func(*testEnv) {
		return func(b *testEnv) { b.fixture.Exec(text, of(b)) }
	}
	app := func(b *testEnv) uuid.UUID { return b.app.ID }
	user := func(b *testEnv) uuid.UUID { return b.user }
	for _, c := range []struct {
		reason, words, code string
		change              func(*testEnv)
	}{
		{"llm_integration_off", "LLM integration", "invalid_grant", func(b *testEnv) { b.fixture.SetLLM(false) }},
		{"permissions_lost", "permissions", "invalid_grant",
			sql(`update account.memberships set permissions = '{engage:read:forms}' where user_id = $1`, user)},
		{"membership_ended", "no longer a member", "invalid_grant",
			sql(`delete from account.memberships where user_id = $1`, user)},
		{"user_disabled", "disabled", "invalid_grant",
			sql(`update account.users set disabled_at = now() where id = $1`, user)},
		{"time_over", "access that the user approved has expired", "invalid_grant",
			sql(`update account.grants set ends_at = now() where client_id = $1`, app)},
		{"client_deleted", "The client is unknown", "invalid_client",
			sql(`update account.oauth_clients set deleted_at = now() where id = $1`, app)},
		{"request_does_not_match", "resource", "invalid_target", func(*testEnv) {}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			b := newTestEnv(t)
			held := b.connect(b.app)
			pending, code := b.consent(b.app)
			refresh, exchange := refreshOf(b.app, held.Refresh), b.exchangeOf(b.app, code)
			if c.code == "invalid_target" {
				refresh = refresh.with(parameters{"resource": mcp})
				exchange = exchange.with(parameters{"resource": mcp})
			}
			c.change(b)
			b.recorded(1, c.reason, held.Grant, b.app.ID, b.refused("refresh", refresh, c.code, c.words))
			b.recorded(1, c.reason, pending, b.app.ID, b.refused("exchange", exchange, c.code))
		})
	}
}

// The snapshot of a request is older than the end of the grant that the request causes.
func TestRefusal_HasReasonOfEndedGrant(t *testing.T) {
	b := newTestEnv(t)
	held := b.connect(b.app)
	b.mustToken("refresh", refreshOf(b.app, held.Refresh))
	replayed := b.refused("replay", refreshOf(b.app, held.Refresh), "invalid_grant")
	b.recorded(1, "refresh_token_replayed", held.Grant, b.app.ID, replayed)
	held = b.connect(b.app)
	pending, code := b.consent(b.app)
	for g, r := range map[*grant.Grant]TokenRequest{
		&held.Grant: refreshOf(b.app, held.Refresh),
		&pending:    b.exchangeOf(b.app, code),
	} {
		testkit.Must(t, b.Grants.Revoke(t.Context(), *g, grant.ByUser, "user"))
		ended := b.refused("ended", r, "invalid_grant", "The user disconnected this application on ")
		b.recorded(1, "disconnected_by_user", *g, b.app.ID, ended)
	}
}

func TestRefusal_ThatReadNothingIsRecorded(t *testing.T) {
	b := newTestEnv(t)
	other := b.fixture.Connector(rest, perm.ProgrammesRead)
	held := b.connect(b.app)
	foreign := refreshOf(other, held.Refresh)
	b.recorded(1, "another_client", held.Grant, other.ID, b.refused("another client", foreign, "invalid_grant"))
	g, code := b.consent(b.linked)
	wrong := b.exchangeOf(b.linked, code)
	wrong.ClientSecret = "alm_cs_wrong"
	b.recorded(1, "request_does_not_match", g, b.linked.ID, b.refused("wrong secret", wrong, "invalid_client"))
	before := b.events()
	short := refreshOf(b.app, held.Refresh).with(parameters{"resource": ""})
	for range 3 { // refused before a store is asked
		b.recorded(1, "request_does_not_match", held.Grant, b.app.ID, b.refused("incomplete", short, "invalid_request"))
	}
	if n := b.events(); n != before+1 {
		t.Errorf("%d events of incomplete requests", n-before)
	}
	unnamed := refreshOf(b.app, held.Refresh)
	unnamed.ClientID = "app"
	b.refused("no client", unnamed, "invalid_client")
	b.fixture.Exec(`delete from account.grants where id = $1`, held.Grant.ID)
	gone := refreshOf(b.app, held.Refresh)
	b.refused("gone", gone, "invalid_grant")
	gone.ClientID = uuid.NewString()
	b.refused("gone, of an unknown client", gone, "invalid_client")
	cut := held.Refresh.Reveal()
	for _, forged := range []credential.Secret{"alm_rt_x", credential.Secret(cut[:len(cut)-1])} {
		b.refused("forged", refreshOf(b.app, forged), "invalid_grant")
	}
	if n := b.events(); n != before+1 {
		t.Errorf("%d events of requests without a grant or a client", n-before-1)
	}
}

// Each reason is recorded once an hour.
func TestRefusal_IsRecordedOnceAnHour(t *testing.T) {
	b := newTestEnv(t)
	held := b.connect(b.app)
	b.fixture.SetLLM(false)
	refresh := refreshOf(b.app, held.Refresh)
	count := func(what string, want int) {
		t.Helper()
		for range 3 {
			b.refused(what, refresh, "invalid_grant")
		}
		if n := b.events(); n != want {
			t.Errorf("%s: %d events, want %d", what, n, want)
		}
	}
	count("first", 1)
	b.fixture.Exec(`delete from account.audit_events where tenant_id = $1`, b.fixture.WorkspaceID)
	b.now = b.now.Add(29 * time.Minute)
	count("in the same hour", 0)
	b.now = b.now.Add(time.Minute)
	count("in the next hour", 1)
	b.fixture.Exec(`delete from account.memberships where user_id = $1`, b.user)
	count("for another reason", 2)
}

// A forged code or token is recorded for its connector, once a while, and for no one else.
func TestRefusal_OfForgedTokenIsRecordedForConnector(t *testing.T) {
	b := newTestEnv(t)
	forged := refreshOf(b.app, "alm_rt_x")
	for range 3 {
		b.refused("forged", forged, "invalid_grant")
	}
	other := b.fixture.Connector(rest, perm.ProgrammesRead)
	b.refused("forged, known only by name", refreshOf(other, "alm_rt_x").with(parameters{"resource": ""}),
		"invalid_request")
	for _, id := range []string{"app", uuid.NewString(), b.linked.PublicID()} {
		unknown := forged
		unknown.ClientID = id
		_, _ = b.Token(t.Context(), unknown)
	}
	_, _ = b.Token(t.Context(), b.exchangeOf(b.linked, "alm_ac_x"))
	all := b.count(`select count(*) from account.connection_stops where tenant_id = $1`, b.fixture.WorkspaceID)
	n := b.count(`select count(*) from account.connection_stops where client_id = $1 and tenant_id = $2
		and user_id is null and stray and outcome = 'refused' and reason like 'The refresh token is unknown%'`,
		b.app.ID, b.fixture.WorkspaceID)
	if n != 1 || all != 2 {
		t.Errorf("%d attempts of the connector and %d in all, want 1 and 2", n, all)
	}
	var text credential.Secret
	testkit.Must(t, b.fixture.Owner.QueryRow(t.Context(), `select string_agg(reason, ' ') from account.connection_stops
		where client_id = $1`, other.ID).Scan(&text))
	if text.Reveal() != "resource is required."+librariesHelp {
		t.Errorf("reason %q", text.Reveal())
	}
}

// Requests with made-up client ids do not fill the recorder's memory, or it would record no one else's attempts.
func TestRefusal_OfMadeUpClientsIsForgotten(t *testing.T) {
	b := newTestEnv(t)
	for range 4200 { // more than it remembers
		_, _ = b.Token(t.Context(), refreshOf(client.Client{ID: uuid.New(), Resource: rest}, "alm_rt_x"))
	}
	b.refused("forged", refreshOf(b.app, "alm_rt_x"), "invalid_grant")
	if n := b.count(`select count(*) from account.connection_stops where client_id = $1`, b.app.ID); n != 1 {
		t.Errorf("%d attempts", n)
	}
}
