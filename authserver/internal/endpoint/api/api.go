// Package api serves the tenant routes of the account API (contract, section 5): the OAuth clients, members and
// invitations of a workspace, and the connections and tokens of its members.
//
//	POST   /v1/account/tenants/{tenantId}/oauth-clients                     register (spec 4.2): 201
//	GET    /v1/account/tenants/{tenantId}/oauth-clients                     list
//	GET    /v1/account/tenants/{tenantId}/oauth-clients/{clientId}          read
//	DELETE /v1/account/tenants/{tenantId}/oauth-clients/{clientId}          delete; revokes its grants: 204
//	POST   /v1/account/tenants/{tenantId}/oauth-clients/{clientId}/secret   replace the secret
//	GET    /v1/account/tenants/{tenantId}/members                           list
//	PATCH  /v1/account/tenants/{tenantId}/members/{userId}                  replace the permissions
//	DELETE /v1/account/tenants/{tenantId}/members/{userId}                  remove; ends grants and tokens: 204
//	GET    /v1/account/tenants/{tenantId}/invitations                       list
//	POST   /v1/account/tenants/{tenantId}/invitations                       invite: 201
//	DELETE /v1/account/tenants/{tenantId}/invitations/{invitationId}        withdraw: 204
//	GET    /v1/account/tenants/{tenantId}/connections                       list
//	GET    /v1/account/tenants/{tenantId}/connections/{connectionId}        read
//	PATCH  /v1/account/tenants/{tenantId}/connections/{connectionId}        leave it fewer permissions
//	DELETE /v1/account/tenants/{tenantId}/connections/{connectionId}        end: 204
//	GET    /v1/account/tenants/{tenantId}/tokens                            list
//	GET    /v1/account/tenants/{tenantId}/tokens/{tokenId}                  read
//	DELETE /v1/account/tenants/{tenantId}/tokens/{tokenId}                  revoke: 204
//	GET    /v1/account/tenants/{tenantId}/usage                             list
//	GET    /v1/account/tenants/{tenantId}/audit-events                      list
//	GET    /v1/account/tenants/{tenantId}/connector-policy                  read
//	PUT    /v1/account/tenants/{tenantId}/connector-policy                  replace
//	POST   /v1/account/tenants/{tenantId}/rehearsals                        say what a change would do
//
// Each call needs account:api:access in the workspace. For members and invitations, a GET also needs
// account:read:members, and the others account:write:members; so do the connections and tokens of other members
// (section 5b), of which the caller otherwise sees only their own. To replace the connector policy, and to rehearse any
// change but the deletion of a client, the caller needs account:write:members. The secret of a client, and the link of
// an invitation, are only in the response to the call that created them; the link only if the deployment sends no
// e-mail. An invitation for an address with an open invitation replaces it. Package membership decides about members.
//
// One credential may have 64 requests in flight, of which 8 are handled at once. Further requests get a 429 (contract,
// section 6).
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// A Store is the database of the endpoints. Its errors are client.ErrUnknown and standing.ErrUnknown, or wrap
// store.ErrUnavailable.
type Store struct {
	Credentials
	Applications
	People
	Events
	rest.AnswerStore
}

// Credentials reads what a credential may do.
type Credentials interface {
	Standing(ctx context.Context, q standing.Query) (standing.Standing, error)
	// EndReplaced revokes the tokens that a personal access token replaces.
	EndReplaced(ctx context.Context, token uuid.UUID) error
}

// Applications reads the OAuth clients of a workspace.
type Applications interface {
	Clients(ctx context.Context, workspaceID uuid.UUID) ([]client.Client, error)
}

// Events reads the audit log.
type Events interface {
	EventsOfWorkspace(
		ctx context.Context, workspaceID uuid.UUID, search audit.Search, from audit.Cursor, limit int,
	) ([]audit.Entry, error)
}

// People reads the members and invitations of a workspace.
type People interface {
	ListedMembers(ctx context.Context, in uuid.UUID, page membership.MemberPage) ([]membership.ListedMember, error)
	WorkspaceMembers(ctx context.Context, workspaceID uuid.UUID, users []uuid.UUID) ([]membership.Member, error)
	Invitations(ctx context.Context, workspaceID uuid.UUID) ([]membership.Invitation, error)
}

// Deps are the dependencies of the endpoints.
type Deps struct {
	Issuer    string
	Resource  string // {base_url}/v1
	Resources []string
	Keys      func() *accesstoken.Keys
	LastUse   interface {
		Record(standing.Standing, netip.Addr)
	} // records, outside the request, that a credential was used
	Bounds  *inflight.Credentials // limits the concurrent requests of one credential
	Clients *client.Registry
	Members *membership.Service

	Connections *consent.Connections
	Rehearsals  *rehearsal.Rehearsals
	Tokens      pat.Tokens
	Usage       usage.Reader
	LogReads    audit.Reads

	Store   Store
	Cursors *rest.Cursors
	Now     func() time.Time
	Log     *slog.Logger
}

