package members

import (
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/perm"
)

// setSecondFactor serves POST /settings/members/second-factor: state is on or off. Only a user who has used a second
// factor at this sign-in can switch it on, so that users do not lock themselves out.
func (h *Handler) setSecondFactor() http.Handler {
	return h.changing(func(v *settings.Request, here settings.Scope) error {
		state := v.Form.Get("state")
		if state != "on" && state != "off" {
			return h.show(v, here, http.StatusBadRequest, func(page *view) {
				page.Problem = "Choose whether members need a second factor. Nothing was changed."
			})
		}
		event := v.EventIn(here, audit.SecondFactorChanged, "tenant:"+here.Workspace.ID.String(),
			map[string]any{"state": state}, perm.AccountWriteMembers)
		err := h.store.RequireSecondFactor(v.R.Context(), here.Workspace.ID, state == "on", event)
		switch {
		case errors.Is(err, session.ErrSecondFactor):
			return h.show(v, here, http.StatusForbidden, func(page *view) {
				page.Problem = "Nothing was changed. You must sign in with a second factor yourself before you " +
					"require it of others."
			})
		case err != nil:
			return err
		case state == "on":
			return h.Done(v, here.Path(Section), "Members of "+here.Workspace.Name+" need a second factor now.")
		}
		return h.Done(v, here.Path(Section), "Members of "+here.Workspace.Name+" no longer need a second factor.")
	})
}
