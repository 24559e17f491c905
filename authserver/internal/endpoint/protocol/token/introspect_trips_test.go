package token_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// The caller and the credential are read in one query to Postgres. Failed authentications are written to Redis later
// (package ratelimit).
func TestIntrospect_IsOneRoundTrip(t *testing.T) {
	t.Parallel()
	counted := startCounted(t)
	b := &introspectEnv{Server: counted.Server, t: t}
	b.service = b.Service()
	b.user = b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	_, held := b.connector(apitest.REST)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	as := func(id string, secret credential.Secret, token credential.Secret) func() {
		return func() {
			b.FormWith(apitest.IntrospectPath, apitest.Basic(id, secret), "token", token.Reveal())
		}
	}
	for _, c := range []struct {
		what     string
		postgres int
		send     func()
	}{
		{"an access token", 1, func() { b.active("an access token", held.Access) }},
		{"a personal access token", 1, func() { b.active("a personal access token", personal) }},
		{"garbage", 1, func() { b.inactive("garbage", "word") }},
		{"a secret in the form", 1, func() {
			b.Form(
				apitest.IntrospectPath,
				"token", held.Access.Reveal(),
				"client_id", b.service.ID.String(),
				"client_secret", b.service.Secret.Reveal(),
			)
		}},
		{"an unknown service", 1, as(uuid.NewString(), b.service.Secret, held.Access)},
		{"a service without a name", 0, as("service", b.service.Secret, held.Access)},
		{"a secret that is none", 0, as(b.service.ID.String(), "alm_cs_wrong", held.Access)},
	} {
		countTrips(t, counted, c.what, trips{Postgres: c.postgres}, c.send)
	}
}
