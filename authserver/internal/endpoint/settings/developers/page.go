// Package developers serves the settings pages with the personal access tokens, OAuth applications and webhooks of one
// workspace. The lists have a search (q) and pages of 25 (page).
//
//	GET  /settings/developers?tenant=&q=&page=    the tokens
//	GET  /settings/developers/new?tenant=         the form for a new token
//	POST /settings/developers/tokens              the tokens, with the new one's value only this time
//	GET  /settings/developers/replace?tenant=&id= the form for the replacement of a token
//	POST /settings/developers/tokens/replace
//	POST /settings/developers/tokens/revoke
//	GET  /settings/applications?tenant=&q=&page=
//	GET  /settings/applications/new?tenant=
//	POST /settings/developers/apps                the applications, with the new one's secret only this time
//	GET  /settings/applications/secret?tenant=&id=
//	POST /settings/developers/apps/secret
//	POST /settings/developers/apps/delete
//	GET  /settings/webhooks?tenant=
//	GET  /settings/webhooks/new?tenant=
//	POST /settings/developers/webhooks            the endpoints, with the new one's secret only this time
//	POST /settings/developers/webhooks/{delete,disable,enable,personal-data,secret,test,resend}
//	GET  /settings/developers/webhook?tenant=&id=  one endpoint with the log of its deliveries
//
// Creating a credential needs an authentication within the last 10 minutes. Users with a password enter it in the form;
// other users authenticate at /login/again.
package developers

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/publicnet"
	"github.com/almonerhq/almoner/shared/web"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "developers", Title: "Developers", Needs: perm.AccountAPIAccess}

// applications and hooks are pages of the section. Their links are on each of its pages.
var (
	applications = ui.Section{
		Name:   "applications",
		Title:  "OAuth applications",
		Needs:  perm.AccountAPIAccess,
		Parent: Section.Name,
	}
	hooks = ui.Section{
		Name:   "webhooks",
		Title:  "Webhooks",
		Needs:  perm.AccountAPIAccess,
		Parent: Section.Name,
	}
)

// Subsections returns the pages of the section that have no link in the navigation.
func Subsections() []ui.Section { return []ui.Section{applications, hooks} }

// Tokens stores personal access tokens.
type Tokens interface {
	settings.TokenRevoker
	Tokens(ctx context.Context, user, workspaceID uuid.UUID) ([]pat.Token, error)
	SaveToken(ctx context.Context, t pat.Token, hash []byte, event audit.Event) (bool, error)
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

// Store is the database of the page; postgres.Store implements it.
type Store interface {
	Tokens
	Clients
	Webhooks
	session.Auditor
	session.Users
	Authenticator(ctx context.Context, user uuid.UUID) (authenticator.Status, error)
}

// Grants propagates revocations; grant.Service implements it.
type Grants interface {
	PropagateRevocation(ctx context.Context, id uuid.UUID, ends time.Time, reason grant.Reason)
}

// Deps are the dependencies of a Handler.
type Deps struct {
	*settings.Settings
	Store     Store
	Grants    Grants
	Passwords *session.Passwords
	Attempts  *session.Attempts
	Proxies   web.Proxies
	BaseURL   string             // of the API, for the example
	AppURL    string             // of the consent page
	Resources []string           // resource identifiers that a connector may be registered for
	Network   *publicnet.Network // that webhook endpoints may be in
}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct {
	Deps
	verifier session.Verifier
}

// New returns a Handler.
func New(deps Deps) *Handler {
	return &Handler{deps, session.Verifier{
		Users:     deps.Store,
		Passwords: deps.Passwords,
		Attempts:  deps.Attempts,
		Auditor:   deps.Store,
	}}
}

// Routes returns the routes of the page and its forms.
func (h *Handler) Routes() settings.Routes {
	return settings.Routes{
		Section.Path():                     {"GET": h.page(Section, h.showTokens)},
		Section.Path() + "/new":            {"GET": h.page(Section, h.showNewToken)},
		Section.Path() + "/replace":        {"GET": h.page(Section, h.showTokenReplacement)},
		Section.Path() + "/tokens":         {"POST": h.createToken()},
		Section.Path() + "/tokens/replace": {"POST": h.replaceToken()},
		Section.Path() + "/tokens/revoke":  {"POST": h.revokeToken()},
		applications.Path():                {"GET": h.page(applications, h.showApps)},
		applications.Path() + "/new":       {"GET": h.page(applications, h.showNewApp)},
		applications.Path() + "/secret":    {"GET": h.page(applications, h.showSecretReplacement)},
		Section.Path() + "/apps":           {"POST": h.registerApp()},
		Section.Path() + "/apps/secret":    {"POST": h.replaceSecret()},
		Section.Path() + "/apps/delete":    {"POST": h.deleteApp()},

		hooks.Path():                               {"GET": h.page(hooks, h.showWebhooks)},
		hooks.Path() + "/new":                      {"GET": h.page(hooks, h.showNewWebhook)},
		Section.Path() + "/webhook":                {"GET": h.webhookPage()},
		Section.Path() + "/webhooks":               {"POST": h.addWebhook()},
		Section.Path() + "/webhooks/delete":        {"POST": h.deleteWebhook()},
		Section.Path() + "/webhooks/disable":       {"POST": h.disableWebhook()},
		Section.Path() + "/webhooks/enable":        {"POST": h.enableWebhook()},
		Section.Path() + "/webhooks/personal-data": {"POST": h.changePersonalData()},
		Section.Path() + "/webhooks/secret":        {"POST": h.replaceWebhookSecret()},
		Section.Path() + "/webhooks/test":          {"POST": h.testWebhook()},
		Section.Path() + "/webhooks/resend":        {"POST": h.resendWebhook()},
	}
}

// page serves GET of a page of one workspace.
func (h *Handler) page(section ui.Section, show func(*settings.Request, settings.Scope) error) http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), section)
		if err != nil {
			return err
		}
		return show(v, here)
	})
}

// form serves a POST from a page of one of the user's workspaces.
func (h *Handler) form(section ui.Section, serve func(*settings.Request, settings.Scope) error) http.Handler {
	return h.Form(section, func(v *settings.Request) error {
		here, err := h.At(v, v.Form.Get("tenant"), section)
		if err != nil {
			return err
		}
		return serve(v, here)
	})
}

// common returns what every page of the section has.
func (h *Handler) common(v *settings.Request, here settings.Scope, section ui.Section) (common, error) {
	method, err := h.reauthMethod(v)
	if err != nil {
		return common{}, err
	}
	frame, err := h.FrameIn(v, here, section)
	if err != nil {
		return common{}, err
	}
	return common{
		Frame:      frame,
		Key:        h.NewKey(v),
		Workspaces: here.Workspaces(),
		Workspace:  here.View(),
		BaseURL:    h.BaseURL,
		Held:       here.Permissions,
		Reauth:     method,
	}, nil
}
