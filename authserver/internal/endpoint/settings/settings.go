// Package settings serves the pages of the settings, and GET / and GET /settings as a 303 to /settings/user. Routes is
// the table of the pages and their forms. What they have in common is in request.go: the session, the key of the forms,
// the workspace and its permission, the frame, refusals and notices.
//
// Every form has a key that is sealed for the sign-in it was shown to: a form of another session is a 403. Pages of one
// workspace need a permission there (contract, section 7): account:read:members for the members, and account:api:access
// for the others. Their URLs and forms name it in tenant; lists have a search (q) and pages of 25 (page), and the logs
// have the position before and the fields of logSearch.
//
// Creating a credential needs an authentication within the last 10 minutes. Users with a password enter it in the form;
// other users authenticate at /login/again. A response shows a new credential only once.
package settings

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/net/web"
)

// The sections and some of their pages.
var (
	userSection          = ui.Section{Name: "user", Title: "User"}
	emailSection         = ui.Section{Name: "user/email", Title: "Change your e-mail address"}
	deletionSection      = ui.Section{Name: "user/delete", Title: "Delete your account"}
	membersSection       = ui.Section{Name: "members", Title: "Members", Needs: perm.AccountReadMembers}
	leaveSection         = ui.Section{Name: "members"} // every member may leave
	developersSection    = ui.Section{Name: "developers", Title: "Developers", Needs: perm.AccountAPIAccess}
	connectorsSection    = ui.Section{Name: "connectors", Title: "Connectors", Needs: perm.AccountAPIAccess}
	assistantsSection    = ui.Section{Name: "connect", Title: "Connect an assistant"}
	appsSection          = ui.Section{Name: "apps", Title: "Connected apps"}
	securitySection      = ui.Section{Name: "security", Title: "Security"}
	passwordSection      = ui.Section{Name: "security/password", Title: "Password"}
	authenticatorSection = ui.Section{Name: "security/authenticator", Title: "Authenticator app"}
	auditSection         = ui.Section{Name: "audit", Title: "Audit log", Needs: perm.AccountAPIAccess}
)

// Pages whose links are on other pages of the section.
var (
	inviteSection       = sectionOf(membersSection, "members/invite", "Invite a person", perm.AccountWriteMembers)
	applicationsSection = sectionOf(developersSection, "applications", "OAuth applications", perm.AccountAPIAccess)
	webhooksSection     = sectionOf(developersSection, "webhooks", "Webhooks", perm.AccountAPIAccess)
	logSection          = sectionOf(connectorsSection, "connectors/log", "Connection log", perm.AccountAPIAccess)
)

func sectionOf(parent ui.Section, name, title string, needs perm.Permission) ui.Section {
	return ui.Section{Name: name, Title: title, Needs: needs, Parent: parent.Name}
}

// Sections returns the sections, in the order of the navigation, and their pages that have no link there.
func Sections() []ui.Section {
	return []ui.Section{
		userSection,
		membersSection,
		developersSection,
		connectorsSection,
		assistantsSection,
		appsSection,
		securitySection,
		auditSection,
		inviteSection,
		applicationsSection,
		webhooksSection,
		logSection,
	}
}

// Deps are the dependencies of Settings.
type Deps struct {
	Store     Store
	Clients   *client.Registry
	Members   *membership.Service
	Accounts  *useraccount.Service
	Grants    *grant.Service
	Offers    *membership.AccessOffers
	Sessions  *session.Sessions
	Passwords *session.Passwords
	Pages     *ui.Pages
	Keys      seal.Keys
	Proxies   web.Proxies
	Network   *publicnet.Network // that webhook endpoints may be in
	BaseURL   string             // of the API
	AppURL    string             // of the consent page
	Host      string             // of the pages: authenticator apps show it
	Issuer    string             // of the deployment's OpenID Connect provider, or ""
	Resources []string           // resource identifiers that a connector may be registered for
	Mails     bool               // the deployment sends mail
	Passkeys  bool               // the deployment offers passkeys
	Now       func() time.Time
	Random    io.Reader
	Log       *slog.Logger
}

