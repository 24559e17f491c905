package developers

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/shared/eventtype"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/webhook"
)

// changePersonalData serves POST /settings/developers/webhooks/personal-data: personal is yes to include the personal
// data of events. From then on, the endpoint gets what this user may read. Omitting it needs no reauthentication.
func (h *Handler) changePersonalData() http.Handler {
	return h.form(hooks, func(v *settings.Request, here settings.Scope) error {
		id, ok := v.ID()
		if !ok {
			id = uuid.Nil
		}
		e, err := h.Store.Webhook(v.R.Context(), here.Workspace.ID, id)
		if errors.Is(err, webhook.ErrNotFound) {
			return h.Done(v, here.Path(hooks), "The endpoint no longer exists.")
		}
		if err != nil {
			return err
		}
		include := v.Form.Get("personal") == "yes"
		var needs perm.Set
		if include {
			needs = eventtype.Needs(e.Types)
			if !here.Permissions.HasAll(needs) {
				return h.Done(v, webhookPath(here, id),
					"Nothing was changed. The endpoint gets events that you may not read in this workspace.")
			}
			status, text, err := h.reauthenticate(v, true)
			if err != nil {
				return err
			}
			if text != "" {
				return h.showWebhook(v, here, e, status, func(page *webhookView) {
					page.Refuse("Nothing was changed.", passwordProblem("personal", text))
				})
			}
		}
		event := v.EventIn(here, audit.WebhookChanged, "webhook:"+id.String(), nil, needs...)
		err = h.Store.SetWebhookPersonalData(
			v.R.Context(), here.Workspace.ID, id, v.Current.User.ID, include, event,
		)
		switch {
		case errors.Is(err, webhook.ErrNotFound):
			return h.Done(v, here.Path(hooks), "The endpoint no longer exists.")
		case err != nil:
			return err
		case include:
			return h.Done(v, webhookPath(here, id), "Events are now sent with personal data.")
		}
		return h.Done(v, webhookPath(here, id), "Events are now sent without personal data.")
	})
}
