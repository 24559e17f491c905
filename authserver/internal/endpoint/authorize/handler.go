package authorize

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/accessrequest"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

// Requests reads authorization requests; engine.Engine implements it.
type Requests interface {
	Identify(ctx context.Context, rawQuery string) (engine.Application, error)
	ParseAuthorization(ctx context.Context, app engine.Application) (consent.Request, error)
	Serves(c client.Client) bool
}

// Grants creates and denies grants; grant.Service implements it.
type Grants interface {
	Snapshot(ctx context.Context, clientID uuid.UUID, key grant.Key) (grant.Snapshot, error)
	Known(ctx context.Context, keys []grant.Key) ([]grant.Grant, error)
	Open(ctx context.Context, g grant.Grant, terms grant.CodeTerms) (credential.Secret, error)
	Deny(ctx context.Context, g grant.Grant, actor string) error
}

// Members reads memberships. false means that the user is not a member.
type Members interface {
	Membership(ctx context.Context, user, workspaceID uuid.UUID) (workspace.Membership, bool, error)
	Memberships(ctx context.Context, user uuid.UUID) ([]workspace.Membership, error)
	// InterruptedGrant returns the permissions that the user gave to the client in the workspace, if their last grant
	// was ended because a used code or token was presented, and otherwise nil.
	InterruptedGrant(ctx context.Context, user, clientID, workspaceID uuid.UUID) (perm.Set, error)
}

// Visitors reads the current user; session.Sessions implements it. false means that the browser is not signed in.
type Visitors interface {
	CurrentUser(ctx context.Context) (session.CurrentUser, bool, error)
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Requests Requests
	Grants   Grants
	Members  Members
	Visitors Visitors
	Attempts StoppedAttempts
	Tickets  *consent.Tickets
	Offers   Offers
	Pages    *ui.Pages
	Issuer   string // the issuer of this server, without a trailing slash (RFC 9207)
	Log      *slog.Logger
	Now      func() time.Time
}

// Offers makes the form that asks an administrator; accessrequest.Offers implements it.
type Offers interface {
	Offer(ctx context.Context, q accessrequest.Request, held perm.Set) (accessrequest.Offer, error)
}

// A Handler serves the consent page. It is safe for concurrent use.
type Handler struct{ Deps }

// New returns a Handler.
func New(deps Deps) *Handler { return &Handler{deps} }

// sendBack redirects to the callback. The URL may hold a code, so the response must not be stored or sent as a
// referrer.
func sendBack(w http.ResponseWriter, location string) {
	w.Header().Set("Location", location)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
}

// fail writes the response for other errors: an unavailable store, an unreachable metadata host, or an internal error.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "authorization request failed", "error", err)
	switch {
	case errors.Is(err, client.ErrUnreachable):
		w.Header().Set("Retry-After", "30")
		h.Pages.ShowError(w, r, silentDomain())
	case errors.Is(err, store.ErrUnavailable):
		h.Pages.Unavailable(w, r)
	default:
		h.Pages.Internal(w, r)
	}
}
