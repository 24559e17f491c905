package introspect_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/accounttest"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

// Who asks and how the credential stands is one question to Postgres, and Redis is asked only to count who was not let in (package
// failures).
func TestIntrospectionIsOneTrip(t *testing.T) {
	const times, beside = 20, 12 // beside: connections that are made, statements that are prepared
	b := &bench{Site: accounttest.StartCounted(t), t: t}
	b.service = b.Service()
	b.user = b.World.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	_, held := b.connector(accounttest.REST)
	personal := b.World.Token(b.user, perm.ProgrammesRead)
	as := func(id string, secret credential.Secret, token credential.Secret) func() {
		return func() {
			b.FormWith(accounttest.IntrospectPath, accounttest.Basic(id, secret), "token", token.Reveal())
		}
	}
	for _, c := range []struct {
		what    string
		each    int
		counted int
		send    func()
	}{
		{"an access token", 1, 0, func() { b.active("an access token", held.Access) }},
		{"a personal access token", 1, 0, func() { b.active("a personal access token", personal) }},
		{"garbage", 1, 0, func() { b.inactive("garbage", "word") }},
		{"an unknown service", 1, 1, as(uuid.NewString(), b.service.Secret, held.Access)},
		{"a service without a name", 0, 1, as("service", b.service.Secret, held.Access)},
		{"a secret that is none", 0, 1, as(b.service.ID.String(), "alm_cs_wrong", held.Access)},
	} {
		c.send()
		redis := 0
		postgres := b.PostgresTrips.Of(func() {
			redis = b.RedisTrips.Of(func() {
				for range times {
					c.send()
				}
			})
		})
		if least := c.each * times; postgres < least || postgres > least+beside || redis < c.counted*times || redis > c.counted*times+beside {
			t.Errorf("%s: %d questions took %d trips to Postgres and %d to Redis, want %d and %d", c.what, times, postgres, redis, least, c.counted*times)
		}
	}
}
