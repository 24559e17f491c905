package revoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Authenticator authenticates the client of a request. Its errors are *engine.TokenError, or wrap store.ErrUnavailable.
type Authenticator interface {
	Authenticate(ctx context.Context, request engine.TokenRequest) (client.Client, error)
}

// Grants reads and revokes grants; grant.Service implements it. Its errors wrap store.ErrUnavailable; ReadToken returns
// grant.ErrForged.
type Grants interface {
	ReadToken(kind grant.TokenKind, text credential.Secret) (grant.Token, error)
	Snapshot(ctx context.Context, clientID uuid.UUID, key grant.Key) (grant.Snapshot, error)
	Revoke(ctx context.Context, g grant.Grant, reason grant.Reason, actor string) error
}

// Tokens revokes personal access tokens; the store implements it. Its errors wrap store.ErrUnavailable.
type Tokens interface {
	// RevokePresentedToken revokes the active token with this hash, if there is one, and mails its owner.
	RevokePresentedToken(ctx context.Context, hash []byte, event audit.Event) error
}

// Deps are the dependencies of the endpoint.
type Deps struct {
	Issuer   string
	Engine   Authenticator
	Grants   Grants
	Tokens   Tokens
	Failures token.Failures
	Keys     func() *accesstoken.Keys
	Now      func() time.Time
	Log      *slog.Logger
}

// New returns a handler for POST; the router refuses other methods.
func New(d Deps) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := d.serve(w, r); err != nil {
			token.Refuse(w, r, err, d.Log)
			return
		}
		web.JSON(w, http.StatusOK, struct{}{}) // libraries parse the body, which RFC 7009, section 2.2, leaves open
	})
}

func (d Deps) serve(w http.ResponseWriter, r *http.Request) error {
	parameters, err := token.Decode(w, r, "client_id", "client_secret", "token", "token_type_hint")
	if err != nil {
		return err
	}
	text := credential.Secret(parameters.Values["token"])
	if text == "" {
		return apierr.New(apierr.Invalid, "token is required.")
	}
	request := token.Caller(r, parameters)
	personal := credential.PersonalAccessToken.Matches(text.Reveal())
	if personal && !request.NamesClient() {
		return d.revokePersonal(r, text, "anonymous")
	}
	caller, err := d.Engine.Authenticate(r.Context(), request)
	if err != nil {
		return token.LimitedClient(d.Failures, request.ClientID, err)
	}
	if personal {
		return d.revokePersonal(r, text, "client:"+caller.ID.String())
	}
	key, err := d.grantOf(text)
	if err != nil || key.ID == uuid.Nil {
		return err
	}
	web.RecordGrant(r.Context(), key.ID)
	snapshot, err := d.Grants.Snapshot(r.Context(), caller.ID, key)
	if err != nil {
		return err
	}
	if g := snapshot.Grant; g != nil && g.ClientID == caller.ID && snapshot.Now.Before(g.Ends) {
		return d.Grants.Revoke(r.Context(), *g, grant.ByClient, "client:"+caller.ID.String())
	}
	return nil
}

// revokePersonal revokes a personal access token. Its possession is enough: a caller that has it could also use it.
func (d Deps) revokePersonal(r *http.Request, text credential.Secret, actor string) error {
	return d.Tokens.RevokePresentedToken(
		r.Context(),
		credential.Hash(text.Reveal()),
		audit.Event{Actor: actor, Action: audit.TokenRevoked, RequestID: web.RequestID(r.Context())},
	)
}

// grantOf returns the key of a token's grant, or the zero key. It looks at the token itself and ignores token_type_hint
// (RFC 7009, section 2.1). It verifies the token first, so a caller must have a token of the grant. An expired access
// token counts: its client wants the grant to end.
func (d Deps) grantOf(text credential.Secret) (grant.Key, error) {
	if refresh, err := d.Grants.ReadToken(grant.Refresh, text); err == nil {
		return refresh.Key(), nil
	}
	if strings.Count(text.Reveal(), ".") != 2 { // not the format of an access token
		return grant.Key{}, nil
	}
	claims, err := d.Keys().Verify(text.Reveal(), d.Issuer, d.Now())
	if errors.Is(err, accesstoken.ErrUnknownKey) && d.Keys().Len() == 0 {
		return grant.Key{}, fmt.Errorf("%w: signing keys not loaded", store.ErrUnavailable)
	}
	if err != nil && !errors.Is(err, accesstoken.ErrExpired) {
		return grant.Key{}, nil
	}
	return grant.Key{WorkspaceID: claims.WorkspaceID, ID: claims.GrantID}, nil
}
