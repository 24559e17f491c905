package developers

import (
	"crypto/rand"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/shared/eventtype"
	"github.com/almonerhq/almoner/shared/webhook"
)

// replaceWebhookSecret serves POST /settings/developers/webhooks/secret. Only its response shows the new secret. The
// form's key identifies the replacement, so submitting the same form again does not replace the secret again.
func (h *Handler) replaceWebhookSecret() http.Handler {
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
		needs := eventtype.Needs(e.Types)
		if !here.Permissions.HasAll(needs) {
			return h.Done(v, here.Path(hooks),
				"The secret was not replaced. It signs events that you may not read in this workspace.")
		}
		status, text, err := h.reauthenticate(v, true)
		if err != nil {
			return err
		}
		if text != "" {
			return h.showWebhook(v, here, e, status, func(page *webhookView) {
				page.Refuse("The secret was not replaced.", passwordProblem("secret", text))
			})
		}
		key, err := h.Store.WebhookKey(v.R.Context())
		if err != nil {
			return err
		}
		secret, err := webhook.NewSecret(rand.Reader)
		if err != nil {
			return err
		}
		sealed, err := webhook.Seal(key, id, secret)
		if err != nil {
			return err
		}
		event := v.EventIn(here, audit.WebhookSecretReplaced, "webhook:"+id.String(), nil, needs...)
		err = h.Store.ReplaceWebhookSecret(v.R.Context(), here.Workspace.ID, id, v.Key.Makes, sealed, event)
		shown := &outcome{
			Heading: "The secret was replaced",
			Label:   "Signing secret",
			Value:   secret.Reveal(),
			Text: "For 24 hours, requests are signed with both secrets, and then only with the new one. The new " +
				"secret is shown only once. Store it like a password, and never in a repository.",
		}
		switch {
		case errors.Is(err, webhook.ErrReplaced):
			shown = &outcome{
				Heading: "The secret was already replaced",
				Text: "The new secret was shown once and cannot be shown again. If you did not save it, replace the " +
					"secret again.",
			}
		case err != nil:
			return err
		}
		return h.showWebhook(v, here, e, http.StatusOK, func(page *webhookView) { page.Outcome = shown })
	})
}
