package oauthclients

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/authorizer"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/listing"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/writes"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/idempotency"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/web"
)

// Store stores clients. Its errors are Unknown of Deps, or wrap store.ErrUnavailable.
type Store interface {
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
	Clients(ctx context.Context, workspaceID uuid.UUID) ([]client.Client, error)
	SaveClient(ctx context.Context, c client.Client, secretHash []byte, event audit.Event) (bool, error)
	DeleteClient(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) ([]grant.Grant, error)
	ReplaceSecret(
		ctx context.Context,
		workspaceID, id uuid.UUID,
		hash []byte,
		overlap time.Duration,
		event audit.Event,
	) error
	writes.Store
}

// Deps are the dependencies of the endpoint.
type Deps struct {
	Authorizer          authorizer.Deps
	Store               Store
	Resources           []string
	PropagateRevocation func(ctx context.Context, id uuid.UUID, ends time.Time, reason grant.Reason)
	Variables           func(*http.Request) map[string]string // of the path: tenantId, clientId
	Cursors             *listing.Cursors
	Now                 func() time.Time
	Log                 *slog.Logger
}

// A Handler serves the routes listed in the package comment.
type Handler struct{ Deps }

// New returns a Handler.
func New(d Deps) *Handler { return &Handler{d} }

// guarded calls serve if the caller holds account:api:access in the path's workspace.
func (h *Handler) guarded(serve func(http.ResponseWriter, *http.Request, authorizer.Caller) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.Authorizer.Serve(
			w,
			r,
			h.Variables(r)["tenantId"],
			perm.AccountAPIAccess,
			func(caller authorizer.Caller) error {
				err := serve(w, r, caller)
				if err != nil {
					h.refuse(w, r, err)
				}
				return err
			},
		)
	})
}

// writing calls effect like guarded, and answers a repeated request with the first answer.
func (h *Handler) writing(
	effect func(http.ResponseWriter, *http.Request, authorizer.Caller) (idempotency.Answer, error),
) http.Handler {
	return h.guarded(func(w http.ResponseWriter, r *http.Request, caller authorizer.Caller) error {
		scope := idempotency.Scope{WorkspaceID: caller.WorkspaceID, User: caller.UserID}
		by := idempotency.Caller{Credential: caller.Allowed.Credential(), Held: caller.Permissions}
		return writes.Serve(w, r, h.Store, scope, by,
			func(w http.ResponseWriter, r *http.Request) (idempotency.Answer, error) { return effect(w, r, caller) })
	})
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var refusal *client.Refusal
	var shaped *apierr.Error
	switch {
	case errors.As(err, &refusal):
		code := "invalid_client_metadata"
		if refusal.Redirect {
			code = "invalid_redirect_uri"
		}
		apierr.Write(w, apierr.Flat, &apierr.Error{Kind: apierr.Invalid, Code: code, Message: refusal.Error()})
	case errors.As(err, &shaped) && shaped.Kind == apierr.Forbidden:
		apierr.Write(w, apierr.Nested, shaped)
	case errors.As(err, &shaped):
		apierr.Write(w, apierr.Flat, shaped)
	case errors.Is(err, audit.ErrNotAuthorized):
		apierr.Write(
			w,
			apierr.Nested,
			apierr.New(apierr.Forbidden, "This credential or a permission of its user ended during the request. "+
				"Nothing was changed."),
		)
	case errors.Is(err, client.ErrUnknown):
		apierr.Write(w, apierr.Flat, apierr.New(apierr.NotFound, "There is no such client in this workspace."))
	case errors.Is(err, client.ErrTooMany):
		apierr.Write(w, apierr.Flat, apierr.New(apierr.Conflict,
			"The workspace has 1,000 applications, which is the maximum. Delete one first."))
	case errors.Is(err, store.ErrUnavailable):
		h.Log.ErrorContext(r.Context(), "store unavailable", "error", err)
		apierr.Write(
			w,
			apierr.Flat,
			apierr.New(apierr.Unavailable, "The service is temporarily unavailable. Try again."),
		)
	default:
		h.Log.ErrorContext(r.Context(), "client request failed", "error", err)
		apierr.Write(w, apierr.Flat, apierr.Of(err))
	}
}

// Register serves POST …/oauth-clients.
func (h *Handler) Register() http.Handler {
	return h.writing(func(
		w http.ResponseWriter, r *http.Request, caller authorizer.Caller,
	) (idempotency.Answer, error) {
		registration, err := readRegistration(w, r)
		if err != nil {
			return idempotency.Answer{}, err
		}
		c, err := registration.Accept(h.Resources)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if !caller.Permissions.HasAll(c.Required) {
			return idempotency.Answer{}, apierr.New(apierr.Forbidden, "You can only require permissions that you and "+
				"your credential have. Missing: "+c.Required.Without(caller.Permissions).Scope()+".")
		}
		c.ID, c.WorkspaceID, c.CreatedBy = uuid.New(), caller.WorkspaceID, &caller.UserID
		c.CreatedAt = h.Now().UTC().Truncate(time.Microsecond)
		var secret credential.Secret
		var hash []byte
		if !c.Kind.Traits().Public {
			if secret, err = credential.ClientSecret.New(rand.Reader); err != nil {
				return idempotency.Answer{}, fmt.Errorf("create client secret: %w", err)
			}
			hash = credential.Hash(secret.Reveal())
		}
		registered := event(r, caller, audit.ClientRegistered, c.ID)
		registered.Authorization.Permissions = registered.Authorization.Permissions.Union(c.Required)
		saved, err := h.Store.SaveClient(r.Context(), c, hash, registered)
		if err == nil && !saved {
			err = errors.New("the id of the new client is already in use") // its secret must not be shown
		}
		if err != nil {
			return idempotency.Answer{}, err
		}
		answer, err := writes.JSON(http.StatusCreated, show(c, secret))
		answer.Needs, answer.Secret = c.Required, secret != ""
		answer.Location = r.URL.Path + "/" + c.ID.String()
		return answer, err
	})
}

