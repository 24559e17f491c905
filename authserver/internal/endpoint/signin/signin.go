// Package signin serves the pages by which people sign in and authenticate again, their passkeys and their account at
// the deployment's OpenID Connect provider, and the links of mails and invitations. The forms take requests from the
// server's own origin only. The comment of a handler lists the fields of its form.
//
// The responses do not reveal whether an account exists. An unknown e-mail address, a wrong password and a disabled
// account get the same response after the same work. Nor do they reveal whether a credential exists: an unknown or
// stopped credential, a credential of a disabled user and a bad signature get the same response.
//
// A GET of a link changes nothing, because mail programs and previews open links in advance.
package signin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A Store is the database of the pages. Its errors are those of the domain, or wrap store.ErrUnavailable.
type Store struct {
	Users
	SignIns
	Resets
	Identities
	Credentials
	Logs
}

// Users stores users, their invitations and requests for access.
type Users interface {
	UserByEmail(ctx context.Context, email string) (workspace.User, credential.Secret, bool, error)
	UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error)
	AcceptWithPasskey(
		ctx context.Context, o membership.Offer, user membership.NewUser, key passkey.Passkey,
		added, joined audit.Event,
	) error
	SendAccessRequest(ctx context.Context, q membership.AccessRequest, event audit.Event) (membership.Outcome, error)
	QueueMail(ctx context.Context, m mail.Message) error
}

// SignIns stores passkeys, authenticator apps and wrong codes.
type SignIns interface {
	session.CodeStore
	passkey.Store
	Authenticator(ctx context.Context, user uuid.UUID) (authenticator.Status, error)
	// HasPasskey reports whether the user has a passkey that is not stopped.
	HasPasskey(ctx context.Context, user uuid.UUID) (bool, error)
}

// Resets stores links to set a password.
type Resets interface {
	ResetLink(ctx context.Context, tokenHash []byte) (password.Link, error)
	// ResetPassword returns the grants that it ended.
	ResetPassword(ctx context.Context, r password.Reset, event audit.Event) ([]useraccount.EndedGrant, error)
}

// Identities stores accounts at the OpenID Connect provider that users are linked to.
type Identities interface {
	UserByIdentity(ctx context.Context, issuer, subject string) (workspace.User, bool, error)
	// LinkIdentity links an account at the provider to the user with the address, which the provider has verified. If
	// the address was not proven before, it ends what the account had, or returns useraccount.ErrTakeover if confirmed
	// is false.
	LinkIdentity(
		ctx context.Context, user uuid.UUID, email, issuer, subject string, confirmed bool, event audit.Event,
	) (bool, *useraccount.Takeover, error)
	// IdentitySince returns when the user was linked to an account of an issuer. false means that the user is not
	// linked.
	IdentitySince(ctx context.Context, user uuid.UUID, issuer string) (time.Time, bool, error)
	// UnlinkIdentity removes a link, unless the user needs it to sign in. passkeys reports whether the deployment
	// offers passkeys.
	UnlinkIdentity(
		ctx context.Context, user uuid.UUID, issuer string, passkeys bool, event audit.Event,
	) (unlinked, needed bool, err error)
}

// Credentials reads what a new password may end.
type Credentials interface {
	ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error)
	ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error)
}

// Logs stores audit events.
type Logs interface {
	Record(ctx context.Context, e audit.Event) error
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Store        Store
	Accounts     *useraccount.Service
	Members      *membership.Service
	Offers       *membership.AccessOffers
	Mails        bool                  // the deployment sends mail
	RelyingParty *passkey.RelyingParty // nil if the deployment offers no passkeys
	Provider     *oidc.Provider        // nil if the deployment has no OpenID Connect provider
	ProviderName string                // as users read it
	Passwords    *session.Passwords
	Attempts     *session.Attempts
	Sessions     *session.Sessions
	Pages        *ui.Pages
	Proxies      web.Proxies
	// Switcher returns the choice of the workspace in the header of a page, or nil.
	Switcher func(r *http.Request, user session.CurrentUser, section string) (*ui.Switcher, error)
	// Application returns the name of the application that sent the user to a local path, or "".
	Application func(ctx context.Context, path string) string
	// PropagateRevocation propagates the end of a grant to Redis.
	PropagateRevocation func(ctx context.Context, id uuid.UUID, ends time.Time, reason grant.Reason)

	Keys   seal.Keys
	Now    func() time.Time
	Random io.Reader
	Log    *slog.Logger
}

// A Handler serves the pages. It is safe for concurrent use.
type Handler struct {
	Deps
	// of the forms: checked passwords that wait for a code, and the keys of three pages
	tickets, passkeyForms, providerForms, invitations *seal.Box
}

// New returns a Handler. It derives the keys of the forms from the master keys.
func New(deps Deps) (*Handler, error) {
	h := &Handler{Deps: deps}
	var errs [4]error
	h.tickets, errs[0] = seal.NewBox(deps.Keys, "sign-in ticket")
	h.passkeyForms, errs[1] = seal.NewBox(deps.Keys, "passkeys form")
	h.providerForms, errs[2] = seal.NewBox(deps.Keys, "upstream form")
	h.invitations, errs[3] = seal.NewBox(deps.Keys, "invitation form")
	return h, errors.Join(errs[:]...)
}

// Routes are handlers by path and method.
type Routes map[string]map[string]http.Handler

// Routes returns the handlers of the pages. A method of sign-in that the deployment does not offer has no routes.
func (h *Handler) Routes() Routes {
	routes := Routes{
		"/login":      {"GET": h.page(signIn, h.showSignIn), "POST": h.form(signIn, h.signIn)},
		"/login/code": {"POST": h.form(signIn, h.code)},
		"/logout":     {"POST": h.form(signIn, h.signOut)},
		"/login/again": {
			"GET":  h.page(reauth, h.forUser("", h.showReauth)),
			"POST": h.form(reauth, h.forUser("", h.confirm)),
		},
		"/invitation":         {"GET": h.page(invitation, h.showInvitation), "POST": h.invitationForm(h.answer)},
		"/invitation/account": {"POST": h.invitationForm(h.createAccount)},
		"/access-requests":    {"POST": h.form(accessRequest, h.askForAccess)},
	}
	if h.RelyingParty != nil {
		maps.Copy(routes, h.passkeyRoutes())
	}
	if h.Provider != nil {
		maps.Copy(routes, h.providerRoutes())
	}
	for _, byMethod := range routes {
		for method, handler := range byMethod {
			byMethod[method] = h.Sessions.Load(handler)
		}
	}
	routes["/login"]["GET"] = web.CompressPublic(routes["/login"]["GET"])
	// No session is read: a new password needs none, and none is written before the sign-in that follows.
	maps.Copy(routes, Routes{
		"/login/forgotten": {
			"GET":  web.CompressPublic(h.page(reset, h.showForgotten)),
			"POST": h.form(reset, h.requestReset),
		},
		mail.ResetPath: {"GET": h.page(reset, h.showReset), "POST": h.form(reset, h.resetPassword)},
		mail.EmailChangePath: {
			"GET":  h.page(emailChange, h.showEmailChange),
			"POST": h.form(emailChange, h.answerEmailChange),
		},
	})
	return routes
}
