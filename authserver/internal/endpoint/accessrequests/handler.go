// Package accessrequests serves the button "Ask an administrator" on pages that say which access a user lacks.
//
//	POST /access-requests   ticket
//
// The ticket contains the requested access and the workspace (account/accessrequest).
package accessrequests

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/accessrequest"
	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
)

// Store sends requests; postgres.Store implements it.
type Store interface {
	SendAccessRequest(ctx context.Context, q accessrequest.Request, event audit.Event) (accessrequest.Outcome, error)
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Store    Store
	Offers   *accessrequest.Offers
	Sessions *session.Sessions
	Pages    *ui.Pages
	Now      func() time.Time
	Log      *slog.Logger
}

// A Handler serves the form. It is safe for concurrent use.
type Handler struct{ Deps }

// New returns a Handler.
func New(deps Deps) *Handler { return &Handler{deps} }

// Ask serves POST /access-requests. It accepts requests from the server's own origin only.
func (h *Handler) Ask() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.ask)) }

func (h *Handler) ask(w http.ResponseWriter, r *http.Request) {
	form, ok := h.Pages.ReadForm(w, r)
	if !ok {
		return
	}
	current, signedIn, err := h.Sessions.CurrentUser(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	q, err := h.Offers.Open(form.Get("ticket"), current.SignInID, h.Now())
	if !signedIn || err != nil {
		h.Pages.ShowError(w, r, outdated())
		return
	}
	event := current.Event(r.Context(), audit.AccessRequested, "user:"+current.User.ID.String())
	event.WorkspaceID = &q.WorkspaceID
	event.Detail = map[string]any{
		"permissions":      q.Permissions.Strings(),
		"llm_integration":  q.LLMIntegration,
		"connector_policy": q.Policy,
	}
	outcome, err := h.Store.SendAccessRequest(r.Context(), q, event)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	m := answer(outcome)
	m.Person = &ui.Person{Name: current.User.Name, Email: current.User.Email}
	if len(q.Back) > 0 {
		m.Links = append(m.Links, ui.Link{Href: string(q.Back), Text: "Back"})
	}
	h.Pages.ShowError(w, r, m)
}

// answer returns the page of an outcome.
func answer(outcome accessrequest.Outcome) *ui.Message {
	switch outcome {
	case accessrequest.Sent:
		return &ui.Message{
			Status:  http.StatusOK,
			Heading: "We asked the administrators",
			Text:    "They got an e-mail with your name, your address and what you need.",
			Next:    "An administrator decides. You can ask again after 24 hours.",
		}
	case accessrequest.AlreadySent:
		return &ui.Message{
			Status:  http.StatusOK,
			Heading: "You have already asked",
			Text:    "You asked the administrators of this workspace less than 24 hours ago. No other e-mail was sent.",
			Next:    "You can ask again a day after your last request.",
		}
	case accessrequest.TooMany:
		return &ui.Message{
			Status:  http.StatusTooManyRequests,
			Heading: "Too many people have asked today",
			Text: "Too many people who are not members asked the administrators of this workspace. No e-mail was " +
				"sent.",
			Next: "Try again tomorrow, or ask a person in the workspace.",
		}
	case accessrequest.AlreadyGiven:
		return &ui.Message{
			Status:  http.StatusOK,
			Heading: "You have this access now",
			Text:    "It was given to you while the page was open. No e-mail was sent.",
		}
	case accessrequest.Unproven:
		return ui.Unproven("You cannot ask for access before that. No e-mail was sent.", true)
	case accessrequest.NoMail:
		return &ui.Message{
			Status:  http.StatusOK,
			Heading: "No e-mail was sent",
			Text:    "This deployment sends no e-mail.",
			Next:    "Ask an administrator of the workspace yourself.",
		}
	}
	return &ui.Message{
		Status:  http.StatusOK,
		Heading: "No administrator can be asked",
		Text:    "No other member of this workspace can give you this access by e-mail. No e-mail was sent.",
		Next:    "Ask a person in the workspace, or the person who runs this service.",
	}
}

func outdated() *ui.Message {
	return &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "This form is out of date",
		Text:    "It was opened in another session or more than a day ago. No e-mail was sent.",
		Next:    "Go back to the page, reload it and ask again.",
		Links:   []ui.Link{{Href: "/settings/user", Text: "Go to your settings"}},
	}
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, audit.ErrNotAuthorized):
		h.Pages.ShowError(w, r, outdated())
		return
	case errors.Is(err, store.ErrUnavailable):
		h.Pages.Unavailable(w, r)
	default:
		h.Pages.Internal(w, r)
	}
	h.Log.ErrorContext(r.Context(), "access request failed", "error", err)
}
