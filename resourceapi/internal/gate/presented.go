package gate

import (
	"context"
	"errors"
	"strings"

	"github.com/almonerhq/almoner/shared/accesstoken"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
	"github.com/almonerhq/almoner/shared/web"
)

// Tokens knows the access tokens that authserver signed. A refusal is one of package accesstoken's errors; any other
// error says that the token could not be judged.
type Tokens interface {
	Verify(ctx context.Context, text string) (accesstoken.Claims, error)
}

// presented is a credential as far as its text alone tells. Nothing of it counts before judge has seen its standing.
type presented struct {
	question standing.Query
	claims   *accesstoken.Claims // nil for a personal access token
}

// present tells the two kinds of credential apart and refuses what is malformed without asking Postgres.
func (g *Gate) present(ctx context.Context, token credential.Secret) (presented, error) {
	text := token.Reveal()
	if strings.HasPrefix(text, credential.PersonalAccessToken.Prefix) {
		if !credential.PersonalAccessToken.Matches(text) {
			return presented{}, g.unauthenticated(badCredential)
		}
		return presented{question: standing.Query{PATHash: credential.Hash(text)}}, nil
	}
	claims, err := g.tokens.Verify(ctx, text)
	switch {
	case errors.Is(err, accesstoken.ErrExpired):
		return presented{}, g.unauthenticated(expiredCredential)
	case errors.Is(err, accesstoken.ErrInvalid), errors.Is(err, accesstoken.ErrUnknownKey):
		return presented{}, g.unauthenticated(badCredential)
	case err != nil:
		return presented{}, err
	case claims.Audience != g.resource:
		return presented{}, g.unauthenticated("The access token was made for another resource than this API.")
	}
	web.NoteGrant(ctx, claims.GrantID)
	return presented{question: standing.Query{GrantID: claims.GrantID, KeyID: claims.KeyID}, claims: &claims}, nil
}

// judge says whether the credential counts at all, whatever it is used for. What a token says and what its grant says
// must be one story: a token that tells another was not made from this grant.
func (g *Gate) judge(held presented, s standing.Standing) error {
	if held.claims != nil && !s.Backs(*held.claims) {
		return g.unauthenticated(badCredential)
	}
	switch s.State {
	case standing.Active:
		return nil
	case "expired":
		return g.unauthenticated(expiredCredential)
	}
	return g.unauthenticated(badCredential)
}

// granted is what the credential was given: that of the token itself where it is one, as a grant may hold more.
func (p presented) granted(s standing.Standing) perm.Set {
	if p.claims == nil {
		return s.CredentialPermissions
	}
	return s.CredentialPermissions.Intersect(p.claims.Scope)
}
