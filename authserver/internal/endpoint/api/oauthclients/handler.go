// Package oauthclients serves the management of a workspace's OAuth clients.
//
//	POST   /v1/account/tenants/{tenantId}/oauth-clients                     register (spec 4.2): 201
//	GET    /v1/account/tenants/{tenantId}/oauth-clients                     list
//	GET    /v1/account/tenants/{tenantId}/oauth-clients/{clientId}          read
//	DELETE /v1/account/tenants/{tenantId}/oauth-clients/{clientId}          delete; revokes its grants: 204
//	POST   /v1/account/tenants/{tenantId}/oauth-clients/{clientId}/secret   replace the secret
//
// Each call needs account:api:access in the workspace. The secret is only in the response to the call that created it.
// One credential may have 64 requests in flight, of which 8 are handled at once. Further requests get a 429 (contract,
// section 6).
package oauthclients

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/authorizer"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// Store stores clients. Its errors are Unknown of Deps, or wrap store.ErrUnavailable.
type Store interface {
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
	Clients(ctx context.Context, workspaceID uuid.UUID) ([]client.Client, error)
	SaveClient(ctx context.Context, c client.Client, secretHash []byte, event audit.Event) (bool, error)
	DeleteClient(
		ctx context.Context, workspaceID, id uuid.UUID, event audit.Event,
	) (ended []grant.Grant, more bool, err error)
	ReplaceSecret(
		ctx context.Context, workspaceID, id uuid.UUID, hash []byte, overlap time.Duration, event audit.Event,
	) error
	rest.AnswerStore
}

// Deps are the dependencies of the endpoint.
type Deps struct {
	Authorizer          authorizer.Deps
	Store               Store
	Resources           []string
	PropagateRevocation func(ctx context.Context, id uuid.UUID, ends time.Time, reason grant.Reason)
	Variables           func(*http.Request) map[string]string // of the path: tenantId, clientId
	Cursors             *rest.Cursors
	Now                 func() time.Time
	Log                 *slog.Logger
}

// A Handler serves the routes listed in the package comment.
type Handler struct{ Deps }

// New returns a Handler.
func New(d Deps) *Handler { return &Handler{d} }

// guarded calls serve if the caller holds account:api:access in the path's workspace.
func (h *Handler) guarded(serve func(http.ResponseWriter, *http.Request, audit.Actor) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.Authorizer.Serve(w, r, h.Variables(r)["tenantId"], perm.AccountAPIAccess, func(by audit.Actor) error {
			err := serve(w, r, by)
			if err != nil {
				h.refuse(w, r, err)
			}
			return err
		})
	})
}

