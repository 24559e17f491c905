package token_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const (
	read  = string(perm.ProgrammesRead)
	write = string(perm.ProgrammesWrite)
	both  = read + " " + write
)

// Contract, section 3: scope narrows the access token, and the refresh token keeps what the grant has.
func TestRefresh_ScopeNarrowsAccessTokenAlone(t *testing.T) {
	t.Parallel()
	b, counted := newCounted(t)
	tokens := &testEnv{Server: b.Server, t: t}
	held := b.Connected(b.app, b.user)
	for _, c := range []struct{ scope, want string }{
		{read, read},
		{"-", both},
		{write, write},
		{"", both},
		{"  " + write + "  " + read + " ", both},
		{"offline_access", both},
		{"offline_access " + read, read},
		{both, both},
	} {
		var answer apitest.Answer
		countTrips(t, counted, "scope "+c.scope, trips{Postgres: 1, Redis: 1}, func() {
			answer = b.refresh(held.Refresh, "scope", c.scope)
			held.Refresh = tokenIn(answer)
		})
		if answer.Status != 200 || answer.Text("scope") != c.want || tokens.claims(answer).Scope.Scope() != c.want {
			t.Fatalf("scope %q: %d %q, want %q", c.scope, answer.Status, answer.Text("scope"), c.want)
		}
	}
	if g := b.Stored(held.Grant); g.Permissions.Scope() != both {
		t.Errorf("the grant has %s", g.Permissions.Scope())
	}
}

func TestRefresh_WiderScopeIsRefusedAndConsumesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	for _, scope := range []string{
		"nonsense", read + " nonsense", "engage:read:forms", read + " engage:read:forms", "account:api:access",
		"Programmes:read:programmes", read + "," + write, "offline_access nonsense", read + "\t" + write,
	} {
		b.refused(scope, b.refresh(held.Refresh, "scope", scope), 400, "invalid_scope")
	}
	b.wantActive("after refusals", held.Grant)
	next := b.Refreshed(b.app, held)
	b.refused("a superseded token", b.refresh(held.Refresh, "scope", "nonsense"), 400, "invalid_grant")
	b.wantRevoked("a superseded token", next.Grant, grant.Replayed)
	// The parameter is unknown where it means nothing.
	b.given("exchange", b.exchange("scope", "nonsense"))
	b.given("JSON", b.link("scope", "nonsense"))
}

func TestRefresh_RepeatHasSameScope(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	send := func(held apitest.Connection, scope string) apitest.Answer {
		return b.FormWith(path, []string{"Idempotency-Key", someKey}, "grant_type", "refresh_token",
			"client_id", b.app.ID.String(), "resource", b.app.Resource, "refresh_token", held.Refresh.Reveal(),
			"scope", scope)
	}
	for _, other := range []string{"", write, both} {
		held := b.Connected(b.app, b.user)
		b.repeated("scope", send(held, read), send(held, " offline_access  "+read))
		b.refused("another scope: "+other, send(held, other), 400, "invalid_grant")
		b.wantRevoked("another scope: "+other, held.Grant, grant.Replayed)
	}
}
