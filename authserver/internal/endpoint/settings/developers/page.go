// Package developers serves the settings page with the personal access tokens, OAuth applications and webhooks of one
// workspace.
//
//	GET  /settings/developers?tenant=
//	POST /settings/developers/tokens          the page, with the token's value only this time
//	POST /settings/developers/tokens/replace
//	POST /settings/developers/tokens/revoke
//	POST /settings/developers/apps
//	POST /settings/developers/apps/secret
//	POST /settings/developers/apps/delete
//	POST /settings/developers/webhooks        the page, with the endpoint's secret only this time
//	POST /settings/developers/webhooks/{delete,disable,enable,test,resend}
//	GET  /settings/developers/webhook?tenant=&id=  one endpoint with the log of its deliveries
//
// Creating a credential needs an authentication within the last 10 minutes. Users with a password enter it in the form;
// other users authenticate at /login/again.
package developers

import (
	"context"
	"errors"
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
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/publicnet"
	"github.com/almonerhq/almoner/shared/web"
)

// Section is the page's link in the navigation.
var Section = ui.Section{Name: "developers", Title: "Developers", Needs: perm.AccountAPIAccess}

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
		Section.Path():                     {"GET": h.page()},
		Section.Path() + "/tokens":         {"POST": h.createToken()},
		Section.Path() + "/tokens/replace": {"POST": h.replaceToken()},
		Section.Path() + "/tokens/revoke":  {"POST": h.revokeToken()},
		Section.Path() + "/apps":           {"POST": h.registerApp()},
		Section.Path() + "/apps/secret":    {"POST": h.replaceSecret()},
		Section.Path() + "/apps/delete":    {"POST": h.deleteApp()},

		Section.Path() + "/webhook":          {"GET": h.webhookPage()},
		Section.Path() + "/webhooks":         {"POST": h.addWebhook()},
		Section.Path() + "/webhooks/delete":  {"POST": h.deleteWebhook()},
		Section.Path() + "/webhooks/disable": {"POST": h.disableWebhook()},
		Section.Path() + "/webhooks/enable":  {"POST": h.enableWebhook()},
		Section.Path() + "/webhooks/test":    {"POST": h.testWebhook()},
		Section.Path() + "/webhooks/resend":  {"POST": h.resendWebhook()},
	}
}

// page serves GET /settings/developers.
func (h *Handler) page() http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), Section)
		if err != nil {
			return err
		}
		return h.show(v, here, http.StatusOK, func(*view) {})
	})
}

// developer serves a POST that concerns one of the user's workspaces.
func (h *Handler) developer(serve func(*settings.Request, settings.Scope) error) http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		here, err := h.At(v, v.Form.Get("tenant"), Section)
		if err != nil {
			return err
		}
		return serve(v, here)
	})
}

// show shows the current page, changed by adjust.
func (h *Handler) show(v *settings.Request, here settings.Scope, status int, adjust func(*view)) error {
	tokens, err := h.Store.Tokens(v.R.Context(), v.Current.User.ID, here.Workspace.ID)
	if err != nil {
		return err
	}
	clients, err := h.Store.Clients(v.R.Context(), here.Workspace.ID)
	if err != nil {
		return err
	}
	endpoints, err := h.Store.Webhooks(v.R.Context(), here.Workspace.ID)
	if err != nil {
		return err
	}
	method, err := h.reauthMethod(v)
	if err != nil {
		return err
	}
	frame, err := h.FrameIn(v, here, Section)
	if err != nil {
		return err
	}
	view := &view{
		Frame:      frame,
		Key:        h.NewKey(v),
		Workspaces: here.Workspaces(),
		Workspace:  here.View(),
		BaseURL:    h.BaseURL,
		Held:       here.Permissions,
		Reauth:     method,
		Resources:  h.Resources,
		NewToken: tokenForm{
			Days:     30,
			Lifetime: pat.Lifetimes(),
		},
		NewApp:     appForm{Kind: string(client.Confidential), Resource: h.BaseURL + "/mcp"}, // which assistants use
		NewWebhook: webhookForm{Groups: eventGroups(here.Permissions, nil)},
	}
	h.listTokens(view, tokens)
	for _, c := range clients {
		view.Apps = append(view.Apps, appView(c))
	}
	for _, e := range endpoints {
		view.Webhooks = append(view.Webhooks, endpointView(e))
	}
	adjust(view)
	h.Pages.Show(v.W, v.R, status, view)
	return nil
}