// writing calls effect like guarded, and answers a repeated request with the first answer.
func (h *Handler) writing(
	effect func(http.ResponseWriter, *http.Request, audit.Actor) (rest.Answer, error),
) http.Handler {
	return h.guarded(func(w http.ResponseWriter, r *http.Request, by audit.Actor) error {
		scope := rest.KeyScope{WorkspaceID: by.WorkspaceID, User: by.UserID}
		caller := rest.Caller{Credential: by.Authorization.Credential(), Held: by.Permissions}
		write := rest.Write(func(w http.ResponseWriter, r *http.Request) (rest.Answer, error) {
			return effect(w, r, by)
		})
		return write.Serve(w, r, h.Store, scope, caller)
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
		apierr.Write(w, apierr.Flat,
			apierr.New(apierr.Unavailable, "The service is temporarily unavailable. Try again."))
	default:
		h.Log.ErrorContext(r.Context(), "client request failed", "error", err)
		apierr.Write(w, apierr.Flat, apierr.Of(err))
	}
}

// Register serves POST …/oauth-clients.
func (h *Handler) Register() http.Handler {
	return h.writing(func(w http.ResponseWriter, r *http.Request, by audit.Actor) (rest.Answer, error) {
		registration, err := readRegistration(w, r)
		if err != nil {
			return rest.Answer{}, err
		}
		c, err := registration.Accept(h.Resources)
		if err != nil {
			return rest.Answer{}, err
		}
		if !by.Permissions.HasAll(c.Required) {
			return rest.Answer{}, apierr.New(apierr.Forbidden, "You can only require permissions that you and "+
				"your credential have. Missing: "+c.Required.Without(by.Permissions).Scope()+".")
		}
		c.ID, c.WorkspaceID, c.CreatedBy = uuid.New(), by.WorkspaceID, &by.UserID
		c.CreatedAt = h.Now().UTC().Truncate(time.Microsecond)
		var secret credential.Secret
		var hash []byte
		if !c.Kind.Traits().Public {
			if secret, err = credential.ClientSecret.New(rand.Reader); err != nil {
				return rest.Answer{}, fmt.Errorf("create client secret: %w", err)
			}
			hash = credential.Hash(secret.Reveal())
		}
		registered := by.Event(audit.ClientRegistered, "client:"+c.ID.String(), nil, c.Required)
		saved, err := h.Store.SaveClient(r.Context(), c, hash, registered)
		if err == nil && !saved {
			err = errors.New("the id of the new client is already in use") // its secret must not be shown
		}
		if err != nil {
			return rest.Answer{}, err
		}
		answer, err := rest.JSONLine(http.StatusCreated, show(c, secret))
		answer.Needs, answer.Secret = c.Required, secret != ""
		answer.Location = r.URL.Path + "/" + c.ID.String()
		return answer, err
	})
}

// applications returns the list of a workspace's clients, newest first.
func applications() rest.Collection[client.Client, clientBody] {
	return rest.Collection[client.Client, clientBody]{
		Name:    "applications",
		Omitted: []string{"clientSecret"},
		Key:     func(c client.Client) string { return rest.NewestFirst(c.CreatedAt, c.ID) },
		Show:    rest.Each(func(c client.Client) clientBody { return show(c, "") }),
	}
}

// List serves GET …/oauth-clients.
func (h *Handler) List() http.Handler {
	return h.guarded(func(w http.ResponseWriter, r *http.Request, by audit.Actor) error {
		clients, err := h.Store.Clients(r.Context(), by.WorkspaceID)
		if err != nil {
			return err
		}
		return applications().Write(w, r, h.Cursors, by.WorkspaceID, clients)
	})
}

// Read serves GET …/oauth-clients/{clientId}.
func (h *Handler) Read() http.Handler {
	return h.guarded(func(w http.ResponseWriter, r *http.Request, by audit.Actor) error {
		id, err := h.clientID(r)
		if err != nil {
			return err
		}
		c, err := h.Store.Client(r.Context(), id)
		if err != nil {
			return err
		}
		if c.WorkspaceID != by.WorkspaceID {
			return client.ErrUnknown
		}
		web.JSON(w, http.StatusOK, show(c, ""))
		return nil
	})
}

// Delete serves DELETE …/oauth-clients/{clientId}.
func (h *Handler) Delete() http.Handler {
	return h.writing(func(w http.ResponseWriter, r *http.Request, by audit.Actor) (rest.Answer, error) {
		id, err := h.clientID(r)
		if err != nil {
			return rest.Answer{}, err
		}
		deleted := by.Event(audit.ClientDeleted, "client:"+id.String(), nil, nil)
		ended, _, err := h.Store.DeleteClient(r.Context(), by.WorkspaceID, id, deleted)
		if err != nil {
			return rest.Answer{}, err
		}
		for _, g := range ended {
			h.PropagateRevocation(r.Context(), g.ID, g.Ends, grant.ClientDeleted)
		}
		return rest.Answer{Status: http.StatusNoContent}, nil
	})
}

// overlap is how long a replaced secret still works (contract, section 5).
const overlap = 24 * time.Hour

// ReplaceSecret serves POST …/oauth-clients/{clientId}/secret.
func (h *Handler) ReplaceSecret() http.Handler {
	return h.writing(func(w http.ResponseWriter, r *http.Request, by audit.Actor) (rest.Answer, error) {
		id, err := h.clientID(r)
		if err != nil {
			return rest.Answer{}, err
		}
		expireOld, err := readExpireOld(w, r)
		if err != nil {
			return rest.Answer{}, err
		}
		c, err := h.Store.Client(r.Context(), id)
		if err != nil {
			return rest.Answer{}, err
		}
		if c.WorkspaceID != by.WorkspaceID {
			return rest.Answer{}, client.ErrUnknown
		}
		if c.Kind.Traits().Public {
			return rest.Answer{}, &client.Refusal{Message: "A connector is a public client and has no secret."}
		}
		secret, err := credential.ClientSecret.New(rand.Reader)
		if err != nil {
			return rest.Answer{}, fmt.Errorf("create client secret: %w", err)
		}
		old := overlap
		if expireOld {
			old = 0
		}
		replaced := by.Event(audit.ClientSecretReplaced, "client:"+id.String(), nil, nil)
		err = h.Store.ReplaceSecret(r.Context(), by.WorkspaceID, id, credential.Hash(secret.Reveal()), old, replaced)
		if err != nil {
			return rest.Answer{}, err
		}
		answer, err := rest.JSONLine(http.StatusOK, show(c, secret))
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

// readBody reads a JSON object by the rules of JSON v2: member names match their case, and duplicates are refused.
// Unknown names are ignored.
func readBody(w http.ResponseWriter, r *http.Request, into any) error {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rest.MaxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return &client.Refusal{Message: "The body could not be read."}
	}
	if len(raw) == 0 {
		return io.EOF
	}
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		mediaType != "application/json" {
		return &client.Refusal{Message: "Content-Type must be application/json."}
	}
	if web.Encoded(r.Header) {
		return &client.Refusal{Message: web.EncodedWords}
	}
	isObject := bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) // null would leave into unchanged
	if err := json.Unmarshal(raw, into); err != nil || !isObject {
		return &client.Refusal{
			Message: "The body must be one JSON object with the documented types and without duplicate keys.",
		}
	}
	return nil
}

func readRegistration(w http.ResponseWriter, r *http.Request) (client.Registration, error) {
	var body struct {
		Name       string   `json:"name"`
		Redirects  []string `json:"redirectUris"`
		Required   []string `json:"requiredPermissions"`
		Platform   *string  `json:"connectorPlatform"`
		Resource   *string  `json:"resource"`
		AuthMethod *string  `json:"tokenEndpointAuthMethod"`
	}
	err := readBody(w, r, &body)
	if errors.Is(err, io.EOF) {
		err = &client.Refusal{Message: "The body is empty."}
	}
	if err != nil {
		return client.Registration{}, err
	}
	registration := client.Registration{Name: body.Name, Redirects: body.Redirects, Required: body.Required}
	for _, member := range []struct {
		from *string
		to   *string
		name string
	}{
		{body.Platform, &registration.Platform, "connectorPlatform"},
		{body.Resource, &registration.Resource, "resource"},
		{body.AuthMethod, &registration.AuthMethod, "tokenEndpointAuthMethod"},
	} {
		if member.from == nil {
			continue
		}
		if *member.from == "" {
			return client.Registration{}, &client.Refusal{
				Field:   member.name,
				Message: member.name + " must not be empty. Omit it or set a value.",
			}
		}
		*member.to = *member.from
	}
	return registration, nil
}

func readExpireOld(w http.ResponseWriter, r *http.Request) (bool, error) {
	var body struct {
		ExpireOld bool `json:"expireOld"`
	}
	if err := readBody(w, r, &body); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return body.ExpireOld, nil
}

// A clientBody is the JSON of a client. It has the secret only in the response to the call that created it.
type clientBody struct {
	ClientID            string    `json:"clientId"`
	ClientSecret        string    `json:"clientSecret,omitempty"`
	Kind                string    `json:"kind"`
	WorkspaceID         string    `json:"tenantId"`
	Name                string    `json:"name"`
	RedirectURIs        []string  `json:"redirectUris"`
	RequiredPermissions []string  `json:"requiredPermissions"`
	ConnectorPlatform   string    `json:"connectorPlatform,omitempty"`
	Resource            string    `json:"resource,omitempty"`
	AuthMethod          string    `json:"tokenEndpointAuthMethod"`
	CreatedAt           rest.Time `json:"createdAt"`
}

func show(c client.Client, secret credential.Secret) clientBody {
	return clientBody{
		ClientID:            c.ID.String(),
		ClientSecret:        secret.Reveal(),
		Kind:                string(c.Kind),
		WorkspaceID:         c.WorkspaceID.String(),
		Name:                c.Name,
		RedirectURIs:        c.Redirects,
		RequiredPermissions: c.Required.Strings(),
		ConnectorPlatform:   c.Platform,
		Resource:            c.Resource,
		AuthMethod:          string(c.AuthMethod),
		CreatedAt:           rest.Time(c.CreatedAt),
	}
}
