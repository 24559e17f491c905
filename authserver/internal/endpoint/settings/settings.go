// Package settings serves the pages of the settings, and GET / and GET /settings as a 303 to /settings/user. Routes is
// the table of the pages and their forms. What they have in common is in request.go: the session, the key of the forms,
// the frame, refusals and notices; and in access.go: the workspace and its permission, the recent authentication, and
// the error pages.
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
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// The sections and some of their pages.
var (
	userSection          = ui.Section{Name: "user", Title: "Profile"}
	emailSection         = ui.Section{Name: "user/email", Title: "Change your e-mail address"}
	deletionSection      = ui.Section{Name: "user/delete", Title: "Delete your account"}
	membersSection       = ui.Section{Name: "members", Title: "Members", Needs: perm.AccountReadMembers}
	leaveSection         = ui.Section{Name: "members"} // every member may leave
	developersSection    = ui.Section{Name: "developers", Title: "Developers", Needs: perm.AccountAPIAccess}
	connectorsSection    = ui.Section{Name: "connectors", Title: "Assistants", Needs: perm.AccountAPIAccess}
	assistantsSection    = ui.Section{Name: "connect", Title: "Connect an assistant"}
	appsSection          = ui.Section{Name: "apps", Title: "Connected apps"}
	securitySection      = ui.Section{Name: "security", Title: "Security"}
	welcomeSection       = ui.Section{Name: "welcome", Title: "Welcome"}
	signInsSection       = ui.Section{Name: "security/sessions", Title: "Where you are signed in"}
	eventsSection        = ui.Section{Name: "security/events", Title: "Your events"}
	ownTokensSection     = ui.Section{Name: "security/tokens", Title: "Your personal access tokens"}
	passwordSection      = ui.Section{Name: "security/password", Title: "Password"}
	authenticatorSection = ui.Section{Name: "security/authenticator", Title: "Authenticator app"}
	auditSection         = ui.Section{Name: "audit", Title: "Audit log", Needs: perm.AccountAPIAccess}
)

// Pages whose links are on other pages of the section.
var (
	inviteSection       = sectionOf(membersSection, "members/invite", "Invite people", perm.AccountWriteMembers)
	applicationsSection = sectionOf(developersSection, "applications", "OAuth applications", perm.AccountAPIAccess)
	webhooksSection     = sectionOf(developersSection, "webhooks", "Webhooks", perm.AccountAPIAccess)
	logSection          = sectionOf(connectorsSection, "connectors/log", "Connection log", perm.AccountAPIAccess)
	usageSection        = sectionOf(connectorsSection, "connectors/usage", "Usage", perm.AccountAPIAccess)
)

func sectionOf(parent ui.Section, name, title string, needs perm.Permission) ui.Section {
	return ui.Section{Name: name, Title: title, Needs: needs, Parent: parent.Name}
}

// Sections returns the sections, in the order of the navigation, which has the user's own pages before those of a
// workspace, and their pages that have no link there.
func Sections() []ui.Section {
	return []ui.Section{
		userSection, securitySection, appsSection, assistantsSection, membersSection, connectorsSection,
		developersSection, auditSection, inviteSection, applicationsSection, webhooksSection, logSection,
		usageSection,
	}
}

// Deps are the dependencies of Settings.
type Deps struct {
	Store     Store
	Clients   *client.Registry
	Members   *membership.Service
	Accounts  *useraccount.Service
	Grants    *grant.Service
	Connected *consent.Connections
	Rehearsed *rehearsal.Rehearsals
	Tokens    pat.Tokens
	Usage     usage.Reader
	Overviews usage.Overviews
	Offers    *membership.AccessOffers
	Sessions  *session.Sessions
	Passwords *session.Passwords
	Pages     *ui.Pages
	Keys      seal.Keys
	Proxies   web.Proxies
	LogReads  audit.Reads
	Network   *publicnet.Network // that webhook endpoints may be in
	BaseURL   string             // of the API
	AppURL    string             // of the consent page
	Host      string             // of the pages: authenticator apps show it
	Issuer    string             // of the deployment's OpenID Connect provider, or ""
	Resources []string           // resource identifiers that a connector may be registered for
	Passkeys  bool               // the deployment offers passkeys
	Now       func() time.Time
	Random    io.Reader
	Log       *slog.Logger
}

