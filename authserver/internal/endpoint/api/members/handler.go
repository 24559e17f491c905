// Package members serves the members and invitations of a workspace.
//
//	GET    /v1/account/tenants/{tenantId}/members                   list
//	PATCH  /v1/account/tenants/{tenantId}/members/{userId}          replace the permissions
//	DELETE /v1/account/tenants/{tenantId}/members/{userId}          remove; ends grants and tokens: 204
//	GET    /v1/account/tenants/{tenantId}/invitations               list
//	POST   /v1/account/tenants/{tenantId}/invitations               invite: 201
//	DELETE /v1/account/tenants/{tenantId}/invitations/{invitationId}  withdraw: 204
//
// Each call needs account:api:access in the workspace, a GET also account:read:members, and the others
// account:write:members. An invitation for an address with an open invitation replaces it. The link of an invitation is
// only in the response to the call that created it, and only if the deployment sends no e-mail. Package membership
// decides.
package members

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/authorizer"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// Store reads members and invitations, and stores answers; postgres.Store implements it.
type Store interface {
	ListedMembers(ctx context.Context, workspaceID uuid.UUID) ([]membership.ListedMember, error)
	WorkspaceMembers(ctx context.Context, workspaceID uuid.UUID, users []uuid.UUID) ([]membership.Member, error)
	Invitations(ctx context.Context, workspaceID uuid.UUID) ([]membership.Invitation, error)
	rest.AnswerStore
}

// Deps are the dependencies of the endpoint.
type Deps struct {
	Authorizer authorizer.Deps
	Members    *membership.Service
	Store      Store
	Variables  func(*http.Request) map[string]string // of the path: tenantId, userId, invitationId
	Cursors    *rest.Cursors
	Log        *slog.Logger
}

// A Handler serves the routes listed in the package comment.
type Handler struct{ Deps }

// New returns a Handler.
func New(d Deps) *Handler { return &Handler{d} }

