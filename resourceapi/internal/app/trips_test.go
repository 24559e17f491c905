package app

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A read takes one round trip to Postgres, for the standing and the data. A refusal takes one round trip if the
// credential is well-formed, and none if it is not.
func TestRead_TakesOneRoundTrip(t *testing.T) {
	const times, beside = 20, 12 // beside: for new connections, prepared statements and the usage record
	var trips *testkit.Trips
	s := ownService(t, func(c *Config) {
		var through string
		through, trips = testkit.CountTrips(t, c.DatabaseURL.Reveal())
		c.DatabaseURL = credential.Secret(through)
	})
	workspaceID, user := s.member(perm.ProgrammesRead)
	one := s.Programmes(workspaceID, 60)[7].String()
	personal := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	grant := s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead)
	access := s.token(claims(grant))
	unknown := claims(grant)
	unknown.GrantID = uuid.New()
	stranger, err := credential.PersonalAccessToken.New(constant{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, path, token string
		workspaceID       uuid.UUID
		status, each      int
	}{
		{"a list by access token", listPath, access, workspaceID, 200, 1},
		{"a list by personal access token", listPath, personal, workspaceID, 200, 1},
		{"a programme by access token", listPath + "/" + one, access, workspaceID, 200, 1},
		{"a programme by personal access token", listPath + "/" + one, personal, workspaceID, 200, 1},
		{"an unknown programme", listPath + "/" + uuid.NewString(), personal, workspaceID, 404, 1},
		{"another workspace", listPath, personal, uuid.New(), 403, 1},
		{"an unknown personal access token", listPath, stranger.Reveal(), workspaceID, 401, 1},
		{"an access token of an unknown grant", listPath, s.token(unknown), workspaceID, 401, 1},
		{
			"a personal access token with a typing error", listPath, personal[:len(personal)-1] + "_", workspaceID, 401,
			0,
		},
		{"an access token with a bad signature", listPath, access[:len(access)-10] + "AAAAAAAAAA", workspaceID, 401, 0},
		{"a word", listPath, "word", workspaceID, 401, 0},
	} {
		send := func() {
			s.get(c.path, as(c.token, c.workspaceID)).wants(t, c.status)
		}
		send()
		n := trips.Of(func() {
			for range times {
				send()
			}
		})
		if least := c.each * times; n < least || n > least+beside {
			t.Errorf("%s: %d requests took %d round trips to Postgres, want %d", c.what, times, n, least)
		}
	}
}

// constant is a source of one repeated byte.
type constant struct{}

func (constant) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 7
	}
	return len(p), nil
}
