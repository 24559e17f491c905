package api

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/contract/usage"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

var errCredential = errors.New("credential not valid")

// authorize calls serve with the caller if the request's bearer holds account:api:access in the workspace of the path;
// otherwise it writes the refusal. Each refusal has its own shape (contract, section 5). Each credential has a limited
// number of concurrent requests. Requests beyond it wait here, before Postgres is queried, and a request counts until
// serve returns. serve writes the response, and returns the error that it wrote.
func (d *Deps) authorize(w http.ResponseWriter, r *http.Request, serve func(audit.Actor) error) {
	held, err := d.identify(r)
	if err != nil {
		d.refuseCredential(w, r, err)
		return
	}
	turn, err := d.Bounds.Enter(r.Context(), w.Header(), inflight.CredentialOf(held.Query))
	if err != nil {
		d.refuseCredential(w, r, err)
		return
	}
	defer func() { turn.Leave(errors.Is(err, store.ErrUnavailable)) }()
	caller, err := d.admit(r, held)
	if err != nil {
		d.refuseCredential(w, r, err)
		return
	}
	err = serve(caller)
}

// refuseCredential writes the response to a request whose credential is refused.
func (d *Deps) refuseCredential(w http.ResponseWriter, r *http.Request, err error) {
	refusal, shaped := errors.AsType[*apierr.Error](err)
	switch {
	case errors.Is(err, rest.ErrNoToken):
		w.Header().Set("WWW-Authenticate", `Bearer realm="almoner", resource_metadata="`+d.Issuer+
			`/.well-known/oauth-protected-resource/v1"`)
		apierr.Write(w, apierr.Gateway, apierr.New(apierr.Unauthenticated, "Unauthorized"))
	case shaped && refusal.Kind == apierr.Unavailable:
		apierr.Write(w, apierr.Flat, refusal)
	case shaped:
		apierr.Write(w, apierr.Nested, refusal)
	case errors.Is(err, store.ErrUnavailable):
		d.Log.ErrorContext(r.Context(), "store unavailable", "error", err)
		apierr.Write(w, apierr.Flat, unavailable)
	default:
		apierr.Write(w, apierr.Gateway, apierr.New(apierr.Forbidden, "Forbidden"))
	}
}

// admit returns the caller if the credential holds account:api:access in the workspace of the path.
func (d *Deps) admit(r *http.Request, held usage.Presented) (audit.Actor, error) {
	workspaceID, malformed := web.ParseID(r.PathValue("tenantId"))
	held.Query.WorkspaceID = workspaceID
	s, err := d.standing(r, held)
	if err != nil {
		return audit.Actor{}, err
	}
	needs := perm.NewSet(perm.AccountAPIAccess)
	refusal := s.Decide(standing.Demand{WorkspaceID: workspaceID, Permissions: needs})
	switch {
	case malformed == nil && refusal == standing.Allowed:
	case malformed == nil && (refusal == standing.MemberLacks || refusal == standing.CredentialLacks):
		return audit.Actor{}, lacking(perm.AccountAPIAccess)
	default:
		return audit.Actor{}, apierr.New(apierr.Forbidden, "This credential does not have access to the workspace.")
	}
	d.LastUse.Record(s, web.ClientAddress(r.Context()))
	allowed := audit.Authorization{UserID: s.UserID, WorkspaceID: workspaceID, Permissions: needs}
	if s.Kind == standing.PersonalAccessToken {
		allowed.TokenID = s.CredentialID
	} else {
		allowed.GrantID = s.CredentialID
	}
	return audit.Actor{
		WorkspaceID:   workspaceID,
		UserID:        s.UserID,
		Permissions:   s.Effective(),
		RequestID:     web.RequestID(r.Context()),
		Authorization: allowed,
	}, nil
}

// lacking returns the refusal of a request whose user or credential lacks a permission.
func lacking(permission perm.Permission) error {
	return apierr.New(apierr.Forbidden, "This request requires the permission "+string(permission)+
		" of the user and of the credential. Ask an administrator of the workspace to grant it.")
}

// identify parses the credential of the request. It does no I/O. It records an authentic one, so that its requests
// count even if they are refused before it is looked up.
func (d *Deps) identify(r *http.Request) (held usage.Presented, err error) {
	token, err := rest.BearerToken(r.Header)
	if errors.Is(err, rest.ErrEmptyToken) {
		return held, errCredential
	}
	if err != nil {
		return held, err
	}
	text := token.Reveal()
	if credential.PersonalAccessToken.Matches(text) {
		held = usage.OfHash(credential.Hash(text))
		held.Record(r.Context())
		return held, nil
	}
	claims, err := d.Keys().Verify(text, d.Issuer, d.Now())
	if err == nil || errors.Is(err, accesstoken.ErrExpired) {
		held = usage.OfClaims(claims)
		held.Record(r.Context())
	}
	if err != nil || claims.Audience != d.Resource {
		return held, errCredential
	}
	web.RecordGrant(r.Context(), claims.GrantID)
	return held, nil
}

// standing returns the standing of the credential in the workspace of its query.
func (d *Deps) standing(r *http.Request, held usage.Presented) (standing.Standing, error) {
	claims := held.Claims
	s, err := d.Store.Standing(r.Context(), held.Query)
	if errors.Is(err, standing.ErrUnknown) {
		held.RecordStanding(r.Context(), nil)
	}
	if err != nil {
		return standing.Standing{}, err
	}
	held.RecordStanding(r.Context(), &s)
	if s.State != standing.Active || (claims != nil && !s.Backs(*claims)) {
		return standing.Standing{}, errCredential
	}
	if s.Replaces {
		if err := d.Store.EndReplaced(r.Context(), s.CredentialID); err != nil {
			return standing.Standing{}, err
		}
	}
	if claims != nil { // the grant may hold more than this token
		s.CredentialPermissions = s.CredentialPermissions.Intersect(claims.Scope)
	}
	return s, nil
}
