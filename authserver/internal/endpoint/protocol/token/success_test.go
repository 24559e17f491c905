package token_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestExchange_ConfidentialClientGets90DayToken(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.Consent(b.linked, b.user)
	answer := b.linkCode(code)
	b.given("JSON", answer)
	const lifetime = 90 * 24 * 60 * 60
	b.WantsMembers("JSON", answer, map[string]any{
		"token_type": "Bearer",
		"expires_in": float64(lifetime),
		"scope":      read,
		"tenant_id":  b.Fixture.WorkspaceID.String(),
	})
	if len(answer.Object()) != 5 || answer.Header.Get("Cache-Control") != "no-store" ||
		answer.Header.Get("Pragma") != "no-cache" {
		t.Errorf("want these members, the token and headers against caches\n%s", b.Explain(answer))
	}
	claims := b.claims(answer)
	if claims.Subject != b.user || claims.Audience != apitest.REST || claims.ClientID != b.linked.ID.String() ||
		claims.Scope.Scope() != read || claims.WorkspaceID != b.Fixture.WorkspaceID || claims.GrantID != g.ID ||
		claims.Expires.Sub(claims.IssuedAt) != lifetime*time.Second {
		t.Errorf("claims: %+v", claims)
	}
}

func TestExchange_ConnectorGetsOneHourAndRefreshToken(t *testing.T) {
	b := newTestEnv(t)
	began := time.Now()
	_, code := b.Consent(b.app, b.user)
	answer := b.exchangeCode(code)
	b.given("form", answer)
	body := answer.Object()
	b.WantsMembers("form", answer, map[string]any{
		"token_type": "Bearer",
		"expires_in": 3600.0,
		"scope":      both,
		"tenant_id":  b.Fixture.WorkspaceID.String(),
	})
	if !strings.HasPrefix(answer.Text("refresh_token"), "alm_rt_") || len(body) != 7 {
		t.Errorf("want these members and both tokens\n%s", b.Explain(answer))
	}
	left, _ := body["authorization_expires_in"].(float64)
	if month := 30 * 24 * time.Hour; left < (month-time.Since(began)).Seconds()-1 || left > month.Seconds() {
		t.Errorf("authorization_expires_in: %v, want 30 days", left)
	}
	if claims := b.claims(answer); claims.Audience != apitest.REST || claims.Expires.Sub(claims.IssuedAt) != time.Hour {
		t.Errorf("claims: %+v", claims)
	}
}

func TestRefresh_RotatesAndNeverExtends(t *testing.T) {
	b := newTestEnv(t)
	for _, left := range []float64{7200, 1200} {
		held, began := b.connected(), time.Now()
		b.Fixture.Exec(`update account.grants set ends_at = now() + $2 * interval '1 second' where id = $1`,
			held.Grant.ID, left)
		for range 2 {
			answer := b.refresh(held.Refresh)
			b.given("refresh", answer)
			if next := tokenIn(answer); next == "" || next == held.Refresh {
				t.Error("the refresh token was not replaced")
			}
			held.Refresh = tokenIn(answer)
			least := left - 1 - time.Since(began).Seconds()
			for name, most := range map[string]float64{"expires_in": 3600, "authorization_expires_in": left} {
				seconds, _ := answer.Object()[name].(float64)
				if seconds > min(most, left) || seconds < min(most, least) {
					t.Errorf("%s is %v, with %v seconds left", name, seconds, left)
				}
			}
		}
	}
}

// A grant that is older than the permission sets of the resources may hold more than its resource can use.
func TestToken_ScopeIsLimitedToResource(t *testing.T) {
	b := newTestEnv(t)
	b.app = b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead, perm.ProgrammesWrite)
	b.name = b.app.ID.String()
	first := b.exchange()
	second := b.refresh(tokenIn(first))
	for name, answer := range map[string]apitest.Answer{"exchange": first, "refresh": second} {
		b.given(name, answer)
		if scope := b.claims(answer).Scope.Scope(); answer.Text("scope") != read || scope != read {
			t.Errorf("%s: scope %s, in the token %s", name, answer.Text("scope"), scope)
		}
	}
}