// Settings serves the pages. It is safe for concurrent use.
type Settings struct {
	Deps
	box    *seal.Box                     // of the forms' keys
	setups *seal.Box                     // of new authenticator apps
	codes  *seal.Box                     // of new recovery codes
	turns  *inflight.Requests[uuid.UUID] // searches and exports of logs by a user
}

// New returns Settings. It derives the keys of the forms, new authenticator apps and recovery codes from the master
// keys.
func New(deps Deps) (*Settings, error) {
	box, err := seal.NewBox(deps.Keys, "settings form")
	if err != nil {
		return nil, err
	}
	setups, err := seal.NewBox(deps.Keys, "authenticator setup")
	if err != nil {
		return nil, err
	}
	codes, err := seal.NewBox(deps.Keys, "recovery codes")
	if err != nil {
		return nil, err
	}
	return &Settings{deps, box, setups, codes, newTurns()}, nil
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
			routes[one.path]["GET"] = s.handle(one.section, one.show)
		}
		if one.act != nil {
			routes[one.path]["POST"] = s.handle(one.section, one.act)
		}
	}
	return routes
}

// userRoutes are those of the user's own pages.
func (s *Settings) userRoutes() []route {
	deletion, password, app := (*request).deletion, (*request).password, (*request).authenticator
	connection, token := (*request).ownConnection, (*request).ownToken
	return []route{
		{"/settings/passkey-offer", userSection, nil, s.declinePasskey},
		{"/settings/welcome", welcomeSection, s.showWelcome, nil},
		{"/settings/user", userSection, s.showUser, nil},
		{"/settings/user/name", userSection, nil, s.setName},
		{"/settings/user/mails", userSection, nil, s.setMailLanguage},
		{"/settings/user/email", emailSection, s.showEmail, s.changeEmail},
		{"/settings/user/delete", deletionSection, with(deletion, s.showDeletion), with(deletion, s.deleteAccount)},
		{"/settings/connect", assistantsSection, s.showAssistants, nil},
		{"/settings/connect/new", assistantsSection, s.serveNewConnection, nil},
		{"/settings/apps", appsSection, s.showApps, nil},
		{"/settings/apps/app", appsSection, with(connection, s.showConnection), with(connection, s.narrowConnection)},
		{"/settings/apps/disconnect", appsSection, nil, s.disconnectApp},
		{"/settings/apps/disconnect-all", appsSection, nil, s.disconnectAll},
		{"/settings/security", securitySection, s.showSecurity, nil},
		{"/settings/security/mails", securitySection, nil, s.chooseMails},
		{"/settings/security/sessions", signInsSection, s.showSignIns, nil},
		{"/settings/security/events", eventsSection, s.showEvents, nil},
		{"/settings/security/tokens", ownTokensSection, s.showOwnTokens, nil},
		{"/settings/security/tokens/revoke", ownTokensSection, nil, with((*request).anyToken, s.revokeToken)},
		{"/settings/tokens/token", ownTokensSection, with(token, s.showToken), nil},
		{"/settings/security/sign-out", securitySection, nil, s.signOut},
		{"/settings/security/sign-out-others", securitySection, nil, s.signOutOthers},
		{"/settings/security/password", passwordSection, with(password, s.showPassword), nil},
		{"/settings/security/password", passwordSection, nil, with(password, s.changePassword)},
		{"/settings/security/password/remove", passwordSection, nil, with(password, s.removePassword)},
		{"/settings/security/authenticator", authenticatorSection, with(app, s.showApp), with(app, s.addAuthenticator)},
		{"/settings/security/authenticator/codes", authenticatorSection, nil, with(app, s.replaceCodes)},
		{"/settings/security/authenticator/codes.txt", authenticatorSection, nil, s.downloadCodes},
		{"/settings/security/authenticator/remove", authenticatorSection, nil, s.removeAuthenticator},
	}
}

