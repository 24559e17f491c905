package token_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A refresh and an exchange ask each store once. A client that authenticates is read before that.
func TestToken_SuccessCostsOneTripToEachStore(t *testing.T) {
	b := newCounted(t)
	direct := trips{Postgres: 1, Redis: 1}
	held := b.connected()
	b.costs("refresh", direct, func() { held = b.Refreshed(b.app, held) })
	for _, c := range []struct {
		what string
		of   client.Client
		want trips
		send func(code credential.Secret, changes ...string) apitest.Answer
	}{
		{"exchange of a connector", b.app, direct, b.exchangeCode},
		{"exchange of a confidential client", b.linked, trips{Postgres: 2, Redis: 1}, b.linkCode},
	} {
		codes := make([]credential.Secret, 1+countedTries*countedTimes)
		for i := range codes {
			_, codes[i] = b.Consent(c.of, b.user)
		}
		b.costs(c.what, c.want, func() {
			b.given(c.what, c.send(codes[0]))
			codes = codes[1:]
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
		{"a secret that is none", 0, send(apitest.Basic(id, "alm_cs_wrong"))},
	} {
		b.costs(c.what, trips{Postgres: c.postgres}, c.send)
	}
}