// serving calls serve if the caller holds account:api:access and needed in the path's workspace.
func (h *Handler) serving(
	needed perm.Permission, serve func(http.ResponseWriter, *http.Request, audit.Actor) error,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.Authorizer.Serve(w, r, h.Variables(r)["tenantId"], perm.AccountAPIAccess, func(by audit.Actor) error {
			err := error(nil)
			if by.Permissions.Has(needed) {
				err = serve(w, r, by)
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
	effect func(http.ResponseWriter, *http.Request, audit.Actor) (rest.Answer, error),
) http.Handler {
	return h.serving(perm.AccountWriteMembers, func(w http.ResponseWriter, r *http.Request, by audit.Actor) error {
		scope := rest.KeyScope{WorkspaceID: by.WorkspaceID, User: by.UserID}
		caller := rest.Caller{Credential: by.Authorization.Credential(), Held: by.Permissions}
		write := rest.Write(func(w http.ResponseWriter, r *http.Request) (rest.Answer, error) {
			return effect(w, r, by)
		})
		return write.Serve(w, r, h.Store, scope, caller)
	})
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
	return h.serving(perm.AccountReadMembers, func(w http.ResponseWriter, r *http.Request, by audit.Actor) error {
		all, err := h.Store.ListedMembers(r.Context(), by.WorkspaceID)
		if err != nil {
			return err
		}
		return byName(func(users []uuid.UUID) ([]membership.Member, error) {
			return h.Store.WorkspaceMembers(r.Context(), by.WorkspaceID, users)
		}).Write(w, r, h.Cursors, by.WorkspaceID, all)
	})
}

// Change serves PATCH …/members/{userId}.
func (h *Handler) Change() http.Handler {
	return h.writing(func(w http.ResponseWriter, r *http.Request, by audit.Actor) (rest.Answer, error) {
		user, err := h.id(r, "userId", membership.ErrNoMember)
		if err != nil {
			return rest.Answer{}, err
		}
		var body struct {
			Permissions []string `json:"permissions"`
		}
		if err := readBody(w, r, &body); err != nil {
			return rest.Answer{}, err
		}
		permissions, err := membership.ParsePermissions(body.Permissions)
		if err != nil {
			return rest.Answer{}, err
		}
		member, err := h.Members.ChangePermissions(r.Context(), by, user, permissions, nil)
		if err != nil {
			return rest.Answer{}, err
		}
		return rest.JSONLine(http.StatusOK, showMember(member))
	})
}

// Remove serves DELETE …/members/{userId}.
func (h *Handler) Remove() http.Handler {
	return h.writing(func(_ http.ResponseWriter, r *http.Request, by audit.Actor) (rest.Answer, error) {
		user, err := h.id(r, "userId", membership.ErrNoMember)
		if err == nil {
			_, err = h.Members.Remove(r.Context(), by, user)
		}
		return rest.Answer{Status: http.StatusNoContent}, err
	})
}

// Invitations serves GET …/invitations.
func (h *Handler) Invitations() http.Handler {
	return h.serving(perm.AccountReadMembers, func(w http.ResponseWriter, r *http.Request, by audit.Actor) error {
		invitations, err := h.Store.Invitations(r.Context(), by.WorkspaceID)
		if err == nil {
			err = newestFirst().Write(w, r, h.Cursors, by.WorkspaceID, invitations)
		}
		return err
	})
}

// Invite serves POST …/invitations.
func (h *Handler) Invite() http.Handler {
	return h.writing(func(w http.ResponseWriter, r *http.Request, by audit.Actor) (rest.Answer, error) {
		var body struct {
			Email       string   `json:"email"`
			Permissions []string `json:"permissions"`
		}
		if err := readBody(w, r, &body); err != nil {
			return rest.Answer{}, err
		}
		sent, err := h.Members.Invite(r.Context(), by, body.Email, body.Permissions)
		if err != nil {
			return rest.Answer{}, err
		}
		shown := showInvitation(sent.Invitation)
		if !h.Members.Mailed() {
			shown.URL = sent.Link.Reveal()
		}
		answer, err := rest.JSONLine(http.StatusCreated, shown)
		answer.Needs, answer.Secret = sent.Invitation.Permissions, shown.URL != ""
		answer.Location = r.URL.Path + "/" + shown.ID
		return answer, err
	})
}

// Withdraw serves DELETE …/invitations/{invitationId}.
func (h *Handler) Withdraw() http.Handler {
	return h.writing(func(_ http.ResponseWriter, r *http.Request, by audit.Actor) (rest.Answer, error) {
		id, err := h.id(r, "invitationId", membership.ErrNoInvitation)
		if err == nil {
			err = h.Members.Withdraw(r.Context(), by, id)
		}
		return rest.Answer{Status: http.StatusNoContent}, err
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

// readBody reads a JSON object by the rules of JSON v2: member names match their case, and duplicates are refused.
// Unknown names are ignored.
func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rest.MaxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return apierr.New(apierr.Invalid, "The body could not be read.")
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case len(raw) == 0:
		return apierr.New(apierr.Invalid, "The body is empty.")
	case err != nil || mediaType != "application/json":
		return apierr.New(apierr.Invalid, "Content-Type must be application/json.")
	case web.Encoded(r.Header):
		return apierr.New(apierr.Invalid, web.EncodedWords)
	}
	isObject := bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) // null would leave into unchanged
	if err := json.Unmarshal(raw, into); err != nil || !isObject {
		return apierr.New(apierr.Invalid,
			"The body must be one JSON object with the documented types and without duplicate keys.")
	}
	return nil
}

// A memberBody is the JSON of a member.
type memberBody struct {
	UserID      string     `json:"userId"`
	Name        string     `json:"name"`
	Email       string     `json:"email"`
	Permissions []string   `json:"permissions"`
	Disabled    bool       `json:"disabled"`
	Connections int        `json:"connections"`
	Tokens      int        `json:"tokens"`
	CreatedAt   rest.Time  `json:"createdAt"`
	LastSeenAt  *rest.Time `json:"lastSeenAt"`
}

func showMember(m membership.Member) memberBody {
	return memberBody{
		UserID:      m.UserID.String(),
		Name:        m.Name,
		Email:       m.Email,
		Permissions: m.Permissions.Strings(),
		Disabled:    m.Disabled,
		Connections: m.Connections,
		Tokens:      m.Tokens,
		CreatedAt:   rest.Time(m.Since),
		LastSeenAt:  moment(m.LastSeen),
	}
}

func moment(t *time.Time) *rest.Time {
	if t == nil {
		return nil
	}
	at := rest.Time(*t)
	return &at
}

// An invitationBody is the JSON of an invitation. It has the link only in the response to the call that created it.
type invitationBody struct {
	ID          string    `json:"id"`
	Email       string    `json:"email"`
	Permissions []string  `json:"permissions"`
	InvitedBy   string    `json:"invitedBy"`
	CreatedAt   rest.Time `json:"createdAt"`
	ExpiresAt   rest.Time `json:"expiresAt"`
	URL         string    `json:"url,omitempty"`
}

func showInvitation(i membership.Invitation) invitationBody {
	return invitationBody{
		ID:          i.ID.String(),
		Email:       i.Email,
		Permissions: i.Permissions.Strings(),
		InvitedBy:   i.InviterID.String(),
		CreatedAt:   rest.Time(i.Created),
		ExpiresAt:   rest.Time(i.Expires),
	}
}

// byName returns the list of a workspace's members; read reads those of a page.
func byName(read func([]uuid.UUID) ([]membership.Member, error)) rest.Collection[membership.ListedMember, memberBody] {
	return rest.Collection[membership.ListedMember, memberBody]{
		Name: "members",
		Key: func(m membership.ListedMember) string {
			return strings.ToLower(m.Name) + "\x00" + m.Email + "\x00" + m.UserID.String()
		},
		Show: func(page []membership.ListedMember) ([]memberBody, error) {
			members, err := read(membership.UserIDs(page))
			if err != nil {
				return nil, err
			}
			return rest.Each(showMember)(members)
		},
	}
}

// newestFirst returns the list of a workspace's open invitations.
func newestFirst() rest.Collection[membership.Invitation, invitationBody] {
	return rest.Collection[membership.Invitation, invitationBody]{
		Name:    "invitations",
		Omitted: []string{"url"},
		Key:     func(i membership.Invitation) string { return rest.NewestFirst(i.Created, i.ID) },
		Show:    rest.Each(showInvitation),
	}
}