// workspaceRoutes are those of the pages of one workspace.
func (s *Settings) workspaceRoutes() []route {
	token, application, endpoint := (*request).token, (*request).application, (*request).endpoint
	connection, theirs := (*request).memberConnection, (*request).memberToken
	return []route{
		{"/settings/members", membersSection, s.showMembers, nil},
		{"/settings/members/member", membersSection, s.showMember, nil},
		{"/settings/members/invite", inviteSection, s.showInvite, nil},
		{"/settings/members/invite", membersSection, nil, s.changesMembers(s.invite)},
		{"/settings/members/requests", membersSection, nil, s.changesMembers(s.answerRequest)},
		{"/settings/members/renew", membersSection, nil, s.changesMembers(s.renewInvitation)},
		{"/settings/members/withdraw", membersSection, nil, s.changesMembers(s.withdrawInvitation)},
		{"/settings/members/permissions", membersSection, nil, s.changesMembers(s.setPermissions)},
		{"/settings/members/remove", membersSection, nil, s.changesMembers(s.removeMember)},
		{"/settings/members/second-factor", membersSection, nil, s.changesMembers(s.setSecondFactor)},
		{"/settings/members/leave", leaveSection, nil, s.leave},
		{"/settings/developers", developersSection, s.showTokens, nil},
		{"/settings/developers/new", developersSection, s.showNewToken, nil},
		{"/settings/developers/replace", developersSection, with(token, s.showTokenReplacement), nil},
		{"/settings/developers/tokens", developersSection, nil, s.createToken},
		{"/settings/developers/tokens/replace", developersSection, nil, with(token, s.replaceToken)},
		{"/settings/developers/tokens/revoke", developersSection, nil, with(token, s.revokeToken)},
		{"/settings/applications", applicationsSection, s.showApplications, nil},
		{"/settings/applications/new", applicationsSection, s.showNewApplication, nil},
		{"/settings/applications/secret", applicationsSection, with(application, s.showSecretReplacement), nil},
		{"/settings/applications/delete", applicationsSection, with(application, s.showAppDeletion), nil},
		{"/settings/developers/apps", applicationsSection, nil, s.register},
		{"/settings/developers/apps/secret", applicationsSection, nil, with(application, s.replaceSecret)},
		{"/settings/developers/apps/delete", applicationsSection, nil, with(application, s.deleteApplication)},
		{"/settings/webhooks", webhooksSection, s.showWebhooks, nil},
		{"/settings/webhooks/new", webhooksSection, s.showNewWebhook, nil},
		{"/settings/webhooks/events", webhooksSection, with(endpoint, s.showWebhookTypes), nil},
		{"/settings/webhooks/delivery", webhooksSection, with(endpoint, s.showDelivery), nil},
		{"/settings/developers/webhook", developersSection, s.showWebhook, nil},
		{"/settings/developers/webhooks", webhooksSection, nil, s.addWebhook},
		{"/settings/developers/webhooks/delete", webhooksSection, nil, s.deleteWebhook},
		{"/settings/developers/webhooks/disable", webhooksSection, nil, s.disableWebhook},
		{"/settings/developers/webhooks/enable", webhooksSection, nil, with(endpoint, s.enableWebhook)},
		{"/settings/developers/webhooks/events", webhooksSection, nil, with(endpoint, s.changeWebhookTypes)},
		{"/settings/developers/webhooks/personal-data", webhooksSection, nil, with(endpoint, s.changePersonalData)},
		{"/settings/developers/webhooks/secret", webhooksSection, nil, with(endpoint, s.replaceWebhookSecret)},
		{"/settings/developers/webhooks/test", webhooksSection, nil, s.testWebhook},
		{"/settings/developers/webhooks/resend", webhooksSection, nil, s.resendWebhook},
		{"/settings/connectors", connectorsSection, s.showConnectors, nil},
		{"/settings/connectors/policy", connectorsSection, nil, s.setPolicy},
		{"/settings/connectors/disconnect", connectorsSection, nil, s.disconnect},
		{"/settings/connectors/llm", connectorsSection, nil, s.setLLM},
		{"/settings/connectors/connection", connectorsSection, with(connection, s.showConnection), nil},
		{"/settings/connectors/connection", connectorsSection, nil, with(connection, s.narrowConnection)},
		{"/settings/connectors/token", connectorsSection, with(theirs, s.showToken), with(theirs, s.revokeMemberToken)},
		{"/settings/connectors/usage", usageSection, s.showOverview, s.endIdle},
		{"/settings/connectors/log", logSection, s.showConnectionLog, nil},
		{"/settings/connectors/log.jsonl", logSection, s.connectionLog().export(jsonLines), nil},
		{"/settings/connectors/log.csv", logSection, s.connectionLog().export(commas), nil},
		{"/settings/audit", auditSection, s.showAuditLog, nil},
		{"/settings/audit.jsonl", auditSection, s.auditLog().export(jsonLines), nil},
		{"/settings/audit.csv", auditSection, s.auditLog().export(commas), nil},
	}
}