// Routes returns the handlers by path and method.
func (d *Deps) Routes() map[string]map[string]http.Handler {
	const (
		workspacePath   = "/v1/account/tenants/{tenantId}"
		clientsPath     = workspacePath + "/oauth-clients"
		clientPath      = clientsPath + "/{clientId}"
		membersPath     = workspacePath + "/members"
		memberPath      = membersPath + "/{userId}"
		invitationsPath = workspacePath + "/invitations"
		invitationPath  = invitationsPath + "/{invitationId}"
		connectionsPath = workspacePath + "/connections"
		connectionPath  = connectionsPath + "/{connectionId}"
		tokensPath      = workspacePath + "/tokens"
		tokenPath       = tokensPath + "/{tokenId}"
		usagePath       = workspacePath + "/usage"
		eventsPath      = workspacePath + "/audit-events"
		policyPath      = workspacePath + "/connector-policy"
	)
	ofClients := access{d, perm.AccountAPIAccess, "client request failed"}
	readsMembers := access{d, perm.AccountReadMembers, "members request failed"}
	writesMembers := access{d, perm.AccountWriteMembers, "members request failed"}
	ofCredentials := access{d, perm.AccountAPIAccess, "credentials request failed"}
	writesPolicy := access{d, perm.AccountWriteMembers, "policy request failed"}
	return map[string]map[string]http.Handler{
		clientsPath: {
			"POST": ofClients.write((*request).registerClient),
			"GET":  ofClients.read((*request).listClients),
		},
		clientPath: {
			"GET":    ofClients.read((*request).readClient),
			"DELETE": ofClients.write((*request).deleteClient),
		},
		clientPath + "/secret": {"POST": ofClients.write((*request).replaceSecret)},
		membersPath:            {"GET": readsMembers.read((*request).listMembers)},
		memberPath: {
			"PATCH":  writesMembers.write((*request).changeMember),
			"DELETE": writesMembers.write((*request).removeMember),
		},
		invitationsPath: {
			"GET":  readsMembers.read((*request).listInvitations),
			"POST": writesMembers.write((*request).invite),
		},
		invitationPath:  {"DELETE": writesMembers.write((*request).withdraw)},
		connectionsPath: {"GET": ofCredentials.read((*request).listConnections)},
		connectionPath: {
			"GET":    ofCredentials.read((*request).readConnection),
			"PATCH":  ofCredentials.write((*request).narrowConnection),
			"DELETE": ofCredentials.write((*request).endConnection),
		},
		tokensPath: {"GET": ofCredentials.read((*request).listTokens)},
		tokenPath: {
			"GET":    ofCredentials.read((*request).readToken),
			"DELETE": ofCredentials.write((*request).revokeToken),
		},
		usagePath:  {"GET": ofCredentials.read((*request).listUsage)},
		eventsPath: {"GET": ofCredentials.read((*request).listEvents)},
		policyPath: {
			"GET": ofCredentials.read((*request).readPolicy),
			"PUT": writesPolicy.write((*request).replacePolicy),
		},
		workspacePath + "/rehearsals": {"POST": ofCredentials.read((*request).rehearse)},
	}
}

// access is what the caller of a route needs.
type access struct {
	*Deps
	needs  perm.Permission // besides account:api:access
	failed string          // the log's message for a request that failed
}

// A request is a request of a caller who may make it.
type request struct {
	*Deps
	w    http.ResponseWriter
	http *http.Request
	by   audit.Actor
}

// read calls serve if the caller holds account:api:access and what the route needs in the workspace of the path.
func (a access) read(serve func(*request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.authorize(w, r, func(by audit.Actor) error {
			err := lacking(a.needs)
			if by.Permissions.Has(a.needs) {
				err = serve(&request{a.Deps, w, r, by})
			}
			if err != nil {
				a.refuse(w, r, err)
			}
			return err
		})
	})
}

// write is read for a route that changes something. It runs effect in a transaction, and answers a repeated request
// with the first response.
func (a access) write(effect func(*request) (rest.Answer, error)) http.Handler {
	return a.read(func(q *request) error {
		scope := rest.KeyScope{WorkspaceID: q.by.WorkspaceID, User: q.by.UserID}
		caller := rest.Caller{Credential: q.by.Authorization.Credential(), Held: q.by.Permissions}
		write := rest.Write(func(w http.ResponseWriter, r *http.Request) (rest.Answer, error) {
			return effect(&request{q.Deps, w, r, q.by}) // in the transaction of r
		})
		return write.Serve(q.w, q.http, q.Store, scope, caller)
	})
}

var unavailable = apierr.New(apierr.Unavailable, "The service is temporarily unavailable. Try again.")

