package token_test

import (
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestF1_OnlyRefusalsAreThrottled(t *testing.T) {
	b := ownTestEnv(t)
	held := b.connected()
	b.failClientElsewhere(b.name)
	b.failClientElsewhere(b.linked.ID.String())
	_, code := b.Consent(b.linked, b.user)
	b.wantLimited(b.linkCode(code, "client_secret", "alm_cs_wrong"))
	b.wantLimited(b.linkCode("alm_ac_forged"))
	b.wantLimited(b.refresh("alm_rt_forged"))
	b.wantLimited(b.exchangeCode("alm_ac_forged"))
	for range 20 {
		b.given("a code", b.exchange())
		b.given("a code in JSON", b.link())
		held = b.Refreshed(b.app, held)
	}
	b.given("the code that others were refused with", b.linkCode(code))
	b.Wants("without a token", b.refresh("", "refresh_token", "-"), 400, "invalid_request")
}

func TestF2_ThrottledReplayRevokesGrant(t *testing.T) {
	b := ownTestEnv(t)
	first, other := b.connected(), b.connected()
	b.failElsewhere(func(c *ratelimit.Limiter) time.Duration { return c.ForGrant(first.Grant.ID) })
	b.wantLimited(b.refresh(first.Refresh, "resource", apitest.MCP))
	second := b.Refreshed(b.app, first)
	b.wantLimited(b.refresh(first.Refresh))
	b.wantRevoked("replayed while its failures were throttled", first.Grant, grant.Replayed)
	b.wantLimited(b.refresh(second.Refresh))
	other = b.Refreshed(b.app, other)
	b.Wants("another grant of the client", b.refresh(other.Refresh, "resource", apitest.MCP), 400, "invalid_target")
	b.Wants("guesses of the client", b.refresh("alm_rt_forged"), 400, "invalid_grant")
}

func TestIntrospect_OnlyWrongSecretsAreThrottled(t *testing.T) {
	b := ownTestEnv(t)
	token, id := b.connected().Access, b.service.ID.String()
	b.failClientElsewhere(id)
	wrong := apitest.Basic(id, "alm_cs_wrong")
	b.wantLimited(b.FormWith(apitest.IntrospectPath, wrong, "token", token.Reveal()))
	b.wantLimited(b.Form(apitest.IntrospectPath, "token", token.Reveal(), "client_id", id, "client_secret", "alm_cs_x"))
	for range 10 {
		b.active("with the right one", token)
		b.inactive("with the right one", "alm_pat_none")
	}
}

func TestRevoke_OnlyWrongSecretsAreThrottled(t *testing.T) {
	b := ownTestEnv(t)
	held := b.Linked(b.linked, b.secret, b.user)
	b.failClientElsewhere(b.linked.ID.String())
	revoke := func(secret credential.Secret) apitest.Answer {
		return b.PostJSON(apitest.RevokePath, "client_id", b.linked.ID.String(), "client_secret", secret.Reveal(),
			"token", held.Access.Reveal())
	}
	b.wantLimited(revoke("alm_cs_wrong"))
	b.wantActive("by a wrong secret", held.Grant)
	b.wantOK("the right one", revoke(b.secret))
	b.wantRevoked("by the right one", held.Grant, grant.ByClient)
}

func TestToken_WithoutRedisRefusalsAreNotThrottled(t *testing.T) {
	b := ownTestEnv(t)
	_, code := b.Consent(b.linked, b.user)
	b.Redis.Stop()
	for range 3 {
		b.Wants("forged", b.refresh("alm_rt_forged"), 400, "invalid_grant")
		b.Wants("wrong secret", b.linkCode(code, "client_secret", "alm_cs_wrong"), 400, "invalid_client")
	}
}