func (h *Handler) listTokens(view *view, tokens []pat.Token) {
	named := map[string]pat.Token{}
	for _, t := range tokens {
		named[t.ID.String()] = t
	}
	for _, t := range tokens {
		row := ui.Token{
			ID:          t.ID.String(),
			Name:        t.Name,
			Permissions: t.Permissions,
			Created:     t.Created,
			Expires:     t.Expires,
			LastUsed:    t.LastUsed,
		}
		if t.Active(h.Now()) {
			row.TakesOver = takesOver(t, named, h.Now())
			view.Tokens = append(view.Tokens, row)
			continue
		}
		row.Ended = endedToken(t)
		view.EndedToken = append(view.EndedToken, row)
	}
}

func takesOver(t pat.Token, named map[string]pat.Token, now time.Time) string {
	if t.ReplacesID == nil {
		return ""
	}
	former, listed := named[t.ReplacesID.String()]
	if !listed || !former.Active(now) {
		return ""
	}
	return "The token created on " + former.Created.UTC().Format("2 January 2006") +
		" stops working when this one is first used."
}

func endedToken(t pat.Token) string {
	switch {
	case t.Reason == pat.Replaced:
		return "Replaced on " + t.RevokedAt.UTC().Format("2 January 2006")
	case t.Reason == string(grant.MembershipOver):
		return "Ended with your membership on " + t.RevokedAt.UTC().Format("2 January 2006")
	case t.RevokedAt != nil:
		return "Revoked on " + t.RevokedAt.UTC().Format("2 January 2006")
	}
	return "Expired on " + t.Expires.UTC().Format("2 January 2006")
}

// reauthMethod returns how the user must authenticate before a credential is created.
func (h *Handler) reauthMethod(v *settings.Request) (reauthMethod, error) {
	if v.Current.Fresh(h.Now()) {
		return noReauth, nil
	}
	_, hash, _, err := h.Store.UserByEmail(v.R.Context(), v.Current.User.Email)
	if err != nil {
		return noReauth, err
	}
	app, err := h.Store.Authenticator(v.R.Context(), v.Current.User.ID)
	if err != nil {
		return noReauth, err
	}
	if hash == "" || app.Active {
		return onOtherPage, nil
	}
	return byPassword, nil
}

// showRefusal shows the page with the form that was refused open and filled in, so that a user who mistyped a password
// loses nothing else.
func (h *Handler) showRefusal(v *settings.Request, here settings.Scope, id uuid.UUID, status int, note string) error {
	return h.show(v, here, status, func(page *view) {
		page.Refused = refusedReplacement{ID: id.String(), Note: note, ExpireOld: v.Form.Get("expire_old") == "yes"}
		page.Problem, page.ProblemAt = "Nothing was created. "+note, passwordField(page.Refused.ID)
	})
}

// reauthenticate authenticates the user by password, unless a recent authentication exists. It returns the message for
// the password field, or "".
func (h *Handler) reauthenticate(v *settings.Request) (status int, note string, err error) {
	method, err := h.reauthMethod(v)
	switch {
	case err != nil:
		return 0, "", err
	case method == noReauth:
		return http.StatusOK, "", nil
	case method == onOtherPage:
		return http.StatusBadRequest, "Confirm your identity first.", nil
	}
	password := credential.Secret(v.Form.Get("password"))
	if password == "" {
		return http.StatusBadRequest, "Enter your password to continue.", nil
	}
	_, result, err := h.verifier.Verify(
		v.R.Context(),
		v.Current.User.Email,
		password,
		h.Proxies.ClientAddress(v.R),
		true,
	)
	switch {
	case errors.Is(err, session.ErrBusy):
		web.SetRetryAfter(v.W.Header(), session.BusyFor)
		return http.StatusTooManyRequests, "Too many people are signing in right now. Please try again in a few " +
			"seconds.", nil
	case err != nil:
		return 0, "", err
	case result.Wait > 0:
		web.SetRateLimited(v.W.Header(), result.Wait, result.Limit)
		return http.StatusTooManyRequests, "Too many wrong passwords. Please try again later.", nil
	case !result.OK:
		return http.StatusBadRequest, "The password is incorrect.", nil
	}
	event := v.Current.Event(v.R.Context(), audit.SignInProved, "sign_in:"+v.Current.SignInID.String())
	event.Detail = map[string]any{"method": session.Password, "address": h.Proxies.ClientAddress(v.R).String()}
	err = h.Sessions.Reauthenticated(v.W, v.R, v.Current, result.Proof, event)
	if errors.Is(err, session.ErrProofInvalid) {
		return http.StatusBadRequest, "The password is incorrect.", nil
	}
	if errors.Is(err, session.ErrCodeNeeded) { // an app was set up meanwhile
		return http.StatusBadRequest, "Confirm your identity first.", nil
	}
	if err == nil {
		v.Current.AuthenticatedAt = h.Now()
	}
	return http.StatusOK, "", err
}
