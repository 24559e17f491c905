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
	"strings"
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
)

// Members reads memberships. false means that the user is not a member.
type Members interface {
	Membership(ctx context.Context, user, workspaceID uuid.UUID) (workspace.Membership, bool, error)
	Memberships(ctx context.Context, user uuid.UUID) ([]workspace.Membership, error)
	// InterruptedGrant returns the permissions that the user gave to the client in the workspace, if their last grant
	// was ended because a used code or token was presented, and otherwise nil.
	InterruptedGrant(ctx context.Context, user, clientID, workspaceID uuid.UUID) (perm.Set, error)
}

// A Handler serves the consent page. The fields are what it needs. It is safe for concurrent use.
type Handler struct {
	Requests *engine.Engine
	Grants   *grant.Service
	Members  Members
	Visitors *session.Sessions
	Attempts *connectionlog.Recorder
	Tickets  *consent.Tickets
	Offers   *membership.AccessOffers
	Pages    *ui.Pages
	Issuer   string // the issuer of this server, without a trailing slash (RFC 9207)
	Log      *slog.Logger
	Now      func() time.Time
}

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

const startAgain = "Go back to the application and start again."

func badRequest(why string) *ui.Message {
	return &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This request is not valid",
		Text:    why,
		Next: "Go back to the application and try again. If it happens again, contact the developer of the " +
			"application.",
	}
}

func silentDomain() *ui.Message {
	return &ui.Message{
		Status:  http.StatusServiceUnavailable,
		Heading: "We cannot check this application at the moment",
		Text: "The website that describes this application does not respond. Nothing was approved, and nothing " +
			"was sent to the application.",
		Next: "Please try again in a minute. If it happens again, contact the developer of the application.",
	}
}

// forbidden returns a page for a user who cannot give the client access.
func forbidden(v *visit) *ui.Message {
	return &ui.Message{Frame: ui.Frame{Person: v.person()}, Status: http.StatusForbidden, Switch: v.switchTo()}
}

// noWorkspace returns the page for a client that belongs to no workspace, if the user has no workspace to choose.
func noWorkspace(v *visit, closed []workspace.Membership) *ui.Message {
	c, m := v.client, forbidden(v)
	if len(closed) == 0 {
		m.Heading = "You are not a member of any workspace"
		m.Text = nameOf(c) + " needs access to a workspace, and you are not a member of one."
		m.Next = "If you have another account, sign in with it. Otherwise, ask a workspace administrator to add you."
		return m
	}
	m.Heading = "Connectors are switched off in your workspaces"
	m.Text = nameOf(c) + " is a connector, and none of your workspaces allows connectors: " +
		names(closed) + "."
	m.Next = "An administrator of a workspace can switch on its LLM integration. Then connect " + c.Name + " again."
	return m
}

func names(memberships []workspace.Membership) string {
	out := make([]string, len(memberships))
	for i, m := range memberships {
		out[i] = m.Workspace.Name
	}
	return strings.Join(out, ", ")
}

func notMember(v *visit) *ui.Message {
	c, m := v.client, forbidden(v)
	m.Heading = "You are not a member of this workspace"
	m.Text = c.Name + " belongs to a workspace that you are not a member of, so you cannot give it access."
	if c.Address != "" {
		m.Text = "You are not a member of the chosen workspace, so you cannot give " + c.Name + " access to it."
	}
	m.Next = "If you have another account, sign in with it. Otherwise, ask an administrator of the workspace to add " +
		"you."
	return m
}

// cannotGive returns the page that explains why a member cannot give a client what it requests. err is an error of
// consent.Evaluate.
func cannotGive(v *visit, err error, in workspace.Workspace) *ui.Message {
	c, m := v.client, forbidden(v)
	lack, lacking := errors.AsType[*consent.MissingPermissionsError](err)
	if !lacking {
		m.Heading = "Connectors are switched off in " + in.Name
		m.Text = c.Name + " is a connector, and this workspace does not allow connectors."
		m.Next = "An administrator of " + in.Name + " can switch on the LLM integration. Then connect " + c.Name +
			" again."
		return m
	}
	m.Heading = "You cannot give " + c.Name + " the access that it needs"
	m.Text = "It asks for permissions that you do not have in " + in.Name + ":"
	m.List = lack.Missing
	m.Next = "An administrator of " + in.Name + " can give them to you. Then connect " + c.Name + " again."
	return m
}

// The pages below refuse a submitted form. If the request is known, they link to it.

func signedOut(request string) *ui.Message {
	return reopening(request, &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "You are signed out",
		Text:    "You were signed out while this page was open. Nothing was approved.",
	})
}

func notYourPage(v *visit) *ui.Message {
	return reopening(v.request, &ui.Message{
		Frame:   ui.Frame{Person: v.person()},
		Status:  http.StatusForbidden,
		Heading: "This page belongs to another session",
		Text:    "You may have signed in again, or with another account, after you opened it. Nothing was approved.",
	})
}

func tooLate(request string) *ui.Message {
	return reopening(request, &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This page has expired",
		Text:    "A consent page is valid for one hour. Nothing was approved.",
	})
}

func reopening(request string, m *ui.Message) *ui.Message {
	if request == "" {
		m.Next = startAgain
		return m
	}
	m.Next = "You can open the request again. If the application no longer waits for it, start again there."
	m.Links = []ui.Link{{Href: request, Text: "Open the request again"}}
	return m
}

func badForm() *ui.Message {
	return &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "The form is not valid",
		Text:    "The form must contain exactly one decision. Nothing was approved.",
		Next:    startAgain,
	}
}

func clientGone() *ui.Message {
	return &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This application is no longer registered",
		Text: "It was deleted, or its redirect URI was changed, while this page was open. Nothing was approved, " +
			"and nothing was sent to it.",
	}
}

func usedAlready() *ui.Message {
	return &ui.Message{
		Status:  http.StatusConflict,
		Heading: "You have already answered this request",
		Text:    "Your earlier decision still applies. Nothing was changed.",
		Next:    "To end the access, disconnect the application. To give access again, start in the application.",
		Links:   []ui.Link{{Href: "/settings/apps", Text: "Connected apps"}},
	}
}

// notAllowed returns the page that explains what the workspace's connector policy refuses and who can change it. err is
// an error of consent.ApplyPolicy, or grant.ErrPolicy.
func notAllowed(v *visit, err error, membership workspace.Membership) *ui.Message {
	c, in, m := v.client, membership.Workspace, forbidden(v)
	m.Heading = "The connector policy of " + in.Name + " does not allow this"
	m.Text = c.Name + " asks for permissions that " + in.Name + " does not allow for connectors. Nothing was approved."
	m.Next = "People who can manage API access in " + in.Name + " can change the policy in Settings, under " +
		"Connectors. Then connect " + c.Name + " again."
	if errors.Is(err, consent.ErrPlatformNotAllowed) {
		m.Text = platformWords(c) + " Nothing was approved."
	}
	if membership.Permissions.Has(perm.AccountAPIAccess) {
		m.Next = "You can change the policy yourself. Then connect " + c.Name + " again."
		m.Links = []ui.Link{{Href: "/settings/connectors?tenant=" + in.ID.String(), Text: "Open the policy"}}
	}
	return m
}

func platformWords(c client.Client) string {
	platform := workspace.PlatformOf(c.Platform)
	if platform == workspace.Other {
		return c.Name + " is neither Claude nor ChatGPT, and the policy does not allow other applications."
	}
	return c.Name + " belongs to " + platform.Name() + ", and the policy does not allow this platform."
}
