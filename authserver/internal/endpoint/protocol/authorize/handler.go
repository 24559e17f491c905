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
	_ "embed" // for the messages
	"encoding/json"
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
	"github.com/almonerhq/almoner/shared/page/brand"
)

// A Store reads memberships and grants. Its errors wrap store.ErrUnavailable.
type Store interface {
	// Known returns the grants that exist among keys.
	Known(ctx context.Context, keys []grant.Key) ([]grant.Grant, error)
	// Membership returns false if the user is not a member.
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
	Store    Store
	Visitors *session.Sessions
	Attempts *connectionlog.Recorder
	Tickets  consent.Tickets // of consent pages
	Choices  consent.Tickets // of pages on which a user selects a workspace
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

func (v *visit) person() *ui.Person {
	return &ui.Person{Name: v.user.User.Name, Email: v.user.User.Email}
}

// form serves a form from the server's own origin.
func (h *Handler) form(serve func(*visit) error) http.Handler {
	return h.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := &visit{w: w, r: r}, false
		if v.form, ok = h.Pages.ReadFormOr(w, r, func() { _ = h.refuse(v, messages.BadForm) }); ok {
			h.finish(v, serve(v))
		}
	}))
}

// errAnswered means that the response was already written.
var errAnswered = errors.New("answered")

// refuse shows why the request ended. It returns errAnswered.
func (h *Handler) refuse(v *visit, m ui.Message) error {
	h.Pages.ShowError(v.w, v.r, &m)
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
		_ = h.refuse(v, messages.SilentDomain)
	case errors.Is(err, store.ErrUnavailable):
		h.Pages.Unavailable(v.w, v.r, ui.Frame{})
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

// messages are the pages that end a request, in the words of messages.json. There, {application} is the name of the
// client with the domain of its document, {name} the name alone, and {workspace} the name of a workspace, or of
// several.
var messages = readMessages()

//go:embed messages.json
var messagesJSON []byte

// A messageTable has the pages of messages.json by their names there.
type messageTable struct {
	BadRequest, SilentDomain, BadForm, ClientGone ui.Message
	// Pages for a request that the user has answered before: see refuseUsed.
	UsedAlready, StillConnected, SinceDisconnected ui.Message
	// Pages that refuse a submitted form. If the request is known, reopening adds a link to it.
	SignedOut, NotYourPage, TooLate ui.Message
	// Pages for users who cannot give the client access: see forbidden.
	NoWorkspace, NoneOpen, NotMember, NotInChosen, ConnectorsOff, PermissionsMissing, NotAllowed ui.Message
}

func readMessages() (table messageTable) {
	if err := json.Unmarshal(messagesJSON, &table); err != nil {
		panic(err) // the file is part of the program
	}
	return table
}

// refuseUsed shows that the user has answered the request before, and what became of the approval whose code was
// redeemed. It also answers a user who goes back to the page after approving.
func (h *Handler) refuseUsed(v *visit, approval consent.Approval) error {
	m := messages.UsedAlready
	if used, redeemed := approval.Redeemed(); redeemed {
		in, member, err := h.Store.Membership(v.r.Context(), v.user.User.ID, used.WorkspaceID)
		switch {
		case err != nil:
			return err
		case member && consent.Connection{Grant: used}.Live(h.Now()):
			m = inWords(v, messages.StillConnected, in.Workspace.Name)
		case member:
			m = inWords(v, messages.SinceDisconnected, in.Workspace.Name)
		}
	}
	if home := consent.HomeOf(v.client.Address, v.client.Redirects); home != "" {
		m.Links = append([]ui.Link{{Href: home, Text: "Go to " + strings.TrimPrefix(home, "https://")}}, m.Links...)
	}
	return h.refuse(v, m)
}

// inWords returns a page with the names of the client and of a workspace, or of several.
func inWords(v *visit, m ui.Message, workspaces string) ui.Message {
	words := strings.NewReplacer("{application}", brand.Apart(nameOf(v.client), brand.Unnamed), "{name}",
		brand.Apart(v.client.Name, brand.Unnamed), "{workspace}", brand.Apart(workspaces, brand.Unnamed))
	m.Heading, m.Text, m.Next = words.Replace(m.Heading), words.Replace(m.Text), words.Replace(m.Next)
	return m
}

// forbidden returns a page for a user who cannot give the client access.
func forbidden(v *visit, m ui.Message, workspaces string) ui.Message {
	m = inWords(v, m, workspaces)
	m.Person = v.person()
	if !v.approves {
		m.Switch = v.request
	}
	return m
}

// reopening returns a page that refuses a submitted form. If the request is known, the page links to it.
func reopening(request string, m ui.Message) ui.Message {
	if request != "" {
		m.Next = "You can open the request again. If the app no longer waits for it, start again there."
		m.Links = []ui.Link{{Href: request, Text: "Open the request again"}}
	}
	return m
}

func platformWords(c client.Client) string {
	platform := workspace.PlatformOf(c.Platform)
	if platform == workspace.Other {
		return c.Name + " is neither Claude nor ChatGPT, and the assistant rules do not allow other assistants."
	}
	return c.Name + " belongs to " + platform.Name() + ", and the assistant rules do not allow it."
}
