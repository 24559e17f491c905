// Package security serves the settings page with the user's sign-ins, personal access tokens of every workspace, and
// recent events.
//
//	GET  /settings/security
//	POST /settings/security/mails
//	GET  /settings/security/password
//	POST /settings/security/password
//	POST /settings/security/tokens/revoke
//	POST /settings/security/sign-out
//	POST /settings/security/sign-out-others
package security

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/web"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "security", Title: "Security"}

// Store is the database of the page.
type Store interface {
	settings.TokenRevoker
	ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error)
	SignInsOf(ctx context.Context, user uuid.UUID) ([]session.SignIn, error)
	EndSignIn(ctx context.Context, user, id uuid.UUID, event audit.Event) error
	EndOtherSignIns(ctx context.Context, user, but uuid.UUID, event audit.Event) (int64, error)
	EventsOfUser(ctx context.Context, user uuid.UUID, limit int) ([]audit.Entry, error)
	session.Users
	UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error)
	ChangePassword(ctx context.Context, c password.Change, event audit.Event) error
	// HasPasskey reports whether the user has a passkey that is not stopped.
	HasPasskey(ctx context.Context, user uuid.UUID) (bool, error)
	// IdentitySince returns when the user's account of an issuer was linked, and false if none is.
	IdentitySince(ctx context.Context, user uuid.UUID, issuer string) (time.Time, bool, error)
	RemovePassword(ctx context.Context, r password.Removal, event audit.Event) error
	Authenticator(ctx context.Context, user uuid.UUID) (authenticator.Status, error)
	AddAuthenticator(
		ctx context.Context,
		user uuid.UUID,
		secret authenticator.Secret,
		step int64,
		recovery [][]byte,
		event audit.Event,
	) error
	ReplaceRecoveryCodes(ctx context.Context, user uuid.UUID, hashes [][]byte, event audit.Event) (bool, error)
	RemoveAuthenticator(ctx context.Context, user uuid.UUID, event audit.Event) (bool, error)
	UnwantedMails(ctx context.Context, user uuid.UUID) ([]mail.Kind, error)
	SetUnwantedMails(ctx context.Context, user uuid.UUID, unwanted []mail.Kind, event audit.Event) error
}

// Deps are the dependencies of a Handler.
type Deps struct {
	*settings.Settings
	Store     Store
	Mails     bool   // the deployment sends mail
	Passkeys  bool   // the deployment offers passkeys
	Issuer    string // of the deployment's OpenID Connect provider, or ""
	Passwords *session.Passwords
	Cost      session.Cost
	Attempts  *session.Attempts
	Auditor   session.Auditor
	Proxies   web.Proxies
	Host      string // of the pages: authenticator apps show it
	Random    io.Reader
}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct {
	Deps
	verifier session.Verifier
	setups   *seal.Box
}

// New returns a Handler. It derives the key of new authenticator apps from the master keys.
func New(d Deps) (*Handler, error) {
	setups, err := seal.NewBox(d.Keys, "authenticator setup")
	if err != nil {
		return nil, err
	}
	verifier := session.Verifier{
		Users:     d.Store,
		Passwords: d.Passwords,
		Attempts:  d.Attempts,
		Auditor:   d.Auditor,
	}
	return &Handler{d, verifier, setups}, nil
}

// Routes returns the routes of the page and its forms.
func (h *Handler) Routes() settings.Routes {
	return settings.Routes{
		Section.Path():                           {"GET": h.show()},
		Section.Path() + "/authenticator":        {"GET": h.showAuthenticator(), "POST": h.addAuthenticator()},
		Section.Path() + "/authenticator/codes":  {"POST": h.replaceCodes()},
		Section.Path() + "/authenticator/remove": {"POST": h.removeAuthenticator()},
		Section.Path() + "/password":             {"GET": h.showPassword(), "POST": h.changePassword()},
		Section.Path() + "/password/remove":      {"POST": h.removePassword()},
		Section.Path() + "/mails":                {"POST": h.chooseMails()},
		Section.Path() + "/tokens/revoke":        {"POST": h.revokeToken()},
		Section.Path() + "/sign-out":             {"POST": h.signOut()},
		Section.Path() + "/sign-out-others":      {"POST": h.signOutOthers()},
	}
}

// A view is Settings → Security.
type view struct {
	ui.Frame
	Key      string
	SignIns  []signIn
	Browsers settings.List // of the sign-ins
	Tokens   []ui.Token    // in every workspace
	List     settings.List // of the tokens
	Events   []ui.Event
	HasApp   bool         // the user has an authenticator app
	Mails    []mailChoice // empty if the deployment sends no mail
}

