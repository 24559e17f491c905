package members

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/authorizer"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/listing"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/writes"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"
)

// Store reads members and invitations, and stores answers; postgres.Store implements it.
type Store interface {
	ListedMembers(ctx context.Context, workspaceID uuid.UUID) ([]membership.ListedMember, error)
	WorkspaceMembers(ctx context.Context, workspaceID uuid.UUID, users []uuid.UUID) ([]membership.Member, error)
	Invitations(ctx context.Context, workspaceID uuid.UUID) ([]membership.Invitation, error)
	writes.Store
}

// Deps are the dependencies of the endpoint.
type Deps struct {
	Authorizer authorizer.Deps
	Members    *membership.Service
	Store      Store
	Variables  func(*http.Request) map[string]string // of the path: tenantId, userId, invitationId
	Cursors    *listing.Cursors
	Log        *slog.Logger
}

// A Handler serves the routes listed in the package comment.
type Handler struct{ Deps }

// New returns a Handler.
func New(d Deps) *Handler { return &Handler{d} }

// serving calls serve if the caller holds account:api:access and needed in the path's workspace.
func (h *Handler) serving(
	needed perm.Permission, serve func(http.ResponseWriter, *http.Request, membership.Actor) error,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.Authorizer.Serve(w, r, h.Variables(r)["tenantId"], perm.AccountAPIAccess, func(c authorizer.Caller) error {
			err := error(nil)
			if c.Permissions.Has(needed) {
				err = serve(w, r, membership.Actor{
					UserID:        c.UserID,
					WorkspaceID:   c.WorkspaceID,
					Permissions:   c.Permissions,
					RequestID:     web.RequestID(r.Context()),
					Authorization: c.Allowed,
				})
			} else {
				err = apierr.New(apierr.Forbidden, "This request requires the permission "+string(needed)+
					" of the user and of the credential. Ask an administrator of the workspace to grant it.")
			}
			if err != nil {
				h.refuse(w, r, err)
			}
			return err
		})
	})
}

// writing calls effect like serving, and answers a repeated request with the first answer.
func (h *Handler) writing(
	effect func(http.ResponseWriter, *http.Request, membership.Actor) (idempotency.Answer, error),
) http.Handler {
	return h.serving(
		perm.AccountWriteMembers,
		func(w http.ResponseWriter, r *http.Request, by membership.Actor) error {
			scope := idempotency.Scope{WorkspaceID: by.WorkspaceID, User: by.UserID}
			caller := idempotency.Caller{Credential: by.Authorization.Credential(), Held: by.Permissions}
			return writes.Serve(w, r, h.Store, scope, caller,
				func(w http.ResponseWriter, r *http.Request) (idempotency.Answer, error) { return effect(w, r, by) })
		},
	)
}

// messages are the responses to the errors of package membership.
func messages() map[error]*apierr.Error {
	conflict := func(message string) *apierr.Error { return apierr.New(apierr.Conflict, message) }
	return map[error]*apierr.Error{
		membership.ErrNoMember:     apierr.New(apierr.NotFound, "There is no such member in this workspace."),
		membership.ErrNoInvitation: apierr.New(apierr.NotFound, "There is no such open invitation in this workspace."),
		membership.ErrMember:       conflict("A member of the workspace has this e-mail address."),
		membership.ErrChanged: conflict(
			"The member's permissions were changed at the same time. Nothing was changed. Read them and try again."),
		membership.ErrLastHolder: conflict(
			"This is the last member with account:api:access, account:read:members or account:write:members. Give " +
				"that permission to another member first."),
		membership.ErrUnproven: conflict(
			"The member's e-mail address was never confirmed, so another person may have created the account. Until " +
				"it is confirmed, permissions can only be removed."),
		membership.ErrTooManyInvited: conflict("The workspace has too many open invitations. Withdraw some first."),
		audit.ErrNotAuthorized: apierr.New(apierr.Forbidden,
			"This credential or a permission of its user ended during the request. Nothing was changed."),
	}
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer := apierr.Of(err)
	if refusal, invalid := errors.AsType[*membership.Refusal](err); invalid {
		answer = apierr.New(apierr.Invalid, refusal.Field+": "+refusal.Message)
	}
	if missing, notHeld := errors.AsType[*membership.NotHeld](err); notHeld {
		answer = apierr.New(apierr.Forbidden, "You can only give permissions that you and your credential have. "+
			"Missing: "+missing.Missing.Scope()+".")
	}
	if limited, ok := errors.AsType[*membership.LimitError](err); ok {
		web.SetRateLimited(w.Header(), limited.Wait, limited.RateLimit())
		answer = apierr.New(apierr.RateLimited, limited.Text+" Try again later.")
	}
	for sentinel, message := range messages() {
		if errors.Is(err, sentinel) {
			answer = message
		}
	}
	if errors.Is(err, store.ErrUnavailable) {
		answer = apierr.New(apierr.Unavailable, "The service is temporarily unavailable. Try again.")
	}
	if answer.Kind == apierr.Unavailable || answer.Kind == apierr.Internal {
		h.Log.ErrorContext(r.Context(), "members request failed", "error", err)
	}
	shape := apierr.Flat
	if answer.Kind == apierr.Forbidden {
		shape = apierr.Nested
	}
	apierr.Write(w, shape, answer)
}

