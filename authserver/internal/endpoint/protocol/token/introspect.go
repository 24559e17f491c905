package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/contract/usage"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A Store reads and ends what tokens stand for. Its errors wrap store.ErrUnavailable.
type Store interface {
	// Introspection reads, in one query, the calling client with the live secret that has this hash, the standing of
	// the credential in the query, and the creation time of a personal access token. What does not exist is nil.
	Introspection(
		ctx context.Context, caller uuid.UUID, secretHash []byte, q standing.Query,
	) (*client.Client, *standing.Standing, time.Time, error)
	// EndReplaced ends the tokens that a personal access token replaces.
	EndReplaced(ctx context.Context, token uuid.UUID) error
	// RevokePresentedToken revokes the personal access token with this hash if it is active, and mails its owner. It
	// returns the token, in any state, or nil if there is none.
	RevokePresentedToken(ctx context.Context, hash []byte, event audit.Event) (*pat.Token, error)
}

// Introspect reports what the bearer of a token may do now.
//
// The callers are internal services: clients of kind service, by HTTP Basic or client_secret_post. The endpoint
// describes access tokens of both resources and personal access tokens. Everything else is {"active":false}, without a
// reason: forged, expired and revoked tokens, refresh tokens, codes, tokens of users who are no longer members, and
// tokens of connectors while LLM integration is off. An unavailable store is a 503, never "inactive".
func (e Endpoints) Introspect() http.Handler {
	return e.handler(func(w http.ResponseWriter, r *http.Request) (any, error) {
		out, caller, err := e.introspect(w, r)
		return out, e.limited(w, engine.TokenRequest{ClientID: caller}, err)
	})
}

// introspect tells an unauthenticated caller nothing about the token. It checks the token's text before the query, so
// that one query reads both the caller and the token. It returns the caller's name too.
func (e Endpoints) introspect(w http.ResponseWriter, r *http.Request) (out answer, caller string, err error) {
	parameters, mistake := Decode(w, r)
	from, err := readCaller(r, parameters, mistake)
	if err != nil {
		return answer{}, from.name, err
	}
	var p presented
	if mistake == nil {
		p, mistake = e.readToken(r, parameters)
	}
	if mistake != nil || !p.counts {
		c, err := e.Engine.Clients.ClientWithSecret(r.Context(), from.id, client.SecretHash(from.secret))
		if errors.Is(err, client.ErrUnknown) {
			err = unauthenticated()
		}
		if err == nil {
			err = authenticated(&c, from.secret)
		}
		return answer{}, from.name, cmp.Or(err, mistake)
	}
	c, s, issued, err := e.Store.Introspection(r.Context(), from.id, client.SecretHash(from.secret), p.Query)
	if err == nil {
		err = authenticated(c, from.secret)
	}
	if err != nil {
		return answer{}, from.name, err
	}
	p.RecordStanding(r.Context(), s)
	web.RecordCaller(r.Context(), web.Caller{Client: c.ID, Service: c.ID})
	if out = e.respond(p, s, issued); out.Active && s.Replaces {
		if err := e.Store.EndReplaced(r.Context(), s.CredentialID); err != nil {
			return answer{}, from.name, err
		}
	}
	return out, from.name, nil
}

// An answer is the response of RFC 7662, section 2.2, with the workspace and the permissions that the credential has
// there. Times are in seconds since 1970. The zero answer is {"active":false}.
type answer struct {
	Active      bool      `json:"active"`
	Scope       string    `json:"scope,omitzero"` // the granted permissions
	ClientID    string    `json:"client_id,omitzero"`
	Subject     string    `json:"sub,omitzero"`
	Expires     int64     `json:"exp,omitzero"`
	IssuedAt    int64     `json:"iat,omitzero"`
	Issuer      string    `json:"iss,omitzero"`
	Audience    string    `json:"aud,omitzero"`
	TokenType   string    `json:"token_type,omitzero"`
	ID          string    `json:"jti,omitzero"`
	WorkspaceID string    `json:"tenant_id,omitzero"`
	Permissions *[]string `json:"permissions,omitzero"` // effective now; absent if inactive
}

// presented is what the token's text alone tells.
type presented struct {
	counts bool // whether the token may be active, so that a query is needed
	usage.Presented
}

