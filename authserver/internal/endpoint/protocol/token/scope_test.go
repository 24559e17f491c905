package token_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Contract, section 3: scope narrows the access token, and the refresh token keeps what the grant has.
func TestRefresh_ScopeNarrowsAccessTokenAlone(t *testing.T) {
	t.Parallel()
	b := newCounted(t)
	held := b.connected()
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
		b.costs("scope "+c.scope, trips{Postgres: 1, Redis: 1}, func() {
			answer = b.refresh(held.Refresh, "scope", c.scope)
			held.Refresh = tokenIn(answer)
		})
		b.given("scope "+c.scope, answer)
		if in := b.claims(answer).Scope.Scope(); answer.Text("scope") != c.want || in != c.want {
			t.Fatalf("scope %q: %q, in the token %q, want %q", c.scope, answer.Text("scope"), in, c.want)
		}
	}
	if g := b.Stored(held.Grant); g.Permissions.Scope() != both {
		t.Errorf("the grant has %s", g.Permissions.Scope())
	}
}

func TestRefresh_WiderScopeIsRefusedAndConsumesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.connected()
	for _, scope := range []string{
		"nonsense", read + " nonsense", "engage:read:forms", read + " engage:read:forms", "account:api:access",
		"Programmes:read:programmes", read + "," + write, "offline_access nonsense", read + "\t" + write,
	} {
		b.Wants(scope, b.refresh(held.Refresh, "scope", scope), 400, "invalid_scope")
	}
	b.wantActive("after refusals", held.Grant)
	next := b.Refreshed(b.app, held)
	b.Wants("a superseded token", b.refresh(held.Refresh, "scope", "nonsense"), 400, "invalid_grant")
	b.wantRevoked("a superseded token", next.Grant, grant.Replayed)
}

func TestRefresh_LostPermissionStaysInScope(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.connected()
	b.setPermissions(perm.ProgrammesRead)
	answer := b.refresh(held.Refresh)
	b.given("one permission left", answer)
	b.WantsMembers("one permission left", answer, map[string]any{"scope": both})
}

func TestRefresh_RepeatHasSameScope(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	for _, other := range []string{"", write, both} {
		held := b.connected()
		b.repeated("scope", b.refreshWith(held, someKey, "scope", read),
			b.refreshWith(held, someKey, "scope", " offline_access  "+read))
		b.Wants("another scope: "+other, b.refreshWith(held, someKey, "scope", other), 400, "invalid_grant")
		b.wantRevoked("another scope: "+other, held.Grant, grant.Replayed)
	}
}
