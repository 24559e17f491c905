package introspect

import (
	"context"
	"errors"
	"fmt"

	"github.com/almonerhq/almoner/authserver/internal/grant"
	"github.com/almonerhq/almoner/shared/accesstoken"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/standing"
)

// An answer is that of RFC 7662, section 2.2, with the workspace and what the credential may do in it. Times are in
// seconds since 1970. The zero answer is {"active":false}.
type answer struct {
	Active      bool      `json:"active"`
	Scope       string    `json:"scope,omitzero"` // what was granted
	ClientID    string    `json:"client_id,omitzero"`
	Subject     string    `json:"sub,omitzero"`
	Expires     int64     `json:"exp,omitzero"`
	IssuedAt    int64     `json:"iat,omitzero"`
	Issuer      string    `json:"iss,omitzero"`
	Audience    string    `json:"aud,omitzero"`
	TokenType   string    `json:"token_type,omitzero"`
	ID          string    `json:"jti,omitzero"`
	TenantID    string    `json:"tenant_id,omitzero"`
	Permissions *[]string `json:"permissions,omitzero"` // what it may do now: empty when active, absent when not
}

// judge says what the token is worth. It looks at what the text is and at nothing that the caller says of it: token_type_hint
// is a hint (RFC 7662, section 2.1).
func (d Deps) judge(ctx context.Context, text string) (answer, error) {
	if credential.PersonalAccessToken.Matches(text) {
		return d.judgePersonal(ctx, text)
	}
	return d.judgeAccess(ctx, text)
}

func (d Deps) judgePersonal(ctx context.Context, text string) (answer, error) {
	s, issued, err := d.Standings.StandingAndIssue(ctx, standing.Question{PATHash: credential.Hash(text)})
	if err != nil {
		return unknownIsInactive(err)
	}
	if !counts(s) {
		return answer{}, nil
	}
	out := d.describe(s)
	out.Audience, out.Expires, out.IssuedAt = d.Resource, s.EndsAt.Unix(), issued.Unix()
	return out, nil
}

func (d Deps) judgeAccess(ctx context.Context, text string) (answer, error) {
	keys, now := d.Keys(), d.Now()
	claims, err := accesstoken.Verify(text, keys, d.Issuer, now)
	if errors.Is(err, accesstoken.ErrUnknownKey) && keys.Len() == 0 {
		return answer{}, fmt.Errorf("%w: the keys of access tokens were not read yet", grant.ErrUnavailable)
	}
	if err != nil || !now.Before(claims.Expires) { // Verify has a leeway for clocks of other machines; this one signed
		return answer{}, nil
	}
	s, _, err := d.Standings.StandingAndIssue(ctx, standing.Question{GrantID: claims.GrantID})
	if err != nil {
		return unknownIsInactive(err)
	}
	if !counts(s) || !s.Backs(claims) {
		return answer{}, nil
	}
	out := d.describe(s)
	out.ClientID, out.ID, out.Audience = claims.ClientID, claims.ID, claims.Audience
	out.Expires, out.IssuedAt = min(claims.Expires.Unix(), s.EndsAt.Unix()), claims.IssuedAt.Unix() // the grant's end may have come closer
	return out, nil
}

func unknownIsInactive(err error) (answer, error) {
	if errors.Is(err, standing.ErrUnknown) {
		return answer{}, nil
	}
	return answer{}, err
}

// counts says whether the credential is good for anything at all. One that has only lost its permissions is: they may come
// back (contract, section 5).
func counts(s standing.Standing) bool {
	return s.State == standing.Active && s.Member && (s.Kind != standing.Connector || s.LLMIntegration)
}

// describe says what both kinds of token have in common, and notes the use.
func (d Deps) describe(s standing.Standing) answer {
	d.Uses.Note(s)
	permissions := s.Effective().Strings()
	return answer{
		Active: true, Scope: s.CredentialPermissions.Scope(), Subject: s.UserID.String(), Issuer: d.Issuer, TokenType: "Bearer",
		TenantID: s.CredentialTenant.String(), Permissions: &permissions,
	}
}