// readToken reads the token of the request without a query to Postgres. It looks only at the token's text:
// token_type_hint is a hint (RFC 7662, section 2.1).
func (e Endpoints) readToken(r *http.Request, parameters Decoded) (presented, error) {
	if parameters.Dialect == engine.JSON {
		return presented{}, apierr.New(apierr.Invalid, "Content-Type must be application/x-www-form-urlencoded.")
	}
	text := parameters.Values["token"].Reveal()
	switch {
	case text == "":
		return presented{}, apierr.New(apierr.Invalid, "token is required.")
	case credential.PersonalAccessToken.Matches(text):
		return presented{true, usage.OfHash(credential.Hash(text))}, nil
	}
	keys, now := e.Keys(), e.Now()
	claims, err := keys.Verify(text, e.Issuer, now)
	if errors.Is(err, accesstoken.ErrUnknownKey) && keys.Len() == 0 {
		return presented{}, fmt.Errorf("%w: signing keys not loaded", store.ErrUnavailable)
	}
	if err != nil || !now.Before(claims.Expires) { // Verify has a leeway for clocks of other machines
		return presented{}, nil
	}
	web.RecordGrant(r.Context(), claims.GrantID)
	return presented{true, usage.OfClaims(claims)}, nil
}

// respond returns the description of the token, and records the use. s is nil if the credential does not exist.
func (e Endpoints) respond(p presented, s *standing.Standing, issued time.Time) answer {
	// A credential that has only lost its permissions is active: they may come back (contract, section 5).
	if s == nil || !s.Usable() || (p.Claims != nil && !s.Backs(*p.Claims)) {
		return answer{}
	}
	what := *s
	if p.Claims != nil { // the grant may have more permissions than this token
		what.CredentialPermissions = what.CredentialPermissions.Intersect(p.Claims.Scope)
	}
	e.LastUse.Record(what, netip.Addr{}) // the request comes from the service, and not from where the user is
	permissions := what.Effective().Strings()
	out := answer{
		Active:      true,
		Scope:       what.CredentialPermissions.Scope(),
		Subject:     s.UserID.String(),
		Expires:     s.EndsAt.Unix(),
		IssuedAt:    issued.Unix(),
		Issuer:      e.Issuer,
		Audience:    e.Resource,
		TokenType:   "Bearer",
		WorkspaceID: s.CredentialWorkspace.String(),
		Permissions: &permissions,
	}
	if p.Claims != nil {
		out.ClientID, out.ID, out.Audience = p.Claims.ClientID, p.Claims.ID, p.Claims.Audience
		out.Expires = min(p.Claims.Expires.Unix(), s.EndsAt.Unix()) // the grant may now end earlier
		out.IssuedAt = p.Claims.IssuedAt.Unix()
	}
	return out
}

// A caller is a service with the credentials that it sent. They are unverified until authenticated has compared the
// secret.
type caller struct {
	name   string // as sent
	id     uuid.UUID
	secret credential.Secret
}

// readCaller reads the caller's credentials from the Authorization header if there is one, and otherwise from the form
// (RFC 6749, section 2.3.1). unread is the error of reading the body, if any. A secret that cannot have been issued is
// refused without a query to Postgres. The caller's name is set together with every error that concerns that caller.
func readCaller(r *http.Request, p Decoded, unread error) (caller, error) {
	var c caller
	if len(r.Header.Values("Authorization")) > 0 {
		var ok bool
		if c.name, c.secret, ok = basicCredentials(r); !ok {
			return c, unauthenticated()
		}
		if _, twice := p.Values["client_secret"]; twice {
			return c, errTwoWays()
		}
		if name, named := p.Values["client_id"]; named && name.Reveal() != c.name {
			return c, errTwoWays()
		}
	} else {
		switch {
		case !isForm(r): // such a body has no caller
			return c, unauthenticated()
		case unread != nil:
			return c, unread
		}
		c.name, c.secret = p.Values["client_id"].Reveal(), p.Values["client_secret"]
	}
	var err error
	c.id, err = accesstoken.RegisteredClientID(c.name)
	if err != nil || !credential.ClientSecret.Matches(c.secret.Reveal()) {
		return c, unauthenticated()
	}
	return c, nil
}

func isForm(r *http.Request) bool {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == "application/x-www-form-urlencoded"
}

func errTwoWays() error {
	return apierr.New(apierr.Invalid,
		"Use only one authentication method: Authorization: Basic, or client_id and client_secret in the form.")
}

// unauthenticated does not tell the cause: an unknown client, another kind of client and a wrong secret give the same
// response.
func unauthenticated() error {
	return &engine.TokenError{
		Code: "invalid_client",
		Description: "This endpoint is for services. Authenticate with the client id and secret of a service, by " +
			"HTTP Basic or as client_id and client_secret in the form.",
		Challenge: true,
	}
}