// Settings serves the pages. It is safe for concurrent use.
type Settings struct {
	Deps
	box    *seal.Box // of the forms' keys
	setups *seal.Box // of new authenticator apps
	turns  turns
}

// New returns Settings. It derives the keys of the forms and of new authenticator apps from the master keys.
func New(deps Deps) (*Settings, error) {
	box, err := seal.NewBox(deps.Keys, "settings form")
	if err != nil {
		return nil, err
	}
	setups, err := seal.NewBox(deps.Keys, "authenticator setup")
	if err != nil {
		return nil, err
	}
	return &Settings{deps, box, setups, newTurns()}, nil
}

// Routes are handlers by path and method.
type Routes map[string]map[string]http.Handler

// A route is a path with its page and its form.
type route struct {
	path    string
	section ui.Section // with the permission that is needed; of a form, the page that it is on
	show    handler    // GET
	act     handler    // POST
}

// Routes returns the pages and their forms.
func (s *Settings) Routes() Routes {
	home := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { ui.Redirect(w, userSection.Path()) })
	routes := Routes{"/": {"GET": home}, "/settings": {"GET": home}}
	for _, one := range slices.Concat(s.userRoutes(), s.workspaceRoutes()) {
		if routes[one.path] == nil {
			routes[one.path] = map[string]http.Handler{}
		}
		if one.show != nil {
			routes[one.path]["GET"] = s.page(one.section, one.show)
		}
		if one.act != nil {
			routes[one.path]["POST"] = s.submitted(one.section, one.act)
		}
	}
	return routes
}

// userRoutes are those of the user's own pages.
func (s *Settings) userRoutes() []route {
	return []route{
		{"/settings/passkey-offer", userSection, nil, s.declinePasskey},
		{"/settings/workspace", userSection, nil, s.chooseWorkspace},
		{"/settings/user", userSection, s.showUser, nil},
		{"/settings/user/name", userSection, nil, s.setName},
		{"/settings/user/email", emailSection, s.showEmail, s.changeEmail},
		{"/settings/user/delete", deletionSection, s.onDeletion(s.showDeletion), s.onDeletion(s.deleteAccount)},
		{"/settings/connect", assistantsSection, s.showAssistants, nil},
		{"/settings/apps", appsSection, s.showApps, nil},
		{"/settings/apps/disconnect", appsSection, nil, s.disconnectApp},
		{"/settings/apps/disconnect-all", appsSection, nil, s.disconnectAll},
		{"/settings/security", securitySection, s.showSecurity, nil},
		{"/settings/security/mails", securitySection, nil, s.chooseMails},
		{"/settings/security/tokens/revoke", securitySection, nil, s.revokeAnyToken},
		{"/settings/security/sign-out", securitySection, nil, s.signOut},
		{"/settings/security/sign-out-others", securitySection, nil, s.signOutOthers},
		{"/settings/security/password", passwordSection, s.onPassword(s.showPassword), s.onPassword(s.changePassword)},
		{"/settings/security/password/remove", passwordSection, nil, s.onPassword(s.removePassword)},
		{"/settings/security/authenticator", authenticatorSection, s.onApp(s.showApp), s.onApp(s.addAuthenticator)},
		{"/settings/security/authenticator/codes", authenticatorSection, nil, s.onApp(s.replaceCodes)},
		{"/settings/security/authenticator/remove", authenticatorSection, nil, s.removeAuthenticator},
	}
}

