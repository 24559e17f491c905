package apitest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A ClientWithSecret is a client with its secret, which is "" for a connector.
type ClientWithSecret struct {
	client.Client
	Secret credential.Secret
}

// Service registers a client of kind service.
func (s *Server) Service() ClientWithSecret {
	s.t.Helper()
	secret, _ := credential.ClientSecret.New(rand.Reader) // never fails (crypto/rand)
	c := ClientWithSecret{client.Client{ID: uuid.New(), Kind: client.Service}, secret}
	s.Fixture.Exec(`insert into account.oauth_clients
		(id, kind, name, redirect_uris, required_permissions, token_endpoint_auth_method)
		values ($1, 'service', 'Reporting', '{}', '{}', 'client_secret_basic')`, c.ID)
	s.Fixture.Exec(`insert into account.client_secrets (client_id, hash) values ($1, $2)`, c.ID,
		credential.Hash(secret.Reveal()))
	return c
}

// What tests send, which no log may contain.
const (
	Verifier       = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk" // of Consent's challenge
	IdempotencyKey = "an-unguessable-key"
	WrongSecret    = "alm_cs_wrong"
)

// Consent stores the grant of a user's consent and returns it with its code.
func (s *Server) Consent(c client.Client, user uuid.UUID) (grant.Grant, credential.Secret) {
	s.t.Helper()
	terms := termsOf(c)
	g := grant.Grant{
		ID:          uuid.New(),
		Kind:        c.Kind,
		ClientID:    c.ID,
		UserID:      user,
		WorkspaceID: cmp.Or(c.WorkspaceID, s.Fixture.WorkspaceID), // for a client of no workspace
		Permissions: c.Required,
		Resource:    terms.Resource,
		Ends:        time.Now().Add(c.Kind.Traits().GrantLife),
	}
	for end := time.Now().Add(await.Long); ; {
		code, err := s.Grants.Open(s.t.Context(), g, terms)
		if errors.Is(err, store.ErrUnavailable) && time.Now().Before(end) {
			g.ID = uuid.New()
			continue
		}
		s.Must(err)
		return g, code
	}
}

func termsOf(c client.Client) grant.CodeTerms {
	terms := grant.CodeTerms{ClientID: c.ID, RedirectURI: fixture.Callback, Resource: REST}
	if c.Kind == client.Connector {
		terms.Resource, terms.Challenge = c.Resource, grant.ChallengeOf(Verifier)
	}
	return terms
}

// Redeem redeems a code as the token endpoint does, without a request.
func (s *Server) Redeem(code credential.Secret, terms grant.CodeTerms) (grant.Issued, error) {
	ctx := s.t.Context()
	token, err := s.Grants.Tokens.Read(grant.Code, code.Reveal())
	if err != nil {
		return grant.Issued{}, err
	}
	snapshot, err := s.Grants.Snapshot(ctx, terms.ClientID, token.Key(), nil)
	if err != nil {
		return grant.Issued{}, err
	}
	noKey := func(context.Context, []string) error { return nil }
	return s.Grants.Exchange(ctx, snapshot, grant.Request{Token: token, Terms: terms, LoadKey: noKey})
}

// Redeemed consents and redeems the code, and returns the active grant.
func (s *Server) Redeemed(c client.Client, user uuid.UUID) grant.Grant {
	s.t.Helper()
	_, code := s.Consent(c, user)
	issued, err := s.Redeem(code, termsOf(c))
	s.Must(err)
	return issued.Grant
}

// SetPermissions sets what a member may do in the fixture's workspace.
func (s *Server) SetPermissions(user uuid.UUID, permissions ...perm.Permission) {
	s.t.Helper()
	s.Fixture.Exec(`update account.memberships set permissions = $3 where user_id = $1 and tenant_id = $2`, user,
		s.Fixture.WorkspaceID, perm.NewSet(permissions...).Strings())
}

// LimitConnectors sets the connector policy of the fixture's workspace.
func (s *Server) LimitConnectors(p workspace.ConnectorPolicy) {
	s.t.Helper()
	_, err := s.Store.ReplaceConnectorPolicy(s.t.Context(), s.Fixture.WorkspaceID, "", p, audit.Event{
		Actor: "admin", Action: audit.ConnectorPolicyChanged, Authorization: &audit.Authorization{Operator: true},
	})
	s.Must(err)
}

// arranged sends a request again while the response is a 503. If a store exceeds the server's time limits while a test
// is set up, the machine is busy.
func arranged(send func() Answer) Answer {
	for end := time.Now().Add(await.Long); ; {
		if answer := send(); answer.Status != http.StatusServiceUnavailable || time.Now().After(end) {
			return answer
		}
	}
}

// Connection is a grant with the tokens that the client holds.
type Connection struct {
	Grant   grant.Grant
	Access  credential.Secret
	Refresh credential.Secret // only for connectors
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
		return s.PostJSON(TokenPath, "client_id", c.ID.String(), "client_secret", secret.Reveal(), "code",
			code.Reveal(), "redirect_uri", fixture.Callback)
	}))
}

// Refresh exchanges the refresh token of a connector.
func (s *Server) Refresh(c client.Client, refresh credential.Secret) Answer {
	s.t.Helper()
	return s.Form(TokenPath, "grant_type", "refresh_token", "client_id", c.ID.String(), "resource", c.Resource,
		"refresh_token", refresh.Reveal())
}

// Refreshed is Refresh that must succeed.
func (s *Server) Refreshed(c client.Client, held Connection) Connection {
	s.t.Helper()
	return s.held(held.Grant, s.Refresh(c, held.Refresh))
}

func (s *Server) held(g grant.Grant, answer Answer) Connection {
	s.t.Helper()
	if answer.Status != 200 {
		s.t.Fatalf("no tokens\n%s", s.Explain(answer))
	}
	access, refresh := answer.Text("access_token"), answer.Text("refresh_token")
	return Connection{g, credential.Secret(access), credential.Secret(refresh)}
}

// Stored returns the grant in Postgres.
func (s *Server) Stored(g grant.Grant) grant.Grant {
	s.t.Helper()
	found, err := s.Store.Grant(s.t.Context(), g.Key())
	s.Must(err)
	return found
}