// applications returns the list of a workspace's clients, newest first.
func applications() listing.List[client.Client, clientBody] {
	return listing.List[client.Client, clientBody]{
		Name:    "applications",
		Omitted: []string{"clientSecret"},
		Key:     func(c client.Client) string { return listing.NewestFirst(c.CreatedAt, c.ID) },
		Show:    listing.Each(func(c client.Client) clientBody { return show(c, "") }),
	}
}

// List serves GET …/oauth-clients.
func (h *Handler) List() http.Handler {
	return h.guarded(func(w http.ResponseWriter, r *http.Request, caller authorizer.Caller) error {
		clients, err := h.Store.Clients(r.Context(), caller.WorkspaceID)
		if err != nil {
			return err
		}
		return applications().Write(w, r, h.Cursors, caller.WorkspaceID, clients)
	})
}

// Read serves GET …/oauth-clients/{clientId}.
func (h *Handler) Read() http.Handler {
	return h.guarded(func(w http.ResponseWriter, r *http.Request, caller authorizer.Caller) error {
		id, err := h.clientID(r)
		if err != nil {
			return err
		}
		c, err := h.Store.Client(r.Context(), id)
		if err != nil {
			return err
		}
		if c.WorkspaceID != caller.WorkspaceID {
			return client.ErrUnknown
		}
		web.JSON(w, http.StatusOK, show(c, ""))
		return nil
	})
}

// Delete serves DELETE …/oauth-clients/{clientId}.
func (h *Handler) Delete() http.Handler {
	return h.writing(func(
		w http.ResponseWriter, r *http.Request, caller authorizer.Caller,
	) (idempotency.Answer, error) {
		id, err := h.clientID(r)
		if err != nil {
			return idempotency.Answer{}, err
		}
		deleted := event(r, caller, audit.ClientDeleted, id)
		ended, err := h.Store.DeleteClient(r.Context(), caller.WorkspaceID, id, deleted)
		if err != nil {
			return idempotency.Answer{}, err
		}
		for _, g := range ended {
			h.PropagateRevocation(r.Context(), g.ID, g.Ends, grant.ClientDeleted)
		}
		return idempotency.Answer{Status: http.StatusNoContent}, nil
	})
}

// overlap is how long a replaced secret still works (contract, section 5).
const overlap = 24 * time.Hour

// ReplaceSecret serves POST …/oauth-clients/{clientId}/secret.
func (h *Handler) ReplaceSecret() http.Handler {
	return h.writing(func(
		w http.ResponseWriter, r *http.Request, caller authorizer.Caller,
	) (idempotency.Answer, error) {
		id, err := h.clientID(r)
		if err != nil {
			return idempotency.Answer{}, err
		}
		expireOld, err := readExpireOld(w, r)
		if err != nil {
			return idempotency.Answer{}, err
		}
		c, err := h.Store.Client(r.Context(), id)
		if err != nil {
			return idempotency.Answer{}, err
		}
		if c.WorkspaceID != caller.WorkspaceID {
			return idempotency.Answer{}, client.ErrUnknown
		}
		if c.Kind.Traits().Public {
			return idempotency.Answer{}, &client.Refusal{Message: "A connector is a public client and has no secret."}
		}
		secret, err := credential.ClientSecret.New(rand.Reader)
		if err != nil {
			return idempotency.Answer{}, fmt.Errorf("create client secret: %w", err)
		}
		old := overlap
		if expireOld {
			old = 0
		}
		err = h.Store.ReplaceSecret(
			r.Context(),
			caller.WorkspaceID,
			id,
			credential.Hash(secret.Reveal()),
			old,
			event(r, caller, audit.ClientSecretReplaced, id),
		)
		if err != nil {
			return idempotency.Answer{}, err
		}
		answer, err := writes.JSON(http.StatusOK, show(c, secret))
		answer.Secret = true
		return answer, err
	})
}

func (h *Handler) clientID(r *http.Request) (uuid.UUID, error) {
	id, err := identity.Parse(h.Variables(r)["clientId"])
	if err != nil {
		return uuid.Nil, client.ErrUnknown
	}
	return id, nil
}

func event(r *http.Request, caller authorizer.Caller, action audit.Action, id uuid.UUID) audit.Event {
	return audit.Event{
		WorkspaceID:   &caller.WorkspaceID,
		UserID:        &caller.UserID,
		Actor:         caller.Actor,
		Action:        action,
		Subject:       "client:" + id.String(),
		RequestID:     web.RequestID(r.Context()),
		Authorization: &caller.Allowed,
	}
}
