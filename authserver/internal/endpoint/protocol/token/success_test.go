package token_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
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
	const lifetime = 90 * 24 * 60 * 60
	b.WantsAll("JSON", answer, 200, map[string]any{
		"access_token": answer.Text("access_token"),
		"token_type":   "Bearer",
		"expires_in":   float64(lifetime),
		"scope":        read,
		"tenant_id":    b.Fixture.WorkspaceID.String(),
	})
	b.WantsHeader("JSON", answer, "Pragma", "no-cache")
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
	left, _ := answer.Object()["authorization_expires_in"].(float64)
	b.WantsAll("form", answer, 200, map[string]any{
		"access_token":             answer.Text("access_token"),
		"refresh_token":            "alm_rt_" + strings.TrimPrefix(answer.Text("refresh_token"), "alm_rt_"),
		"token_type":               "Bearer",
		"expires_in":               3600.0,
		"authorization_expires_in": left,
		"scope":                    both,
		"tenant_id":                b.Fixture.WorkspaceID.String(),
	})
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

// A public client of the Go library sends a verifier and the resource.
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
	if !token.Valid() || token.Type() != "Bearer" || token.RefreshToken == "" {
		t.Errorf("type %s, expiry %v", token.Type(), token.Expiry)
	}
	b.Equal("its resource", b.claimsOf(credential.Secret(token.AccessToken)).Audience, apitest.REST)
	b.active("its access token", credential.Secret(token.AccessToken))
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
		refresh := func(scope string) apitest.Answer {
			return b.refresh(held.Refresh, "Idempotency-Key:", someKey, "scope", scope)
		}
		b.repeated("scope", refresh(read), refresh(" offline_access  "+read))
		b.Wants("another scope: "+other, refresh(other), 400, "invalid_grant")
		b.wantRevoked("another scope: "+other, held.Grant, grant.Replayed)
	}
}

// A refresh and an exchange ask each store once. A client that authenticates is read before that.
func TestToken_SuccessCostsOneTripToEachStore(t *testing.T) {
	b := newCounted(t)
	direct := trips{Postgres: 1, Redis: 1}
	held := b.connected()
	b.costs("refresh", direct, func() { held = b.Refreshed(b.app, held) })
	b.costs("refresh with a scope", direct, func() {
		answer := b.refresh(held.Refresh, "scope", read)
		b.WantsMembers("refresh with a scope", answer, map[string]any{"scope": read})
		held.Refresh = tokenIn(answer)
	})
	for _, c := range []struct {
		what string
		of   client.Client
		want trips
		send func(code credential.Secret, changes ...string) apitest.Answer
	}{
		{"exchange of a connector", b.app, direct, b.exchangeCode},
		{"exchange of a confidential client", b.linked, trips{Postgres: 2, Redis: 1}, b.linkCode},
	} {
		var codes []credential.Secret
		b.costs(c.what, c.want, func() {
			b.given(c.what, c.send(codes[0]))
			codes = codes[1:]
		}, func() {
			for len(codes) < countedTimes {
				_, code := b.Consent(c.of, b.user)
				codes = append(codes, code)
			}
		})
	}
}

// A malformed, cut or forged credential costs no round trip, and another wrong one costs one round trip. Refusals are
// written to Redis later, in batches (package ratelimit).
func TestToken_RefusalCostsNoMoreThanOneRoundTrip(t *testing.T) {
	b := newCounted(t)
	held, ended, replayed := b.connected(), b.connected(), b.connected()
	b.disconnect(ended.Grant)
	b.Refreshed(b.app, replayed)
	b.Wants("a superseded token", b.refresh(replayed.Refresh), 400, "invalid_grant")
	refresh, other := held.Refresh.Reveal(), b.stranger()
	flip := map[byte]string{'A': "B"}[refresh[40]]
	if flip == "" {
		flip = "A"
	}
	badMAC := credential.Secret(refresh[:40] + flip + refresh[41:])
	forged := credential.Secret("alm_ac_" + strings.Repeat("x", 112))
	const none = "00000000-0000-4000-8000-000000000000"
	for _, c := range []struct {
		what, code string
		each       trips
		send       func() apitest.Answer
	}{
		{"no refresh token", "invalid_grant", trips{}, func() apitest.Answer { return b.refresh("alm_rt_word") }},
		{"a bad MAC", "invalid_grant", trips{}, func() apitest.Answer { return b.refresh(badMAC) }},
		{"a forged code", "invalid_grant", trips{}, func() apitest.Answer { return b.exchangeCode(forged) }},
		{"forged, JSON", "invalid_grant", trips{}, func() apitest.Answer { return b.linkCode(forged) }},
		{"no client", "invalid_client", trips{}, func() apitest.Answer {
			return b.refresh(held.Refresh, "client_id", "app")
		}},
		{"an unknown client", "invalid_client", trips{Postgres: 1}, func() apitest.Answer {
			return b.refresh(held.Refresh, "client_id", uuid.NewString())
		}},
		{"an unknown client and garbage", "invalid_client", trips{}, func() apitest.Answer {
			return b.refresh("alm_rt_word", "client_id", none)
		}},
		{"another client's", "invalid_grant", trips{Postgres: 1}, func() apitest.Answer {
			return b.refresh(held.Refresh, "client_id", other)
		}},
		{"ended", "invalid_grant", trips{Postgres: 1}, func() apitest.Answer { return b.refresh(ended.Refresh) }},
		{"replayed", "invalid_grant", trips{Postgres: 1}, func() apitest.Answer { return b.refresh(replayed.Refresh) }},
		{"a parameter missing", "invalid_request", trips{}, func() apitest.Answer {
			return b.exchangeCode("x", "code_verifier", "-")
		}},
	} {
		b.costs(c.what, c.each, func() { b.Wants(c.what, c.send(), 400, c.code) })
	}
	b.wantActive("after all that", held.Grant)
}

// The caller and the credential are read in one query to Postgres. Failed authentications are written to Redis later
// (package ratelimit).
func TestIntrospect_IsOneRoundTrip(t *testing.T) {
	b := newCounted(t)
	held, personal := b.connected(), b.Fixture.Token(b.user)
	id, secret := b.service.ID.String(), b.service.Secret
	send := func(headers []string, form ...string) func() {
		return func() { b.FormWith(apitest.IntrospectPath, headers, append(form, "token", held.Access.Reveal())...) }
	}
	for _, c := range []struct {
		what     string
		postgres int
		send     func()
	}{
		{"an access token", 1, func() { b.active("an access token", held.Access) }},
		{"a personal access token", 1, func() { b.active("a personal access token", personal) }},
		{"garbage", 1, func() { b.inactive("garbage", "word") }},
		{"a secret in the form", 1, send(nil, "client_id", id, "client_secret", secret.Reveal())},
		{"an unknown service", 1, send(apitest.Basic(uuid.NewString(), secret))},
		{"a service without a name", 0, send(apitest.Basic("service", secret))},
		{"a secret that is none", 0, send(apitest.Basic(id, apitest.WrongSecret))},
	} {
		b.costs(c.what, trips{Postgres: c.postgres}, c.send)
	}
}