func TestToken_OptionalParameters(t *testing.T) {
	b := newTestEnv(t)
	b.given("grant_type", b.link("grant_type", "authorization_code"))
	b.given("resource", b.link("resource", apitest.REST))
	b.given("unknown parameters", b.link("audience", "x", "scope", "nonsense"))
	b.given("empty is missing", b.link("grant_type", "", "resource", "", "code_verifier", "", "refresh_token", ""))
	b.given("unknown parameters in a form", b.exchange("scope", "nonsense", "audience", "x"))
	b.given("an empty secret in a form", b.exchange("client_secret", ""))
}

// The Go library exchanges codes unmodified, in both of its styles (contract, section 3).
func TestGoLibrary_ExchangesCode(t *testing.T) {
	b := newTestEnv(t)
	for method, style := range map[client.AuthMethod]oauth2.AuthStyle{
		client.SecretPost:  oauth2.AuthStyleInParams,
		client.SecretBasic: oauth2.AuthStyleInHeader,
	} {
		c, secret := b.standard(method)
		config := oauth2.Config{
			ClientID:     c.ID.String(),
			ClientSecret: secret.Reveal(),
			RedirectURL:  fixture.Callback,
			Endpoint:     oauth2.Endpoint{TokenURL: b.URL + path, AuthStyle: style},
		}
		_, code := b.Consent(c, b.user)
		token, err := config.Exchange(t.Context(), code.Reveal())
		b.Must(err)
		if !token.Valid() || token.Type() != "Bearer" || token.RefreshToken != "" ||
			token.Extra("tenant_id") != b.Fixture.WorkspaceID.String() {
			t.Errorf("%s: type %s, expiry %v", method, token.Type(), token.Expiry)
		}
		fails := func(code credential.Secret, want string) {
			t.Helper()
			_, err := config.Exchange(t.Context(), code.Reveal())
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", method, err, want)
			}
		}
		fails(code, "invalid_grant")
		config.ClientSecret = b.secret.Reveal()
		_, code = b.Consent(c, b.user)
		fails(code, "invalid_client")
	}
}

// A public client of the library uses PKCE and the resource parameter.
func TestGoLibrary_ConnectsAsPublicClient(t *testing.T) {
	b := newTestEnv(t)
	config := oauth2.Config{
		ClientID:    b.name,
		RedirectURL: fixture.Callback,
		Endpoint:    oauth2.Endpoint{TokenURL: b.URL + path, AuthStyle: oauth2.AuthStyleInParams},
	}
	_, code := b.Consent(b.app, b.user)
	token, err := config.Exchange(t.Context(), code.Reveal(), oauth2.VerifierOption(apitest.Verifier),
		oauth2.SetAuthURLParam("resource", apitest.REST))
	b.Must(err)
	if !token.Valid() || token.RefreshToken == "" {
		t.Errorf("type %s, expiry %v", token.Type(), token.Expiry)
	}
}

// Contract, section 3: scope narrows the access token, and the refresh token keeps what the grant has.
func TestRefresh_ScopeNarrowsAccessTokenAlone(t *testing.T) {
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
	b.Equal("the grant", b.Stored(held.Grant).Permissions.Scope(), both)
}

func TestRefresh_WiderScopeIsRefusedAndConsumesNothing(t *testing.T) {
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
	b := newTestEnv(t)
	held := b.connected()
	b.SetPermissions(b.user, perm.ProgrammesRead)
	answer := b.refresh(held.Refresh)
	b.given("one permission left", answer)
	b.WantsMembers("one permission left", answer, map[string]any{"scope": both})
}

func TestRefresh_RepeatHasSameScope(t *testing.T) {
	b := newTestEnv(t)
	for _, other := range []string{"", write, both} {
		held := b.connected()
		b.repeated("scope", b.refreshWith(held, someKey, "scope", read),
			b.refreshWith(held, someKey, "scope", " offline_access  "+read))
		b.Wants("another scope: "+other, b.refreshWith(held, someKey, "scope", other), 400, "invalid_grant")
		b.wantRevoked("another scope: "+other, held.Grant, grant.Replayed)
	}
}
