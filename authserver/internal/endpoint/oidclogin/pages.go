package oidclogin

import (
	"net/http"
	"net/url"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/web"
)

func backTo(b begun) []ui.Link {
	text, path := "Back to the sign-in page", "/login?return="+url.QueryEscape(b.Return)
	if b.Attempt.Proof {
		text, path = "Use another method", "/login/again?return="+url.QueryEscape(b.Return)
	}
	return []ui.Link{{Href: path, Text: text}}
}

// unreachable writes a 503: the provider does not respond.
func (h *Handler) unreachable(w http.ResponseWriter, r *http.Request, b begun) {
	w.Header().Set("Retry-After", "30")
	h.Pages.ShowError(w, r, &ui.Message{
		Status:  http.StatusServiceUnavailable,
		Heading: h.Name + " does not respond",
		Text:    "We could not confirm your identity with " + h.Name + ".",
		Next:    "Please try again in a minute, or sign in another way.",
		Links:   backTo(b),
	})
}

func (h *Handler) tooMany(w http.ResponseWriter, r *http.Request, b begun, wait time.Duration) {
	web.SetRateLimited(w.Header(), wait, session.BegunLimit(wait))
	h.Pages.ShowError(w, r, &ui.Message{
		Status:  http.StatusTooManyRequests,
		Heading: "Too many attempts from your network",
		Text:    "Nothing was changed.",
		Next:    "Please try again in a few minutes, or sign in another way.",
		Links:   backTo(b),
	})
}

// notOurs responds to a callback that belongs to no attempt of this browser.
func (h *Handler) notOurs(w http.ResponseWriter, r *http.Request) {
	text := "It was started in another browser, took too long, or was already completed. Nothing was changed."
	if _, known := h.Ceremonies.BoundToBrowser(r); !known {
		text = "It was started in another browser, or your browser blocks cookies. Allow them for this site."
	}
	h.Pages.ShowError(w, r, &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This sign-in is no longer valid",
		Text:    text,
		Links:   []ui.Link{{Href: "/login", Text: "Start again"}},
	})
}

// declined responds to an error of the provider. The page does not show the provider's text, because any link can
// contain text.
func (h *Handler) declined(w http.ResponseWriter, r *http.Request, b begun, code string) {
	if code == "temporarily_unavailable" || code == "server_error" {
		h.unreachable(w, r, b)
		return
	}
	h.Pages.ShowError(w, r, &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "Sign-in with " + h.Name + " was not completed",
		Text:    "You cancelled it, or " + h.Name + " refused it.",
		Links:   backTo(b),
	})
}

func (h *Handler) notVerified(w http.ResponseWriter, r *http.Request, b begun) {
	h.Pages.ShowError(w, r, &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "We could not sign you in with " + h.Name,
		Text:    "The response from " + h.Name + " was not valid. Nothing was changed.",
		Next:    "Please try again. If it happens again, report the request id below.",
		Links:   backTo(b),
	})
}

func (h *Handler) otherAccount(w http.ResponseWriter, r *http.Request, b begun) {
	h.Pages.ShowError(w, r, &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "You signed in with a different account",
		Text:    "Your " + h.Name + " account does not belong to the user who is signed in here.",
		Links:   backTo(b),
	})
}

// refuse responds to a person whom the provider has authenticated and who may not sign in.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, b begun, why verdict) {
	page := &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "Your " + h.Name + " account is not known here",
		Text:    "No user here has an e-mail address that " + h.Name + " has verified for you.",
		Next:    "Ask an administrator of your workspace to add you, or sign in another way.",
		Links:   backTo(b),
	}
	switch why {
	case taken:
		page.Text = "The user with your e-mail address signs in with another " + h.Name + " account."
		page.Next = "Ask an administrator of your workspace, or sign in another way."
	case disabled:
		page.Heading, page.Text = "Your account is disabled", "You cannot sign in until an administrator "+
			"enables it."
		page.Next = ""
	}
	h.Pages.ShowError(w, r, page)
}