// offerPasskey makes a page offer a passkey, if the session's sign-in gets an offer. Pages that show a credential only
// once must not: the user would lose it by declining. Like read, it keeps the first error for show.
func (r *request) offerPasskey(frame *ui.Frame) {
	if r.failed != nil {
		return
	}
	var offers bool
	if offers, r.failed = r.Sessions.OffersPasskey(r.w, r.http, r.user); offers {
		frame.PasskeyOffer, frame.DeviceName = r.newKey(r.user), r.device()
	}
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
	for _, section := range Sections() {
		if section.Name == r.form.Get("section") {
			return section
		}
	}
	return userSection
}

// A Store is the database of the pages. A change with an event records the event, and returns audit.ErrNotAuthorized if
// what authorized it has ended.
type Store struct {
	Users
	Workspaces
	SignIns
	Grants
	Applications
	Logs
}

// Users stores what belongs to a user.
type Users interface {
	UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error)
	SetName(ctx context.Context, id uuid.UUID, name string, event audit.Event) error
	Memberships(ctx context.Context, user uuid.UUID) ([]workspace.Membership, error)
	// Modules reads which modules the workspaces of a user can use.
	Modules(ctx context.Context, user uuid.UUID) (map[uuid.UUID]map[string]workspace.ModuleState, error)
	// MailRecipient reads the address and the language of the mails to a user.
	MailRecipient(ctx context.Context, user uuid.UUID) (mail.Recipient, error)
	SetMailLanguage(ctx context.Context, user uuid.UUID, language string, event audit.Event) error
	UnwantedMails(ctx context.Context, user uuid.UUID) ([]mail.Kind, error)
	SetUnwantedMails(ctx context.Context, user uuid.UUID, unwanted []mail.Kind, event audit.Event) error
}

// Workspaces stores what a workspace has, demands and allows.
type Workspaces interface {
	// StillAllowed returns audit.ErrNotAuthorized if the authorization has ended.
	StillAllowed(ctx context.Context, a *audit.Authorization) error
	ListedMembers(ctx context.Context, in uuid.UUID, page membership.MemberPage) ([]membership.ListedMember, error)
	WorkspaceMembers(ctx context.Context, workspaceID uuid.UUID, users []uuid.UUID) ([]membership.Member, error)
	WorkspaceMember(ctx context.Context, workspaceID, user uuid.UUID) (membership.Member, error)
	Invitations(ctx context.Context, workspaceID uuid.UUID) ([]membership.Invitation, error)
	// WithdrawnInvitations lists the addresses of the invitations of a user that were withdrawn between two times.
	WithdrawnInvitations(ctx context.Context, in, inviter uuid.UUID, from, to time.Time) ([]string, error)
	// RequireSecondFactor returns session.ErrSecondFactor if a user without one switches it on.
	RequireSecondFactor(ctx context.Context, workspaceID uuid.UUID, required bool, event audit.Event) error
	AccessRequests(ctx context.Context, workspaceID uuid.UUID) ([]membership.SentRequest, error)
	// AccessRequest returns membership.ErrAnswered if the user has no open request.
	AccessRequest(ctx context.Context, workspaceID, user uuid.UUID) (membership.SentRequest, error)
}

// SignIns stores sign-ins, and the ways to sign in.
type SignIns interface {
	Factors
	SignInsOf(ctx context.Context, user uuid.UUID) ([]session.SignIn, error)
	EndSignIn(ctx context.Context, user, id uuid.UUID, event audit.Event) error
	EndOtherSignIns(ctx context.Context, user, but uuid.UUID, event audit.Event) (int64, error)
	ChangePassword(ctx context.Context, c password.Change, event audit.Event) error
	RemovePassword(ctx context.Context, r password.Removal, event audit.Event) error
}

