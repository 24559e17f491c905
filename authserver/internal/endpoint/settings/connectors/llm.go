package connectors

import (
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/shared/perm"
)

// setLLM serves POST /settings/connectors/llm: state is on or off. It requires account:write:members. The page first
// shows the effect of switching off, and the form must be sent again with confirm.
func (h *Handler) setLLM() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		here, err := h.At(v, v.Form.Get("tenant"), Section)
		if err != nil {
			return err
		}
		state, confirmed := v.Form.Get("state"), v.Form.Get("confirm") == "yes"
		switch on := here.Workspace.LLMIntegration; {
		case !here.Permissions.Has(perm.AccountWriteMembers):
			needed, _ := perm.Describe(perm.AccountWriteMembers)
			ask, err := h.Ask(v, here.Membership, perm.NewSet(perm.AccountWriteMembers), "", here.Path(Section))
			if err != nil {
				return err
			}
			return h.show(v, here, http.StatusForbidden, func(page *view) {
				page.ProblemAsk = &ask
				page.Problem = "To switch the LLM integration on or off, you need the permission “" + needed.Title +
					"”. An administrator of the workspace can give it to you."
			})
		case state != "on" && state != "off":
			return h.show(v, here, http.StatusBadRequest, func(page *view) {
				page.Problem = "Choose whether the LLM integration is on or off. Nothing was changed."
			})
		case (state == "on") == on:
			return h.Done(v, here.Path(Section), "The LLM integration of "+here.Workspace.Name+" is already "+state+".")
		case state == "off" && !confirmed:
			live, err := h.connections.LiveConnectors(v.R.Context(), here.Workspace.ID)
			if err != nil {
				return err
			}
			return h.show(v, here, http.StatusOK, func(page *view) { page.LLM.Confirm, page.LLM.Live = true, live })
		}
		return h.saveLLM(v, here, state)
	})
}

func (h *Handler) saveLLM(v *settings.Request, here settings.Scope, state string) error {
	const feature = "llm_integration"
	err := h.connections.SetFeature(v.R.Context(), here.Workspace.ID, feature, state == "on", v.EventIn(
		here,
		audit.FeatureChanged,
		"tenant:"+here.Workspace.ID.String(),
		map[string]any{"feature": feature, "state": state},
		perm.AccountWriteMembers,
	))
	if err != nil {
		return err
	}
	return h.Done(v, here.Path(Section), "The LLM integration of "+here.Workspace.Name+" is now "+state+".")
}
