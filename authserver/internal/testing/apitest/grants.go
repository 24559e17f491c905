package apitest

import (
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/credential"
)

// A ClientWithSecret is a client with its secret; "" for a connector.
type ClientWithSecret struct {
	client.Client
	Secret credential.Secret
}

// Service registers a client of kind service.
func (s *Server) Service() ClientWithSecret {
	s.t.Helper()
	secret, err := credential.ClientSecret.New(rand.Reader)
	s.must(err)
	c := ClientWithSecret{client.Client{ID: uuid.New(), Kind: client.Service}, secret}
	s.Fixture.Exec(
		`insert into account.oauth_clients (id, kind, name, redirect_uris, required_permissions, token_endpoint_auth_method)
		values ($1, 'service', 'Reporting', '{}', '{}', 'client_secret_basic')`,
		c.ID,
	)
	s.Fixture.Exec(
		`insert into account.client_secrets (client_id, hash) values ($1, $2)`,
		c.ID,
		credential.Hash(secret.Reveal()),
	)
	return c
}

// Authenticating makes a confidential client use another method at the token endpoint.
func (s *Server) Authenticating(c client.Client, method client.AuthMethod) {
	s.t.Helper()
	s.Fixture.Exec(`update account.oauth_clients set token_endpoint_auth_method = $2 where id = $1`, c.ID, method)
}

// Verifier is what Consent's challenge is of.
const Verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"

// Consent is what a user's yes gives: a grant and its code.
func (s *Server) Consent(c client.Client, user uuid.UUID) (grant.Grant, credential.Secret) {
	s.t.Helper()
	resource, challenge := REST, ""
	if c.Kind == client.Connector {
		resource, challenge = c.Resource, grant.ChallengeOf(Verifier)
	}
	g := grant.Grant{
		ID:          uuid.New(),
		Kind:        c.Kind,
		ClientID:    c.ID,
		UserID:      user,
		WorkspaceID: c.WorkspaceID,
		Permissions: c.Required,
		Resource:    resource,
		Ends:        time.Now().Add(c.Kind.Traits().GrantLife),
	}
	terms := grant.CodeTerms{ClientID: c.ID, RedirectURI: fixture.Callback, Resource: resource, Challenge: challenge}
	for end := time.Now().Add(arrangeWithin); ; {
		code, err := s.Grants.Open(s.t.Context(), g, terms)
		if errors.Is(err, store.ErrUnavailable) && time.Now().Before(end) {
			g.ID = uuid.New()
			continue
		}
		s.must(err)
		return g, code
	}
}

// arrangeWithin is how long what a test begins with is tried again where a store is too slow for the product's own
// limits, which are a fraction of a second: on a busy machine that says nothing of the product.
const arrangeWithin = 10 * time.Second

// arranged sends a request again while it is answered 503.
func arranged(send func() Answer) Answer {
	for end := time.Now().Add(arrangeWithin); ; {
		if answer := send(); answer.Status != http.StatusServiceUnavailable || time.Now().After(end) {
			return answer
		}
	}
}

// Connection is what a client holds of a grant.
type Connection struct {
	Grant   grant.Grant
	Access  credential.Secret
	Refresh credential.Secret // of connectors alone
}

// Connected consents and exchanges the code of a connector.
func (s *Server) Connected(c client.Client, user uuid.UUID) Connection {
	s.t.Helper()
	g, code := s.Consent(c, user)
	return s.held(g, arranged(func() Answer {
		return s.Form(TokenPath, "grant_type", "authorization_code", "client_id", c.ID.String(), "resource", c.Resource,
			"code", code.Reveal(), "code_verifier", Verifier, "redirect_uri", fixture.Callback)
	}))
}

// Linked consents and exchanges the code of a confidential client that sends the spec's JSON.
func (s *Server) Linked(c client.Client, secret credential.Secret, user uuid.UUID) Connection {
	s.t.Helper()
	g, code := s.Consent(c, user)
	return s.held(g, arranged(func() Answer {
		return s.PostJSON(
			TokenPath,
			"client_id",
			c.ID.String(),
			"client_secret",
			secret.Reveal(),
			"code",
			code.Reveal(),
			"redirect_uri",
			fixture.Callback,
		)
	}))
}

// Refresh exchanges the refresh token of a connector.
func (s *Server) Refresh(c client.Client, refresh credential.Secret) Answer {
	s.t.Helper()
	return s.Form(TokenPath, "grant_type", "refresh_token", "client_id", c.ID.String(), "resource", c.Resource,
		"refresh_token", refresh.Reveal())
}

// Refreshed is Refresh where it must succeed.
func (s *Server) Refreshed(c client.Client, held Connection) Connection {
	s.t.Helper()
	return s.held(held.Grant, s.Refresh(c, held.Refresh))
}

func (s *Server) held(g grant.Grant, answer Answer) Connection {
	s.t.Helper()
	if answer.Status != 200 {
		s.t.Fatalf("no tokens: %d %s", answer.Status, answer.Body)
	}
	return Connection{
		g,
		credential.Secret(answer.Text("access_token")),
		credential.Secret(answer.Text("refresh_token")),
	}
}

// Stored is what the Ledger holds of a grant.
func (s *Server) Stored(g grant.Grant) grant.Grant {
	s.t.Helper()
	found, err := s.Store.Grant(s.t.Context(), g.ID)
	s.must(err)
	return found
}

// Age makes the code of a pending grant older by seconds, where its life is kept.
func (s *Server) Age(g grant.Grant, seconds int) {
	s.t.Helper()
	rdb, err := redis.Connect(credential.Secret(s.Redis.URL))
	s.must(err)
	defer func() { _ = rdb.Close() }()
	s.must(rdb.HIncrBy(s.t.Context(), "g:{"+g.ID.String()+"}", "cx", -1000*int64(seconds)).Err())
}

// FlushRedis makes Redis forget everything.
func (s *Server) FlushRedis() {
	s.t.Helper()
	rdb, err := redis.Connect(credential.Secret(s.Redis.URL))
	s.must(err)
	defer func() { _ = rdb.Close() }()
	s.must(rdb.FlushAll(s.t.Context()).Err())
}