// refused are the responses to the errors of the domain.
func refused() rest.Refusals {
	as := func(kind apierr.Kind, err error, message string) rest.Refusal {
		return rest.Refusal{Err: err, As: apierr.New(kind, message)}
	}
	busy := apierr.New(apierr.RateLimited, "Too many reads of logs are running. Try again.")
	rehearsing := apierr.New(apierr.RateLimited,
		"Other rehearsals are running, or the workspace is changing. Try again.")
	busy.RetryAfter, rehearsing.RetryAfter = 3, 3 // seconds
	return rest.Refusals{
		as(apierr.Forbidden, audit.ErrNotAuthorized,
			"This credential or a permission of its user ended during the request. Nothing was changed."),
		as(apierr.NotFound, client.ErrUnknown, "There is no such client in this workspace."),
		as(apierr.Conflict, client.ErrTooMany,
			"The workspace has 1,000 applications, which is the maximum. Delete one first."),
		as(apierr.NotFound, membership.ErrNoMember, "There is no such member in this workspace."),
		as(apierr.NotFound, membership.ErrNoInvitation, "There is no such open invitation in this workspace."),
		as(apierr.Conflict, membership.ErrMember, "A member of the workspace has this e-mail address."),
		as(apierr.Conflict, membership.ErrChanged,
			"The member's permissions were changed at the same time. Nothing was changed. Read them and try again."),
		as(apierr.Conflict, membership.ErrLastHolder,
			"This is the last member with account:api:access, account:read:members or account:write:members. Give "+
				"that permission to another member first."),
		as(apierr.Conflict, membership.ErrUnproven,
			"The member's e-mail address was never confirmed, so another person may have created the account. Until "+
				"it is confirmed, permissions can only be removed."),
		as(apierr.Conflict, membership.ErrTooManyInvited,
			"The workspace has too many open invitations. Withdraw some first."),
		as(apierr.NotFound, consent.ErrNoConnection, "There is no such connection in this workspace."),
		as(apierr.Conflict, consent.ErrConnectionEnded, "The connection has ended, or was changed at the same time. "+
			"Nothing was changed."),
		as(apierr.Conflict, consent.ErrPolicyChanged, "The connector policy was changed at the same time. Try again."),
		as(apierr.NotFound, pat.ErrNoToken, "There is no such active token in this workspace."),
		as(apierr.Forbidden, audit.ErrOthers, othersCredential),
		as(apierr.PreconditionFailed, rest.ErrStale, "The policy has changed since you read it. Read it again."),
		as(apierr.NotFound, rehearsal.ErrNoIssuer, "There is no such trusted issuer in this workspace."),
		as(apierr.Conflict, rehearsal.ErrTooMany,
			"The change concerns more than 12,000 connections and tokens, which is more than a rehearsal can compare."),
		as(apierr.Unavailable, rehearsal.ErrTooSlow,
			"It takes too long now to work out what the change would do. Try again."),
		{Err: rehearsal.ErrBusy, As: rehearsing},
		{Err: audit.ErrBusy, As: busy},
		{Err: store.ErrUnavailable, As: unavailable},
	}
}

const othersCredential = "For credentials of other members, you and your credential need the permission " +
	"account:read:members, and to end or narrow them account:write:members."

// refuse writes the response to a request that failed.
func (a access) refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer, shaped := errors.AsType[*apierr.Error](err)
	if !shaped {
		answer = apierr.Of(refused().Of(err))
	}
	if refusal, ok := errors.AsType[*client.Refusal](err); ok {
		answer = &apierr.Error{Kind: apierr.Invalid, Code: "invalid_client_metadata", Message: refusal.Error()}
		if refusal.Redirect {
			answer.Code = "invalid_redirect_uri"
		}
	}
	if refusal, ok := errors.AsType[*consent.NarrowRefusal](err); ok {
		answer = apierr.New(apierr.Invalid, "permissions: "+refusal.Message)
	}
	if refusal, ok := errors.AsType[*consent.PolicyRefusal](err); ok {
		answer = apierr.New(apierr.Invalid, refusal.Field+": "+refusal.Message)
	}
	if refusal, ok := errors.AsType[*membership.Refusal](err); ok {
		answer = apierr.New(apierr.Invalid, refusal.Field+": "+refusal.Message)
	}
	if missing, ok := errors.AsType[*membership.NotHeld](err); ok {
		answer = apierr.New(apierr.Forbidden, "You can only give permissions that you and your credential have. "+
			"Missing: "+missing.Missing.Scope()+".")
	}
	if limited, ok := errors.AsType[*membership.LimitError](err); ok {
		web.SetRateLimited(w.Header(), limited.Wait, limited.RateLimit())
		answer = apierr.New(apierr.RateLimited, limited.Text+" Try again later.")
	}
	switch {
	case errors.Is(err, store.ErrUnavailable):
		a.Log.ErrorContext(r.Context(), "store unavailable", "error", err)
	case answer.Kind == apierr.Internal:
		a.Log.ErrorContext(r.Context(), a.failed, "error", err)
	}
	shape := apierr.Flat
	if answer.Kind == apierr.Forbidden {
		shape = apierr.Nested
	}
	apierr.Write(w, shape, answer)
}

// id reads an identifier in the path. Its error is unknown.
func (r *request) id(variable string, unknown error) (uuid.UUID, error) {
	id, err := web.ParseID(r.http.PathValue(variable))
	if err != nil {
		return uuid.Nil, unknown
	}
	return id, nil
}