// List serves GET …/members.
func (h *Handler) List() http.Handler {
	return h.serving(
		perm.AccountReadMembers,
		func(w http.ResponseWriter, r *http.Request, by membership.Actor) error {
			all, err := h.Store.ListedMembers(r.Context(), by.WorkspaceID)
			if err != nil {
				return err
			}
			return byName(func(users []uuid.UUID) ([]membership.Member, error) {
				return h.Store.WorkspaceMembers(r.Context(), by.WorkspaceID, users)
			}).Write(w, r, h.Cursors, by.WorkspaceID, all)
		},
	)
}

// Change serves PATCH …/members/{userId}.
func (h *Handler) Change() http.Handler {
	return h.writing(func(
		w http.ResponseWriter, r *http.Request, by membership.Actor,
	) (idempotency.Answer, error) {
		user, err := h.id(r, "userId", membership.ErrNoMember)
		if err != nil {
			return idempotency.Answer{}, err
		}
		var body struct {
			Permissions []string `json:"permissions"`
		}
		if err := readBody(w, r, &body); err != nil {
			return idempotency.Answer{}, err
		}
		permissions, err := membership.ParsePermissions(body.Permissions)
		if err != nil {
			return idempotency.Answer{}, err
		}
		member, err := h.Members.ChangePermissions(r.Context(), by, user, permissions, nil)
		if err != nil {
			return idempotency.Answer{}, err
		}
		return writes.JSON(http.StatusOK, showMember(member))
	})
}

// Remove serves DELETE …/members/{userId}.
func (h *Handler) Remove() http.Handler {
	return h.writing(func(
		_ http.ResponseWriter, r *http.Request, by membership.Actor,
	) (idempotency.Answer, error) {
		user, err := h.id(r, "userId", membership.ErrNoMember)
		if err == nil {
			_, err = h.Members.Remove(r.Context(), by, user)
		}
		return idempotency.Answer{Status: http.StatusNoContent}, err
	})
}

// Invitations serves GET …/invitations.
func (h *Handler) Invitations() http.Handler {
	return h.serving(
		perm.AccountReadMembers,
		func(w http.ResponseWriter, r *http.Request, by membership.Actor) error {
			invitations, err := h.Store.Invitations(r.Context(), by.WorkspaceID)
			if err == nil {
				err = newestFirst().Write(w, r, h.Cursors, by.WorkspaceID, invitations)
			}
			return err
		},
	)
}

// Invite serves POST …/invitations.
func (h *Handler) Invite() http.Handler {
	return h.writing(func(
		w http.ResponseWriter, r *http.Request, by membership.Actor,
	) (idempotency.Answer, error) {
		var body struct {
			Email       string   `json:"email"`
			Permissions []string `json:"permissions"`
		}
		if err := readBody(w, r, &body); err != nil {
			return idempotency.Answer{}, err
		}
		sent, err := h.Members.Invite(r.Context(), by, body.Email, body.Permissions)
		if err != nil {
			return idempotency.Answer{}, err
		}
		shown := showInvitation(sent.Invitation)
		if !h.Members.Mailed() {
			shown.URL = sent.Link.Reveal()
		}
		answer, err := writes.JSON(http.StatusCreated, shown)
		answer.Needs, answer.Secret = sent.Invitation.Permissions, shown.URL != ""
		answer.Location = r.URL.Path + "/" + shown.ID
		return answer, err
	})
}

// Withdraw serves DELETE …/invitations/{invitationId}.
func (h *Handler) Withdraw() http.Handler {
	return h.writing(func(
		_ http.ResponseWriter, r *http.Request, by membership.Actor,
	) (idempotency.Answer, error) {
		id, err := h.id(r, "invitationId", membership.ErrNoInvitation)
		if err == nil {
			err = h.Members.Withdraw(r.Context(), by, id)
		}
		return idempotency.Answer{Status: http.StatusNoContent}, err
	})
}

// id reads an identifier in the path. Its error is unknown.
func (h *Handler) id(r *http.Request, variable string, unknown error) (uuid.UUID, error) {
	id, err := identity.Parse(h.Variables(r)[variable])
	if err != nil {
		return uuid.Nil, unknown
	}
	return id, nil
}
