package token

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

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
	parameters, err := decode(w, r, "client_id", "client_secret", "token", "token_type_hint")
	if err != nil {
		return err
	}
	text := credential.Secret(parameters.Values["token"])
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
		return e.limitedClient(w, from.ClientID, err)
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
	if g := snapshot.Grant; g != nil && g.ClientID == caller.ID && snapshot.Now.Before(g.Ends) {
		return e.Grants.Revoke(r.Context(), *g, grant.ByClient, "client:"+caller.ID.String())
	}
	return nil
}

// revokePersonal revokes a personal access token. Its possession is enough: a caller that has it could also use it.
func (e Endpoints) revokePersonal(r *http.Request, text credential.Secret, actor string) error {
	event := audit.Event{Actor: actor, Action: audit.TokenRevoked, RequestID: web.RequestID(r.Context())}
	return e.Store.RevokePresentedToken(r.Context(), credential.Hash(text.Reveal()), event)
}

// grantOf returns the key of a token's grant, or the zero key. It looks at the token itself and ignores token_type_hint
// (RFC 7009, section 2.1). It verifies the token first, so a caller must have a token of the grant. An expired access
// token counts: its client wants the grant to end.
func (e Endpoints) grantOf(text credential.Secret) (grant.Key, error) {
	if refresh, err := e.Grants.ReadToken(grant.Refresh, text); err == nil {
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
