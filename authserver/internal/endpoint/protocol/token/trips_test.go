package token_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func newCounted(t *testing.T) (*testEnv, countedServer) {
	t.Helper()
	counted := startCounted(t)
	b := &testEnv{Server: counted.Server, t: t}
	b.user = b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	b.app = b.Fixture.Connector(apitest.REST, perm.ProgrammesRead, perm.ProgrammesWrite)
	b.linked, b.secret = b.Fixture.Confidential(perm.ProgrammesRead)
	return b, counted
}

// A refresh and an exchange ask each store once. A client that authenticates is read before that.
func TestToken_SuccessCostsOneTripToEachStore(t *testing.T) {
	t.Parallel()
	b, counted := newCounted(t)
	direct := trips{Postgres: 1, Redis: 1}
	held := b.Connected(b.app, b.user)
	countTrips(t, counted, "refresh", direct, func() { held = b.Refreshed(b.app, held) })
	for _, c := range []struct {
		what string
		of   client.Client
		want trips
		send func(credential.Secret) apitest.Answer
	}{
		{
			"exchange of a connector",
			b.app,
			direct,
			func(code credential.Secret) apitest.Answer { return b.exchangeCode(code) },
		},
		{
			"exchange of a confidential client",
			b.linked,
			trips{Postgres: 2, Redis: 1},
			func(code credential.Secret) apitest.Answer { return b.linkCode(code) },
		},
	} {
		codes := make([]credential.Secret, 100)
		for i := range codes {
			_, codes[i] = b.Consent(c.of, b.user)
		}
		countTrips(t, counted, c.what, c.want, func() {
			b.given(c.what, c.send(codes[0]))
			codes = codes[1:]
		})
	}
}

// A malformed, cut or forged credential costs no round trip, and another wrong one costs one round trip. Refusals are
// written to Redis later, in batches (package ratelimit).
func TestToken_RefusalCostsNoMoreThanOneRoundTrip(t *testing.T) {
	t.Parallel()
	b, counted := newCounted(t)
	held := b.Connected(b.app, b.user)
	refresh := held.Refresh.Reveal()
	flip := map[byte]string{'A': "B"}[refresh[40]]
	if flip == "" {
		flip = "A"
	}
	other := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead).ID.String()
	ended := b.Connected(b.app, b.user)
	b.Fixture.Exec(
		`update account.grants set state = 'revoked', revoked_at = now(), revoke_reason = 'disconnected_by_user'
			where id = $1`,
		ended.Grant.ID,
	)
	replayed := b.Connected(b.app, b.user)
	b.Refreshed(b.app, replayed)
	b.wantRevoked("replayed", b.replay(replayed), grant.Replayed)
	code := "alm_ac_" + strings.Repeat("x", 112)
	for _, c := range []struct {
		what, code string
		each       trips
		send       func() apitest.Answer
	}{
		{
			"no refresh token",
			"invalid_grant",
			trips{},
			func() apitest.Answer { return b.refresh("alm_rt_word") },
		},
		{
			"a bad MAC",
			"invalid_grant",
			trips{},
			func() apitest.Answer { return b.refresh(credential.Secret(refresh[:40] + flip + refresh[41:])) },
		},
		{
			"a forged code",
			"invalid_grant",
			trips{},
			func() apitest.Answer { return b.exchangeCode(credential.Secret(code)) },
		},
		{
			"a forged code, JSON",
			"invalid_grant",
			trips{},
			func() apitest.Answer { return b.linkCode(credential.Secret(code)) },
		},
		{
			"no client",
			"invalid_client",
			trips{},
			func() apitest.Answer { return b.refresh(held.Refresh, "client_id", "app") },
		},
		{
			"an unknown client",
			"invalid_client",
			trips{Postgres: 1},
			func() apitest.Answer { return b.refresh(held.Refresh, "client_id", uuid.NewString()) },
		},
		{"an unknown client and garbage", "invalid_client", trips{}, func() apitest.Answer {
			return b.refresh("alm_rt_word", "client_id", "00000000-0000-4000-8000-000000000000")
		}},
		{
			"another client's",
			"invalid_grant",
			trips{Postgres: 1},
			func() apitest.Answer { return b.refresh(held.Refresh, "client_id", other) },
		},
		{
			"one that has ended",
			"invalid_grant",
			trips{Postgres: 1},
			func() apitest.Answer { return b.refresh(ended.Refresh) },
		},
		{
			"one that was replayed",
			"invalid_grant",
			trips{Postgres: 1},
			func() apitest.Answer { return b.refresh(replayed.Refresh) },
		},
		{"a parameter missing", "invalid_request", trips{}, func() apitest.Answer {
			return b.Form(
				path,
				"grant_type", "authorization_code",
				"refresh_token", refresh,
				"client_id", b.app.ID.String(),
			)
		}},
	} {
		countTrips(t, counted, c.what, c.each, func() {
			if answer := c.send(); answer.Text("error") != c.code {
				t.Fatalf("%s: %d %s, want %s", c.what, answer.Status, answer.Body, c.code)
			}
		})
	}
	b.wantActive("after all that", held.Grant)
}

func (b *testEnv) replay(held apitest.Connection) grant.Grant {
	b.t.Helper()
	b.refused("a superseded token", b.refresh(held.Refresh), 400, "invalid_grant")
	return held.Grant
}

// A cached client is checked again: a deleted client, or one with a new secret, gets its current state.
func TestToken_ClientCacheEndsWithChangeOfClient(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	probe := func(secret credential.Secret) string {
		answer := b.PostJSON(
			path,
			"client_id", b.linked.ID.String(),
			"client_secret", secret.Reveal(),
			"code", "none",
			"redirect_uri", fixture.Callback,
		)
		return answer.Text("error")
	}
	if got := probe(b.secret); got != "invalid_grant" {
		t.Fatalf("at first: %s", got)
	}
	next, err := credential.ClientSecret.New(strings.NewReader(strings.Repeat("another secret ", 9)))
	if err != nil {
		t.Fatal(err)
	}
	changed := audit.Event{Actor: "admin", Action: audit.ClientSecretReplaced}
	changed.Authorization = &audit.Authorization{Operator: true}
	hash := credential.Hash(next.Reveal())
	if err := b.Store.ReplaceSecret(t.Context(), b.Fixture.WorkspaceID, b.linked.ID, hash, 0, changed); err != nil {
		t.Fatal(err)
	}
	if before, after := probe(b.secret), probe(next); before != "invalid_client" || after != "invalid_grant" {
		t.Errorf("with a new secret: %s by the old one, %s by the new", before, after)
	}
	if _, err := b.Store.DeleteClient(t.Context(), b.Fixture.WorkspaceID, b.linked.ID, changed); err != nil {
		t.Fatal(err)
	}
	if got := probe(next); got != "invalid_client" {
		t.Errorf("deleted: %s", got)
	}
}