// workspaceRoutes are those of the pages of one workspace.
func (s *Settings) workspaceRoutes() []route {
	return []route{
		{"/settings/members", membersSection, s.showMembers, nil},
		{"/settings/members/member", membersSection, s.showMember, nil},
		{"/settings/members/invite", inviteSection, s.showInvite, nil},
		{"/settings/members/invite", membersSection, nil, s.changesMembers(s.invite)},
		{"/settings/members/renew", membersSection, nil, s.changesMembers(s.renewInvitation)},
		{"/settings/members/withdraw", membersSection, nil, s.changesMembers(s.withdrawInvitation)},
		{"/settings/members/permissions", membersSection, nil, s.changesMembers(s.setPermissions)},
		{"/settings/members/remove", membersSection, nil, s.changesMembers(s.removeMember)},
		{"/settings/members/second-factor", membersSection, nil, s.changesMembers(s.setSecondFactor)},
		{"/settings/members/leave", leaveSection, nil, s.leave},
		{"/settings/developers", developersSection, s.showTokens, nil},
		{"/settings/developers/new", developersSection, s.showNewToken, nil},
		{"/settings/developers/replace", developersSection, s.onToken(s.showTokenReplacement), nil},
		{"/settings/developers/tokens", developersSection, nil, s.createToken},
		{"/settings/developers/tokens/replace", developersSection, nil, s.onToken(s.replaceToken)},
		{"/settings/developers/tokens/revoke", developersSection, nil, s.onToken(s.revokeToken)},
		{"/settings/applications", applicationsSection, s.showApplications, nil},
		{"/settings/applications/new", applicationsSection, s.showNewApplication, nil},
		{"/settings/applications/secret", applicationsSection, s.onApplication(s.showSecretReplacement), nil},
		{"/settings/developers/apps", applicationsSection, nil, s.register},
		{"/settings/developers/apps/secret", applicationsSection, nil, s.onApplication(s.replaceSecret)},
		{"/settings/developers/apps/delete", applicationsSection, nil, s.onApplication(s.deleteApplication)},
		{"/settings/webhooks", webhooksSection, s.showWebhooks, nil},
		{"/settings/webhooks/new", webhooksSection, s.showNewWebhook, nil},
		{"/settings/developers/webhook", developersSection, s.showWebhook, nil},
		{"/settings/developers/webhooks", webhooksSection, nil, s.addWebhook},
		{"/settings/developers/webhooks/delete", webhooksSection, nil, s.deleteWebhook},
		{"/settings/developers/webhooks/disable", webhooksSection, nil, s.disableWebhook},
		{"/settings/developers/webhooks/enable", webhooksSection, nil, s.onWebhook(s.enableWebhook)},
		{"/settings/developers/webhooks/personal-data", webhooksSection, nil, s.onWebhook(s.changePersonalData)},
		{"/settings/developers/webhooks/secret", webhooksSection, nil, s.onWebhook(s.replaceWebhookSecret)},
		{"/settings/developers/webhooks/test", webhooksSection, nil, s.testWebhook},
		{"/settings/developers/webhooks/resend", webhooksSection, nil, s.resendWebhook},
		{"/settings/connectors", connectorsSection, s.showConnectors, nil},
		{"/settings/connectors/policy", connectorsSection, nil, s.setPolicy},
		{"/settings/connectors/disconnect", connectorsSection, nil, s.disconnect},
		{"/settings/connectors/llm", connectorsSection, nil, s.setLLM},
		{"/settings/connectors/log", logSection, s.showConnectionLog, nil},
		{"/settings/connectors/log.jsonl", logSection, s.connectionLog().export(jsonLines), nil},
		{"/settings/connectors/log.csv", logSection, s.connectionLog().export(commas), nil},
		{"/settings/audit", auditSection, s.showAuditLog, nil},
		{"/settings/audit.jsonl", auditSection, s.auditLog().export(jsonLines), nil},
		{"/settings/audit.csv", auditSection, s.auditLog().export(commas), nil},
	}
}

// offerPasskey makes a page offer a passkey, if the session's sign-in gets an offer. Pages that show a credential only
// once must not: the user would lose it by declining.
func (r *request) offerPasskey(frame *ui.Frame) error {
	offers, err := r.Sessions.OffersPasskey(r.w, r.http, r.user)
	if err == nil && offers {
		frame.PasskeyOffer, frame.DeviceName = r.newKey(r.user), r.device()
	}
	return err
}

// declinePasskey takes section: "Not now". It shows the section again.
func (s *Settings) declinePasskey(r *request) error {
	if err := s.Sessions.DeclinePasskey(r.w, r.http); err != nil {
		return err
	}
	ui.Redirect(r.w, r.shownSection().Path())
	return nil
}

