package token_test

import (
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
)

func TestF1_OnlyRefusalsAreThrottled(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	for _, id := range []string{b.app.ID.String(), b.linked.ID.String()} {
		failElsewhere(t, b.Server, func(c *ratelimit.Limiter) time.Duration { return c.ForClient(id) })
	}
	_, code := b.Consent(b.linked, b.user)
	wantLimited(t, func() apitest.Answer { return b.linkCode(code, "client_secret", "alm_cs_wrong") })
	wantLimited(t, func() apitest.Answer { return b.linkCode("alm_ac_forged") })
	wantLimited(t, func() apitest.Answer { return b.refresh("alm_rt_forged") })
	wantLimited(t, func() apitest.Answer { return b.exchangeCode("alm_ac_forged") })
	for range 20 {
		b.given("a code", b.exchange())
		b.given("a code in JSON", b.link())
		held = b.Refreshed(b.app, held)
	}
	b.given("the code that others were refused with", b.linkCode(code))
	b.refused("without a token", b.refresh("", "refresh_token", "-"), 400, "invalid_request")
}

func TestF2_ThrottledReplayRevokesGrant(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	first, other := b.Connected(b.app, b.user), b.Connected(b.app, b.user)
	failElsewhere(t, b.Server, func(c *ratelimit.Limiter) time.Duration { return c.ForGrant(first.Grant.ID) })
	wantLimited(t, func() apitest.Answer { return b.refresh(first.Refresh, "resource", apitest.MCP) })
	second := b.Refreshed(b.app, first)
	wantLimited(t, func() apitest.Answer { return b.refresh(first.Refresh) })
	b.wantRevoked("replayed while its failures were throttled", first.Grant, grant.Replayed)
	wantLimited(t, func() apitest.Answer { return b.refresh(second.Refresh) })
	other = b.Refreshed(b.app, other)
	b.refused("another grant of the client", b.refresh(other.Refresh, "resource", apitest.MCP), 400, "invalid_target")
	b.refused("guesses of the client", b.refresh("alm_rt_forged"), 400, "invalid_grant")
}

func TestToken_WithoutRedisRefusalsAreNotThrottled(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	_, code := b.Consent(b.linked, b.user)
	b.Redis.Stop()
	for range 3 {
		b.refused("forged", b.refresh("alm_rt_forged"), 400, "invalid_grant")
		b.refused("wrong secret", b.linkCode(code, "client_secret", "alm_cs_wrong"), 400, "invalid_client")
	}
}
