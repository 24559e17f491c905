package settings

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/web"
)

// Members reads memberships.
type Members interface {
	Memberships(ctx context.Context, user uuid.UUID) ([]workspace.Membership, error)
}

// Tokens stores personal access tokens.
type Tokens interface {
	Tokens(ctx context.Context, user, workspaceID uuid.UUID) ([]pat.Token, error)
	ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error)
	SaveToken(ctx context.Context, t pat.Token, hash []byte, event audit.Event) (bool, error)
	RevokeToken(ctx context.Context, user, workspaceID, id uuid.UUID, reason string, event audit.Event) (bool, error)
}

// Clients stores OAuth clients. Its error for an unknown client is client.ErrUnknown.
type Clients interface {
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
}

// Connections reads the applications that a user has connected.
type Connections interface {
	ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error)
}

// Grants revokes grants; grant.Service implements it.
type Grants interface {
	Revoke(ctx context.Context, g grant.Grant, reason grant.Reason, actor string) error
	PropagateRevocation(ctx context.Context, id uuid.UUID, ends time.Time, reason grant.Reason)
}

// SignIns stores sign-ins.
type SignIns interface {
	SignInsOf(ctx context.Context, user uuid.UUID) ([]session.SignIn, error)
	EndSignIn(ctx context.Context, user, id uuid.UUID, event audit.Event) error
	EndOtherSignIns(ctx context.Context, user, but uuid.UUID, event audit.Event) (int64, error)
}

// Log is the audit log.
type Log interface {
	session.Auditor
	EventsOfWorkspace(ctx context.Context, workspaceID uuid.UUID, from audit.Cursor, limit int) ([]audit.Entry, error)
	EventsOfUser(ctx context.Context, user uuid.UUID, limit int) ([]audit.Entry, error)
}

// Store is the database of the pages; postgres.Store implements it.
type Store interface {
	Members
	Tokens
	Clients
	Connections
	ConnectorPolicies
	SignIns
	Log
	session.Users
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Store     Store
	Grants    Grants
	Sessions  *session.Sessions
	Passwords *session.Passwords
	Attempts  *session.Attempts
	Pages     *ui.Pages
	Proxies   web.Proxies
	Keys      seal.Keys
	BaseURL   string   // of the API, for the example
	Resources []string // resource identifiers that a connector may be registered for
	Now       func() time.Time
	Log       *slog.Logger
}

// A Handler serves the settings. It is safe for concurrent use.
type Handler struct {
	Deps
	box      *seal.Box
	verifier session.Verifier
}

// New returns a Handler. It derives the key of the forms from the master keys.
func New(deps Deps) (*Handler, error) {
	box, err := seal.NewBox(deps.Keys, "settings form")
	if err != nil {
		return nil, err
	}
	return &Handler{deps, box, session.Verifier{
		Users:     deps.Store,
		Passwords: deps.Passwords,
		Attempts:  deps.Attempts,
		Auditor:   deps.Store,
	}}, nil
}

// Home serves GET /settings.
func (h *Handler) Home(w http.ResponseWriter, _ *http.Request) { goOn(w, "/settings/user") }

// answered is the error of a request whose response was already written.
type answered struct{}

func (answered) Error() string { return "answered" }

// finish writes the response for other errors.
func (h *Handler) finish(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil || errors.Is(err, answered{}) {
		return
	}
	if errors.Is(err, audit.ErrNotAuthorized) {
		h.Pages.Fault(w, r, noLongerAllowed())
		return
	}
	h.Deps.Log.ErrorContext(r.Context(), "settings request failed", "error", err)
	switch {
	case errors.Is(err, store.ErrUnavailable):
		h.Pages.Unavailable(w, r)
	default:
		h.Pages.Internal(w, r)
	}
}

func noLongerAllowed() *ui.Message {
	return &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "You no longer have permission to do this",
		Text:    "You were signed out, or lost a permission, while we processed your request. Nothing was changed.",
		Links:   []ui.Link{{Href: "/settings/user", Text: "Back to your settings"}},
	}
}

func goOn(w http.ResponseWriter, path string) {
	w.Header().Set("Location", path)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}
