package signin

import (
	"errors"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/net/web"
)

const providerPath = "/settings/provider"

// showProvider serves GET /settings/provider.
func (h *Handler) showProvider(v *visit) error {
	if err := h.requireUser(v, providerPath); err != nil {
		return err
	}
	return h.showLink(v, http.StatusOK, "")
}

// showLink shows whether the user's account is linked.
func (h *Handler) showLink(v *visit, status int, problem string) error {
	since, linked, err := h.Store.IdentitySince(v.r.Context(), v.current.User.ID, h.issuer())
	if err != nil {
		return err
	}
	frame, err := h.securityFrame(v, "Sign-in with "+h.ProviderName)
	if err != nil {
		return err
	}
	frame.Problem = problem
	return h.show(v, status, &ui.Provider{
		Frame:  frame,
		Key:    formKey(h.providerForms, v),
		Name:   h.ProviderName,
		Linked: linked,
		Since:  since,
		Fresh:  v.current.MayChangeFactors(h.Now()),
	})
}

// unlink serves POST /settings/provider/unlink.
func (h *Handler) unlink(v *visit) error {
	if err := h.requireUser(v, providerPath); err != nil {
		return err
	}
	if !keyFits(h.providerForms, v) {
		return h.tell(v, outdated(providerPath))
	}
	if !v.current.MayChangeFactors(h.Now()) {
		return errReauthenticate
	}
	event := v.current.Event(v.r.Context(), audit.IdentityUnlinked, "user:"+v.current.User.ID.String())
	event.Detail = map[string]any{"issuer": h.issuer(), "address": h.address(v).String()}
	unlinked, needed, err := h.Store.UnlinkIdentity(
		v.r.Context(), v.current.User.ID, h.issuer(), h.RelyingParty != nil, event,
	)
	switch {
	case err != nil:
		return err
	case needed:
		return h.showLink(v, http.StatusConflict, "You need "+h.ProviderName+" to sign in. Before you unlink it, add "+
			"a passkey or ask an administrator to set a password.")
	case !unlinked:
		return h.done(v, providerPath, "No "+h.ProviderName+" account was linked.")
	}
	return h.done(v, providerPath, "Your "+h.ProviderName+" account was unlinked.")
}

// tellAttempt shows a message with a link back to the page that an attempt began at.
func (h *Handler) tellAttempt(v *visit, b begun, m *ui.Message) error {
	m.Links = []ui.Link{{Href: signInPath(b.Return), Text: "Back to the sign-in page"}}
	if b.Attempt.Proof {
		m.Links = []ui.Link{{Href: reauthPath(b.Return), Text: "Use another method"}}
	}
	return h.tell(v, m)
}

// unreachable shows that the provider does not respond. It returns other errors.
func (h *Handler) unreachable(v *visit, b begun, err error) error {
	if !errors.Is(err, oidc.ErrUnreachable) {
		return err
	}
	h.Log.ErrorContext(v.r.Context(), "identity provider does not respond", "error", err)
	return h.noResponse(v, b)
}

func (h *Handler) noResponse(v *visit, b begun) error {
	v.w.Header().Set("Retry-After", "30")
	return h.tellAttempt(v, b, &ui.Message{
		Status:  http.StatusServiceUnavailable,
		Heading: h.ProviderName + " does not respond",
		Text:    "We could not confirm your identity with " + h.ProviderName + ".",
		Next:    "Please try again in a minute, or sign in another way.",
	})
}

func (h *Handler) tooManyAttempts(v *visit, b begun, wait time.Duration) error {
	web.SetRateLimited(v.w.Header(), wait, session.BegunLimit(wait))
	return h.tellAttempt(v, b, &ui.Message{
		Status:  http.StatusTooManyRequests,
		Heading: "Too many attempts from your network",
		Text:    "Nothing was changed.",
		Next:    "Please try again in a few minutes, or sign in another way.",
	})
}

// notOurs responds to a callback that belongs to no attempt of this browser.
func (h *Handler) notOurs(v *visit) error {
	text := "It was started in another browser, took too long, or was already completed. Nothing was changed."
	if _, known := h.States.BoundToBrowser(v.r); !known {
		text = "It was started in another browser, or your browser blocks cookies. Allow them for this site."
	}
	return h.tell(v, &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "This sign-in is no longer valid",
		Text:    text,
		Links:   []ui.Link{{Href: "/login", Text: "Start again"}},
	})
}

// declined responds to an error of the provider. The page does not show the provider's text, because any link can
// contain text.
func (h *Handler) declined(v *visit, b begun, code string) error {
	if code == "temporarily_unavailable" || code == "server_error" {
		return h.noResponse(v, b)
	}
	return h.tellAttempt(v, b, &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "Sign-in with " + h.ProviderName + " was not completed",
		Text:    "You cancelled it, or " + h.ProviderName + " refused it.",
	})
}

func (h *Handler) notVerified(v *visit, b begun) error {
	return h.tellAttempt(v, b, &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "We could not sign you in with " + h.ProviderName,
		Text:    "The response from " + h.ProviderName + " was not valid. Nothing was changed.",
		Next:    "Please try again. If it happens again, report the request id below.",
	})
}

func (h *Handler) otherAccount(v *visit, b begun) error {
	return h.tellAttempt(v, b, &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "You signed in with a different account",
		Text:    "Your " + h.ProviderName + " account does not belong to the user who is signed in here.",
	})
}

// refuseIdentity responds to a person whom the provider has authenticated and who may not sign in.
func (h *Handler) refuseIdentity(v *visit, b begun, why verdict) error {
	page := &ui.Message{
		Status:  http.StatusForbidden,
		Heading: "Your " + h.ProviderName + " account is not known here",
		Text:    "No user here has an e-mail address that " + h.ProviderName + " has verified for you.",
		Next:    "Ask an administrator of your workspace to add you, or sign in another way.",
	}
	switch why {
	case taken:
		page.Text = "The user with your e-mail address signs in with another " + h.ProviderName + " account."
		page.Next = "Ask an administrator of your workspace, or sign in another way."
	case disabled:
		page.Heading, page.Next = "Your account is disabled", ""
		page.Text = "You cannot sign in until an administrator enables it."
	}
	return h.tellAttempt(v, b, page)
}
