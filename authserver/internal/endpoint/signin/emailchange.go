package signin

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// showEmailChange serves GET /email: the page of a link that confirms or stops a change of an e-mail address. It needs
// no sign-in. A link proves only that the user can read its mailbox.
func (h *Handler) showEmailChange(v *visit) error {
	token := credential.Secret(v.form.Get("token"))
	change, err := h.Accounts.EmailChangeLink(v.r.Context(), token)
	if err != nil {
		return h.refuseEmailChange(v, err)
	}
	return h.show(v, http.StatusOK, &ui.EmailChange{
		Frame:     ui.Frame{Title: "Change of an e-mail address"},
		Token:     token.Reveal(),
		Email:     change.New,
		ToNew:     change.ToNew,
		Confirmed: change.Confirmed(),
	})
}

// answerEmailChange serves POST /email.
func (h *Handler) answerEmailChange(v *visit) error {
	ctx, token := v.r.Context(), credential.Secret(v.form.Get("token"))
	event := audit.Event{
		Actor:     "anonymous",
		RequestID: web.RequestID(ctx),
		Detail:    map[string]any{"address": h.address(v).String()},
	}
	switch v.form.Get("decision") {
	case "confirm":
		event.Action = audit.UserEmailChanged
		change, changed, err := h.Accounts.ConfirmEmailChange(ctx, token, event)
		if err != nil {
			return h.refuseEmailChange(v, err)
		}
		return h.tell(v, confirmed(change, changed))
	case "stop":
		event.Action = audit.UserEmailStopped
		change, err := h.Accounts.EmailChangeLink(ctx, token)
		if err == nil {
			err = h.Accounts.StopEmailChange(ctx, token, event)
		}
		if err != nil {
			return h.refuseEmailChange(v, err)
		}
		return h.tell(v, stopped(change))
	}
	return h.tell(v, &ui.Message{
		Status:  http.StatusBadRequest,
		Heading: "The form is not valid",
		Text:    "The submitted form cannot be read. Nothing was changed.",
		Next:    "Open the link in the mail again.",
	})
}

func confirmed(change useraccount.EmailChange, changed bool) *ui.Message {
	switch {
	case changed:
		return &ui.Message{
			Status:  http.StatusOK,
			Heading: "The address was changed",
			Text:    "You now sign in with " + change.New + ".",
			Links:   toSettings(),
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
		page.Links = []ui.Link{{Href: forgottenPath, Text: "Set a new password"}}
	}
	return page
}

// refuseEmailChange shows the page of a link that is not valid, or of an address that is taken. It returns other
// errors.
func (h *Handler) refuseEmailChange(v *visit, err error) error {
	page := &ui.Message{
		Status:  http.StatusNotFound,
		Heading: "This link does not work",
		Text: "The link was used already, has expired or is incomplete, or the change was stopped. " +
			"Nothing was changed.",
		Links: toSettings(),
	}
	switch {
	case errors.Is(err, useraccount.ErrEmailTaken):
		page.Status, page.Heading = http.StatusConflict, "The address was not changed"
		page.Text = "There is another account with the new address."
		page.Next = "Delete that account or change its address, and request the change again."
	case !errors.Is(err, useraccount.ErrLinkInvalid):
		return err
	}
	return h.tell(v, page)
}
