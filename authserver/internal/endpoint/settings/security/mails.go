package security

import (
	"net/http"
	"slices"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
)

// A mailChoice is a kind of mail that the user can turn off.
type mailChoice struct {
	Kind   mail.Kind
	Title  string
	Wanted bool
}

// mailChoices returns the choices of the user, or none if the deployment sends no mail.
func (h *Handler) mailChoices(v *settings.Request) ([]mailChoice, error) {
	if !h.Mails {
		return nil, nil
	}
	unwanted, err := h.Store.UnwantedMails(v.R.Context(), v.Current.User.ID)
	if err != nil {
		return nil, err
	}
	var choices []mailChoice
	for _, k := range mail.OptionalKinds() {
		choices = append(choices, mailChoice{k.Kind, k.Title, !slices.Contains(unwanted, k.Kind)})
	}
	return choices, nil
}

// chooseMails serves POST /settings/security/mails: the kinds that are not ticked are turned off.
func (h *Handler) chooseMails() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		wanted, unwanted := v.Form["mail"], []mail.Kind{}
		for _, k := range mail.OptionalKinds() {
			if !slices.Contains(wanted, string(k.Kind)) {
				unwanted = append(unwanted, k.Kind)
			}
		}
		err := h.Store.SetUnwantedMails(v.R.Context(), v.Current.User.ID, unwanted, v.Event(
			nil,
			audit.UserMailsChanged,
			"user:"+v.Current.User.ID.String(),
			map[string]any{"unwanted": unwanted},
		))
		if err != nil {
			return err
		}
		return h.Done(v, Section.Path(), "Your choice of mails was saved.")
	})
}
