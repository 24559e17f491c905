// Package emailchange serves the page of the links that confirm or stop a change of an e-mail address.
//
//	GET  /email  Open    ?token=: shows the change; changes nothing, because mail programs open links in advance
//	POST /email  Answer  token, decision=confirm or stop: 200; 400, 404, 409, 503
//
// The pages need no sign-in. A link proves only that the user can read its mailbox.
package emailchange

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/web"
)

// Path is the path of the page.
const Path = mail.EmailChangePath

// Accounts changes addresses.
type Accounts interface {
	EmailChangeLink(ctx context.Context, token credential.Secret) (useraccount.EmailChange, error)
	ConfirmEmailChange(
		ctx context.Context, token credential.Secret, event audit.Event,
	) (useraccount.EmailChange, bool, error)
	StopEmailChange(ctx context.Context, token credential.Secret, event audit.Event) error
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Accounts Accounts
	Pages    *ui.Pages
	Proxies  web.Proxies
	Log      *slog.Logger
}

// A Handler serves the page. It is safe for concurrent use.
type Handler struct{ Deps }

// New returns a Handler.
func New(d Deps) *Handler { return &Handler{d} }

// Open serves GET /email.
func (h *Handler) Open(w http.ResponseWriter, r *http.Request) {
	token := credential.Secret(r.URL.Query().Get("token"))
	change, err := h.Accounts.EmailChangeLink(r.Context(), token)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.Pages.Show(w, r, http.StatusOK, &ui.EmailChange{
		Frame:     ui.Frame{Title: "Change of an e-mail address"},
		Token:     token.Reveal(),
		Email:     change.New,
		ToNew:     change.ToNew,
		Confirmed: change.Confirmed(),
	})
}

// Answer serves POST /email. It accepts requests from the server's own origin only.
func (h *Handler) Answer() http.Handler { return h.Pages.SameOrigin(http.HandlerFunc(h.answer)) }

func (h *Handler) answer(w http.ResponseWriter, r *http.Request) {
	form, ok := h.Pages.ReadForm(w, r)
	if !ok {
		return
	}
	token := credential.Secret(form.Get("token"))
	event := audit.Event{
		Actor:     "anonymous",
		RequestID: web.RequestID(r.Context()),
		Detail:    map[string]any{"address": h.Proxies.ClientAddress(r).String()},
	}
	switch form.Get("decision") {
	case "confirm":
		event.Action = audit.UserEmailChanged
		change, changed, err := h.Accounts.ConfirmEmailChange(r.Context(), token, event)
		if err != nil {
			h.refuse(w, r, err)
			return
		}
		h.Pages.ShowError(w, r, confirmed(change, changed))
	case "stop":
		event.Action = audit.UserEmailStopped
		change, err := h.Accounts.EmailChangeLink(r.Context(), token)
		if err == nil {
			err = h.Accounts.StopEmailChange(r.Context(), token, event)
		}
		if err != nil {
			h.refuse(w, r, err)
			return
		}
		h.Pages.ShowError(w, r, stopped(change))
	default:
		h.Pages.ShowError(w, r, &ui.Message{
			Status:  http.StatusBadRequest,
			Heading: "The form is not valid",
			Text:    "The submitted form cannot be read. Nothing was changed.",
			Next:    "Open the link in the mail again.",
		})
	}
}

func confirmed(change useraccount.EmailChange, changed bool) *ui.Message {
	switch {
	case changed:
		return &ui.Message{
			Status:  http.StatusOK,
			Heading: "The address was changed",
			Text:    "You now sign in with " + change.New + ".",
			Links:   []ui.Link{{Href: "/settings/user", Text: "Go to your settings"}},
		}
	case change.ToNew:
		return &ui.Message{
			Status:  http.StatusOK,
			Heading: "This address is confirmed",
			Text:    "Now open the link that we sent to your current address. Your address changes after that.",
		}
	}
	return &ui.Message{
		Status:  http.StatusOK,
		Heading: "The change is confirmed",
		Text:    "Now open the link that we sent to " + change.New + ". Your address changes after that.",
	}
}

func stopped(change useraccount.EmailChange) *ui.Message {
	page := &ui.Message{
		Status:  http.StatusOK,
		Heading: "The change was stopped",
		Text:    "The address stays as it is, and the links no longer work.",
	}
	if !change.ToNew {
		page.Next = "If another person requested the change, they were signed in to your account. Set a new " +
			"password to sign out all browsers."
		page.Links = []ui.Link{{Href: "/login/forgotten", Text: "Set a new password"}}
	}
	return page
}

// refuse writes the page of a link that is not valid, of an address that is taken, or of a fault.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, useraccount.ErrLinkInvalid):
		h.Pages.ShowError(w, r, &ui.Message{
			Status:  http.StatusNotFound,
			Heading: "This link does not work",
			Text: "The link was used already, has expired or is incomplete, or the change was stopped. " +
				"Nothing was changed.",
			Links: []ui.Link{{Href: "/settings/user", Text: "Go to your settings"}},
		})
	case errors.Is(err, useraccount.ErrEmailTaken):
		h.Pages.ShowError(w, r, &ui.Message{
			Status:  http.StatusConflict,
			Heading: "The address was not changed",
			Text:    "There is another account with the new address.",
			Next:    "Delete that account or change its address, and request the change again.",
			Links:   []ui.Link{{Href: "/settings/user", Text: "Go to your settings"}},
		})
	default:
		h.Log.ErrorContext(r.Context(), "change of address failed", "error", err)
		if errors.Is(err, store.ErrUnavailable) {
			h.Pages.Unavailable(w, r)
			return
		}
		h.Pages.Internal(w, r)
	}
}
