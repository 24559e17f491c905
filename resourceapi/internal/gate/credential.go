package gate

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// presented is a credential as parsed from the request. It is not trusted until checkStanding has checked its standing.
type presented struct {
	question standing.Query
	claims   *accesstoken.Claims // nil for a personal access token
}

// present distinguishes the two kinds of credential and refuses malformed ones without a call to Postgres.
func (g *Gate) present(ctx context.Context, token credential.Secret) (presented, error) {
	text := token.Reveal()
	if strings.HasPrefix(text, credential.PersonalAccessToken.Prefix) {
		if !credential.PersonalAccessToken.Matches(text) {
			return presented{}, g.unauthenticated(badCredential)
		}
		return presented{question: standing.Query{PATHash: credential.Hash(text)}}, nil
	}
	claims, err := g.Keys.Verify(ctx, text)
	switch {
	case errors.Is(err, accesstoken.ErrExpired):
		return presented{}, g.unauthenticated(expiredCredential)
	case errors.Is(err, accesstoken.ErrInvalid), errors.Is(err, accesstoken.ErrUnknownKey):
		return presented{}, g.unauthenticated(badCredential)
	case err != nil:
		return presented{}, err
	case claims.Audience != g.audience:
		return presented{}, g.unauthenticated("The access token is for another resource.")
	}
	web.RecordGrant(ctx, claims.GrantID)
	question := standing.Query{GrantID: claims.GrantID, GrantIn: claims.WorkspaceID, KeyID: claims.KeyID}
	return presented{question: question, claims: &claims}, nil
}

// checkStanding checks whether the credential is valid for any use. An access token whose claims disagree with its
// grant was not issued from that grant and is refused.
func (g *Gate) checkStanding(held presented, s standing.Standing) error {
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

// granted returns the permissions of the credential. A token may hold fewer than its grant.
func (p presented) granted(s standing.Standing) perm.Set {
	if p.claims == nil {
		return s.CredentialPermissions
	}
	return s.CredentialPermissions.Intersect(p.claims.Scope)
}

// WorkspaceHeader names the workspace of a request (spec 5.1).
const WorkspaceHeader = "X-Tenant-Id"

// readWorkspace returns the workspace of the single X-Tenant-Id header. The error is an *apierr.Error.
func readWorkspace(h http.Header) (uuid.UUID, error) {
	values := h.Values(WorkspaceHeader)
	if len(values) == 1 {
		if workspaceID, err := identity.Parse(values[0]); err == nil {
			return workspaceID, nil
		}
	}
	problem := "X-Tenant-Id must be a UUID"
	switch {
	case len(values) == 0:
		problem = "X-Tenant-Id is missing"
	case len(values) > 1:
		problem = "X-Tenant-Id was sent more than once"
	}
	return uuid.Nil, apierr.New(apierr.Invalid,
		problem+": the tenant header is required. Send it once, with the workspace identifier from Settings, User.")
}
