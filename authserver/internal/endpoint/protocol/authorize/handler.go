// Package authorize serves the authorization endpoint, where a user gives a client access.
//
//	GET  /oauth/authorize             Page     shows the sign-in page, the consent page, or an error page
//	POST /oauth/authorize             Answer   takes the decision and redirects to the client with a code
//	POST /oauth/authorize/workspace   Choose   takes the workspace for a client that belongs to none
//	                                           and shows the consent page
//
// Page checks, in this order (contract, section 4):
//
//	1 client and redirect URI                   engine.Identify             page, 400; no redirect before this
//	2 current user                              session                     sign-in page
//	3 remaining parameters                      engine.ParseAuthorization   redirect to the callback
//	4 membership, second factor                 Handler.eligible            page, 403
//	  LLM integration, permissions              consent.Evaluate            page, 403
//	  connector policy of the workspace         consent.ApplyPolicy         page, 403
//	5 shows the consent page with a ticket that records its contents and the session
//
// A client with a metadata document belongs to no workspace. For such a client, the workspace page comes between
// 3 and 4, and Choose continues with 4 and 5.
//
// Answer trusts only the ticket and checks again what may have changed since: the client, the membership, the LLM
// integration, the permissions, the policy. It never grants more than was on the page.
package authorize

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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

// StoppedAttempts records attempts of connectors that end before there is a grant; connectionlog.Recorder implements
// it.
type StoppedAttempts interface {
	Record(ctx context.Context, s connectionlog.StoppedAttempt)
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

// Offers makes the form that asks an administrator; membership.AccessOffers implements it.
type Offers interface {
	Offer(ctx context.Context, q membership.AccessRequest, held perm.Set) (membership.AccessOffer, error)
}

// A Handler serves the consent page. It is safe for concurrent use.
type Handler struct{ Deps }

// New returns a Handler.
func New(deps Deps) *Handler { return &Handler{deps} }

// A visit is one request to the endpoint.
type visit struct {
	w        http.ResponseWriter
	r        *http.Request
	form     url.Values // of a POST
	user     session.CurrentUser
	client   client.Client
	request  string // local path of the authorization request
	approves bool   // the form is an approval, whose pages do not offer to sign in as another user
}

// switchTo returns the local path to which a page returns after a sign-in as another user, or "".
func (v *visit) switchTo() string {
	if v.approves {
		return ""
	}
	return v.request
}

func (v *visit) person() *ui.Person {
	return &ui.Person{Name: v.user.User.Name, Email: v.user.User.Email}
}

// form serves a form from the server's own origin.
func (h *Handler) form(serve func(*visit) error) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, ok := h.Pages.ReadFormOr(w, r, func() { h.Pages.ShowError(w, r, badForm()) })
		if ok {
			v := &visit{w: w, r: r, form: form}
			h.finish(v, serve(v))
		}
	}))
}

// errAnswered means that the response was already written.
var errAnswered = errors.New("answered")

// refuse shows why the request ended. It returns errAnswered.
func (h *Handler) refuse(v *visit, m *ui.Message) error {
	h.Pages.ShowError(v.w, v.r, m)
	return errAnswered
}

// finish writes the response for other errors: an unavailable store, an unreachable metadata host, an internal error.
func (h *Handler) finish(v *visit, err error) {
	if err == nil || errors.Is(err, errAnswered) {
		return
	}
	h.Log.ErrorContext(v.r.Context(), "authorization request failed", "error", err)
	switch {
	case errors.Is(err, client.ErrUnreachable):
		v.w.Header().Set("Retry-After", "30")
		h.Pages.ShowError(v.w, v.r, silentDomain())
	case errors.Is(err, store.ErrUnavailable):
		h.Pages.Unavailable(v.w, v.r)
	default:
		h.Pages.Internal(v.w, v.r)
	}
}

// sendBack redirects to the callback with parameters, in pairs. The URL may hold a code, so the response must not be
// sent as a referrer.
func (h *Handler) sendBack(v *visit, redirectURI string, parameters ...string) error {
	v.w.Header().Set("Referrer-Policy", "no-referrer")
	ui.Redirect(v.w, consent.Callback{URI: redirectURI}.With(append(parameters, "iss", h.Issuer)...))
	return nil
}
