package introspect

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

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
	query  standing.Query
	claims *accesstoken.Claims // nil for a personal access token
}

// readToken reads the token of the request without a query to Postgres. It looks only at the token's text:
// token_type_hint is a hint (RFC 7662, section 2.1).
func (d Deps) readToken(r *http.Request, parameters token.Parameters) (presented, error) {
	if parameters.JSON {
		return presented{}, apierr.New(apierr.Invalid, "Content-Type must be application/x-www-form-urlencoded.")
	}
	text := parameters.Values["token"]
	switch {
	case text == "":
		return presented{}, apierr.New(apierr.Invalid, "token is required.")
	case credential.PersonalAccessToken.Matches(text):
		return presented{counts: true, query: standing.Query{PATHash: credential.Hash(text)}}, nil
	}
	keys, now := d.Keys(), d.Now()
	claims, err := keys.Verify(text, d.Issuer, now)
	if errors.Is(err, accesstoken.ErrUnknownKey) && keys.Len() == 0 {
		return presented{}, fmt.Errorf("%w: signing keys not loaded", store.ErrUnavailable)
	}
	if err != nil || !now.Before(claims.Expires) { // Verify has a leeway for clocks of other machines
		return presented{}, nil
	}
	web.RecordGrant(r.Context(), claims.GrantID)
	return presented{
		counts: true,
		query:  standing.Query{GrantID: claims.GrantID, GrantIn: claims.WorkspaceID, KeyID: claims.KeyID},
		claims: &claims,
	}, nil
}

// respond returns the description of the token. s is nil if the credential does not exist.
func (d Deps) respond(p presented, s *standing.Standing, issued time.Time) answer {
	if s == nil || !counts(*s) || (p.claims != nil && !s.Backs(*p.claims)) {
		return answer{}
	}
	what := *s
	if p.claims != nil { // the grant may have more permissions than this token
		what.CredentialPermissions = what.CredentialPermissions.Intersect(p.claims.Scope)
	}
	out := d.describe(what)
	if p.claims == nil {
		out.Audience, out.Expires, out.IssuedAt = d.Resource, s.EndsAt.Unix(), issued.Unix()
		return out
	}
	out.ClientID, out.ID, out.Audience = p.claims.ClientID, p.claims.ID, p.claims.Audience
	out.Expires = min(p.claims.Expires.Unix(), s.EndsAt.Unix()) // the grant may now end earlier
	out.IssuedAt = p.claims.IssuedAt.Unix()
	return out
}

// counts reports whether the credential is active. A credential that has only lost its permissions is active: they may
// come back (contract, section 5).
func counts(s standing.Standing) bool {
	return s.Usable()
}

// describe returns the part of the answer that both kinds of token share, and records the use.
func (d Deps) describe(s standing.Standing) answer {
	d.Uses.Record(s)
	permissions := s.Effective().Strings()
	return answer{
		Active:      true,
		Scope:       s.CredentialPermissions.Scope(),
		Subject:     s.UserID.String(),
		Issuer:      d.Issuer,
		TokenType:   "Bearer",
		WorkspaceID: s.CredentialWorkspace.String(),
		Permissions: &permissions,
	}
}