// authenticated returns nil if c is a service and secret is its secret.
func authenticated(c *client.Client, secret credential.Secret) error {
	if c == nil || c.Kind != client.Service || !c.SecretMatches(secret) {
		return unauthenticated()
	}
	return nil
}

// Revoke revokes tokens.
//
// A refresh token (including a superseded one) or an access token (including an expired one) revokes its grant, and
// with it every other token of that grant. The caller must be the client of the grant: a token of another client is
// ignored. A personal access token is revoked by any caller that has it, also without a client, and its owner gets a
// mail. Text that is no token (garbage, ended tokens, codes) gets the same 200 (RFC 7009, section 2.2). The 200 is sent
// after Postgres has committed (G9). An unavailable store is a 503, never a 200.
func (e Endpoints) Revoke() http.Handler {
	return e.handler(func(w http.ResponseWriter, r *http.Request) (any, error) {
		return struct{}{}, e.revoke(w, r) // libraries parse the body, which RFC 7009, section 2.2, leaves open
	})
}

func (e Endpoints) revoke(w http.ResponseWriter, r *http.Request) error {
	parameters, err := Decode(w, r, "client_id", "client_secret", "token", "token_type_hint")
	if err != nil {
		return err
	}
	text := parameters.Values["token"]
	if text == "" {
		return apierr.New(apierr.Invalid, "token is required.")
	}
	from := request(r, parameters)
	personal := credential.PersonalAccessToken.Matches(text.Reveal())
	if personal && !from.NamesClient() {
		return e.revokePersonal(r, text, "anonymous")
	}
	caller, err := e.Engine.Authenticate(r.Context(), from)
	if err != nil {
		return e.limited(w, engine.TokenRequest{ClientID: from.ClientID}, err)
	}
	if personal {
		return e.revokePersonal(r, text, "client:"+caller.ID.String())
	}
	key, err := e.grantOf(text)
	if err != nil || key.ID == uuid.Nil {
		return err
	}
	web.RecordGrant(r.Context(), key.ID)
	snapshot, err := e.Grants.Snapshot(r.Context(), caller.ID, key, nil)
	if err != nil {
		return err
	}
	g := snapshot.Grant
	if g == nil || g.ClientID != caller.ID {
		return nil
	}
	engine.RecordGrant(r.Context(), *g)
	if snapshot.Now.Before(g.Ends) {
		return e.Grants.Revoke(r.Context(), *g, grant.ByClient, "client:"+caller.ID.String())
	}
	return nil
}

// revokePersonal revokes a personal access token. Its possession is enough: a caller that has it could also use it.
func (e Endpoints) revokePersonal(r *http.Request, text credential.Secret, actor string) error {
	hash := credential.Hash(text.Reveal())
	presented := usage.OfHash(hash)
	presented.Record(r.Context())
	event := audit.Event{Actor: actor, Action: audit.TokenRevoked, RequestID: web.RequestID(r.Context())}
	token, err := e.Store.RevokePresentedToken(r.Context(), hash, event)
	if err != nil {
		return err
	}
	var s *standing.Standing
	if token != nil {
		s = &standing.Standing{
			CredentialID:        token.ID,
			Kind:                standing.PersonalAccessToken,
			UserID:              token.UserID,
			CredentialWorkspace: token.WorkspaceID,
		}
	}
	presented.RecordStanding(r.Context(), s)
	return nil
}

// grantOf returns the key of a token's grant, or the zero key. It looks at the token itself and ignores token_type_hint
// (RFC 7009, section 2.1). It verifies the token first, so a caller must have a token of the grant. An expired access
// token counts: its client wants the grant to end.
func (e Endpoints) grantOf(text credential.Secret) (grant.Key, error) {
	if refresh, err := e.Grants.Tokens.Read(grant.Refresh, text.Reveal()); err == nil {
		return refresh.Key(), nil
	}
	if strings.Count(text.Reveal(), ".") != 2 { // not the format of an access token
		return grant.Key{}, nil
	}
	claims, err := e.Keys().Verify(text.Reveal(), e.Issuer, e.Now())
	if errors.Is(err, accesstoken.ErrUnknownKey) && e.Keys().Len() == 0 {
		return grant.Key{}, fmt.Errorf("%w: signing keys not loaded", store.ErrUnavailable)
	}
	if err != nil && !errors.Is(err, accesstoken.ErrExpired) {
		return grant.Key{}, nil
	}
	return grant.Key{WorkspaceID: claims.WorkspaceID, ID: claims.GrantID}, nil
}
