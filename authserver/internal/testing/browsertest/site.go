// Package browsertest opens the pages of an apitest.Server in a simple browser (Browser). The browser fills in forms
// and stores cookies but runs no scripts: what it can do works without JavaScript.
package browsertest

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

// Issuer is the base URL of the API.
const Issuer = apitest.Issuer

// Resource is the REST API's resource identifier.
const Resource = apitest.REST

// Password is the password of every user that a Server creates.
const Password = "correct horse battery staple"

// A Server is authserver with users who can sign in.
type Server struct {
	*apitest.Server
	t    testing.TB
	hash credential.Secret
}

// Start serves a Server for the test. Requests may come from any address, because the loopback address is a trusted
// proxy. The changes are those of apitest.Start.
func Start(t testing.TB, changes ...apitest.Change) *Server {
	t.Helper()
	hash, err := session.HashPassword(Password, session.LowestCost())
	if err != nil {
		t.Fatal(err)
	}
	local := func(c *app.Config, url string) { c.AppURL, c.TrustedProxies = url, "127.0.0.1,::1" }
	return &Server{t: t, hash: hash, Server: apitest.Start(t, append([]apitest.Change{local}, changes...)...)}
}

// A Person is a user of the server.
type Person struct {
	ID    uuid.UUID
	Email string
}

// Stranger creates a user who can sign in and is a member of no workspace.
func (s *Server) Stranger() Person {
	s.t.Helper()
	email := "person-" + uuid.NewString()[:8] + "@example.org"
	id := s.Fixture.User(email)
	s.Fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, s.hash.Reveal())
	return Person{id, email}
}

// Member creates a user who can sign in and holds permissions in the fixture's workspace.
func (s *Server) Member(permissions ...perm.Permission) Person {
	s.t.Helper()
	person := s.Stranger()
	s.Fixture.Join(s.Fixture.WorkspaceID, person.ID, permissions...)
	return person
}