// shownSection returns the section on whose page the form was. The form names it.
func (r *request) shownSection() ui.Section {
	if section, found := r.Pages.SectionNamed(r.form.Get("section")); found {
		return section
	}
	return userSection
}

// chooseWorkspace takes tenant and section. It stores the workspace and shows the section again.
func (s *Settings) chooseWorkspace(r *request) error {
	memberships, err := r.workspaces()
	if err != nil {
		return err
	}
	id, err := identity.Parse(r.form.Get("tenant"))
	own := func(m workspace.Membership) bool { return m.Workspace.ID == id }
	if err == nil && slices.ContainsFunc(memberships, own) {
		if err := s.Sessions.ChooseWorkspace(r.w, r.http, id); err != nil {
			return err
		}
	}
	section := r.shownSection()
	path := section.Path()
	if section.Needs != "" && err == nil {
		path += "?tenant=" + id.String()
	}
	ui.Redirect(r.w, path)
	return nil
}

// errAnswered is the error of a request whose response was already written.
var errAnswered = errors.New("answered")

// errorFrame returns the frame of an error page. It reads no store. It is empty for a user who is not signed in.
func (r *request) errorFrame() (frame ui.Frame) {
	if r.user.User.ID != uuid.Nil {
		r.section = ui.Section{Name: sectionAt(r.http)}
		r.fill(&frame)
	}
	return frame
}

// sectionAt returns the name of the section that a request is about.
func sectionAt(r *http.Request) string {
	below, found := strings.CutPrefix(r.URL.Path, "/settings/")
	if !found {
		return "error" // none is open
	}
	section, _, _ := strings.Cut(below, "/")
	return section
}

// Unavailable responds with 503 to a request whose session cannot be read. If the browser sent a session cookie, the
// page has the navigation of the settings, without the user's name and the links that need a permission.
func Unavailable(pages *ui.Pages, sessions *session.Sessions, w http.ResponseWriter, r *http.Request) {
	frame := ui.Frame{}
	if strings.HasPrefix(r.URL.Path, "/settings/") && sessions.Sent(r) {
		frame.Section = sectionAt(r)
	}
	pages.UnavailableIn(w, r, frame)
}

// NotFound serves the pages that do not exist. A signed-in user sees them with the navigation.
func (s *Settings) NotFound() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current, signedIn, err := s.Sessions.CurrentUser(r.Context())
		lost := &request{Settings: s, w: w, http: r, user: current}
		if err == nil && signedIn {
			_, err = lost.workspaces()
		}
		if err != nil {
			lost.finish(err)
			return
		}
		s.Pages.NotFoundIn(w, r, lost.errorFrame())
	})
}

// finish writes the response for other errors.
func (r *request) finish(err error) {
	if err == nil || errors.Is(err, errAnswered) {
		return
	}
	message := &ui.Message{Status: http.StatusForbidden}
	switch {
	case errors.Is(err, audit.ErrNotAuthorized):
		message.Heading = "You no longer have permission to do this"
		message.Text = "You were signed out, or lost a permission, while we processed your request. Nothing was " +
			"changed."
		message.Links = []ui.Link{{Href: userSection.Path(), Text: "Back to your settings"}}
	case errors.Is(err, session.ErrSecondFactor):
		message.Heading = "Use your second factor first"
		message.Text = "You signed in with your password alone. Nothing was changed."
		again := "/login/again?return=/settings/security"
		message.Links = []ui.Link{{Href: again, Text: "Confirm with your second factor"}}
	default:
		r.Log.ErrorContext(r.ctx(), "settings request failed", "error", err)
		switch {
		case !errors.Is(err, store.ErrUnavailable):
			r.Pages.InternalIn(r.w, r.http, r.errorFrame())
		case r.user.User.ID == uuid.Nil:
			Unavailable(r.Pages, r.Sessions, r.w, r.http)
		default:
			r.Pages.UnavailableIn(r.w, r.http, r.errorFrame())
		}
		return
	}
	message.Frame = r.errorFrame()
	r.Pages.ShowError(r.w, r.http, message)
}