// Factors stores passkeys, linked accounts and authenticator apps.
type Factors interface {
	// HasPasskey reports whether the user has a passkey that is not stopped.
	HasPasskey(ctx context.Context, user uuid.UUID) (bool, error)
	// IdentitySince returns when the user's account of an issuer was linked, and false if none is.
	IdentitySince(ctx context.Context, user uuid.UUID, issuer string) (time.Time, bool, error)
	Authenticator(ctx context.Context, user uuid.UUID) (authenticator.Status, error)
	AddAuthenticator(
		ctx context.Context, user uuid.UUID, secret authenticator.Secret, step int64, recovery [][]byte,
		event audit.Event,
	) error
	ReplaceRecoveryCodes(ctx context.Context, user uuid.UUID, hashes [][]byte, event audit.Event) (bool, error)
	RemoveAuthenticator(ctx context.Context, user uuid.UUID, event audit.Event) (bool, error)
}

// Grants stores personal access tokens, and the grants of connectors.
type Grants interface {
	Connections
	Tokens(ctx context.Context, user, workspaceID uuid.UUID) ([]pat.Token, error)
	ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error)
	SaveToken(ctx context.Context, t pat.Token, hash []byte, event audit.Event) (bool, error)
}

// Connections stores the grants of connectors, and the policies that limit them, which are read with the membership
// (workspace.Workspace).
type Connections interface {
	ConnectedApps(ctx context.Context, user uuid.UUID) ([]consent.Connection, error)
	Connections(ctx context.Context, in uuid.UUID, filter consent.ConnectionFilter) ([]consent.Connection, error)
	LiveConnections(ctx context.Context, workspaceID uuid.UUID) (consent.ConnectionCount, error)
	// Networks lists the networks from which a connection or a personal access token was used.
	Networks(ctx context.Context, workspaceID, credential uuid.UUID) ([]usage.Network, error)
}

// Applications stores OAuth clients and webhook endpoints. The errors are client.ErrUnknown, those of package webhook,
// audit.ErrNotAuthorized, or wrap store.ErrUnavailable.
type Applications interface {
	WebhookChanges
	Client(ctx context.Context, id uuid.UUID) (client.Client, error)
	Clients(ctx context.Context, workspaceID uuid.UUID) ([]client.Client, error)
	Webhooks(ctx context.Context, workspaceID uuid.UUID) ([]webhook.Endpoint, error)
	Webhook(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Endpoint, error)
	WebhookDeliveries(ctx context.Context, workspaceID, endpoint uuid.UUID, limit int) ([]webhook.Delivery, error)
	WebhookDelivery(
		ctx context.Context, workspaceID, endpoint, id uuid.UUID,
	) (webhook.Delivery, *webhook.Event, error)
	WebhookKey(ctx context.Context) ([]byte, error)
	TestWebhook(ctx context.Context, workspaceID, id, delivery uuid.UUID, allowed *audit.Authorization) error
	ResendWebhook(
		ctx context.Context, workspaceID, id, former, delivery uuid.UUID, allowed *audit.Authorization,
		need func(eventType string) error,
	) error
}

// WebhookChanges changes webhook endpoints.
type WebhookChanges interface {
	AddWebhook(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed, event audit.Event) error
	DeleteWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error
	EnableWebhook(ctx context.Context, workspaceID, id, user uuid.UUID, event audit.Event) error
	SetWebhookTypes(ctx context.Context, e webhook.Endpoint, user uuid.UUID, event audit.Event) error
	DisableWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error
	SetWebhookPersonalData(ctx context.Context, workspaceID, id, user uuid.UUID, include bool, event audit.Event) error
	ReplaceWebhookSecret(ctx context.Context, in, id, makes uuid.UUID, secret webhook.Sealed, event audit.Event) error
}

// Logs stores audit events, and reads what happened in a workspace and to a user.
type Logs interface {
	Record(ctx context.Context, e audit.Event) error
	EventsOfUser(ctx context.Context, user uuid.UUID, from audit.Cursor, limit int) ([]audit.Entry, error)
	EventsOfWorkspace(
		ctx context.Context, workspaceID uuid.UUID, search audit.Search, from audit.Cursor, limit int,
	) ([]audit.Entry, error)
	SearchConnections(
		ctx context.Context, workspaceID uuid.UUID, search audit.Search, from audit.Cursor, limit int,
	) ([]connectionlog.Found, error)
}