func (*view) Template() string { return "security" }

// A signIn is one signed-in browser.
type signIn struct {
	ID       string
	Device   string
	Address  string
	Since    time.Time
	LastSeen time.Time
	This     bool
}

const recentEvents = 30

// show serves GET /settings/security.
func (h *Handler) show() http.Handler {
	return h.Page(func(v *settings.Request) error {
		signIns, err := h.Store.SignInsOf(v.R.Context(), v.Current.User.ID)
		if err != nil {
			return err
		}
		tokens, err := h.Store.ActiveTokens(v.R.Context(), v.Current.User.ID)
		if err != nil {
			return err
		}
		events, err := h.Store.EventsOfUser(v.R.Context(), v.Current.User.ID, recentEvents)
		if err != nil {
			return err
		}
		mails, err := h.mailChoices(v)
		if err != nil {
			return err
		}
		app, err := h.Store.Authenticator(v.R.Context(), v.Current.User.ID)
		if err != nil {
			return err
		}
		frame, err := h.Frame(v, Section)
		if err != nil {
			return err
		}
		if err := h.OfferPasskey(v, &frame); err != nil {
			return err
		}
		view := &view{Frame: frame, Key: h.NewKey(v), HasApp: app.Active, Mails: mails}
		for _, s := range signIns {
			view.SignIns = append(view.SignIns, signIn{
				ID:       s.ID.String(),
				Device:   settings.Device(s.UserAgent),
				Address:  s.Address,
				Since:    s.Created,
				LastSeen: s.LastSeen,
				This:     s.ID == v.Current.SignInID,
			})
		}
		for _, t := range tokens {
			view.Tokens = append(view.Tokens, ui.Token{
				ID:          t.ID.String(),
				Name:        t.Name,
				Workspace:   t.Workspace,
				Permissions: t.Permissions,
				Created:     t.Created,
				Expires:     t.Expires,
				LastUsed:    t.LastUsed,
			})
		}
		query := v.R.URL.Query()
		view.SignIns, view.Browsers = settings.Listing[signIn]{
			Of:        "browsers",
			Path:      Section.Path(),
			Parameter: "browsers",
			First:     func(s signIn) bool { return s.This },
		}.Select(query, view.SignIns)
		view.Tokens, view.List = settings.Listing[ui.Token]{
			Of:        "tokens",
			Path:      Section.Path(),
			Parameter: "tokens",
		}.Select(query, view.Tokens)
		for _, e := range events {
			view.Events = append(view.Events, settings.EventView(e, &v.Current.User.ID))
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, view)
		return nil
	})
}

// signOut serves POST /settings/security/sign-out. It ends one other sign-in of the user.
func (h *Handler) signOut() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		id, ok := v.ID()
		if !ok {
			return h.Done(v, Section.Path(), "The browser is no longer signed in.")
		}
		err := h.Store.EndSignIn(
			v.R.Context(),
			v.Current.User.ID,
			id,
			v.Event(nil, audit.SignInEnded, "sign_in:"+id.String(), nil),
		)
		if err != nil {
			return err
		}
		return h.Done(v, Section.Path(), "The browser was signed out.")
	})
}

// signOutOthers serves POST /settings/security/sign-out-others.
func (h *Handler) signOutOthers() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		ended, err := h.Store.EndOtherSignIns(v.R.Context(), v.Current.User.ID, v.Current.SignInID,
			v.Event(nil, audit.SignInOthersEnded, "user:"+v.Current.User.ID.String(), nil))
		if err != nil {
			return err
		}
		notice := strconv.FormatInt(ended, 10) + " other browsers were signed out."
		if ended == 1 {
			notice = "1 other browser was signed out."
		}
		return h.Done(v, Section.Path(), notice)
	})
}

// revokeToken serves POST /settings/security/tokens/revoke. It revokes a token of the user in any workspace,
// including those where the user may no longer create tokens.
func (h *Handler) revokeToken() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		id, ok := v.ID()
		tokens, err := h.Store.ActiveTokens(v.R.Context(), v.Current.User.ID)
		if err != nil {
			return err
		}
		for _, t := range tokens {
			if ok && t.ID == id {
				return h.RevokeToken(v, h.Store, t.Token, Section.Path())
			}
		}
		return h.Done(v, Section.Path(), "The token is no longer active.")
	})
}
