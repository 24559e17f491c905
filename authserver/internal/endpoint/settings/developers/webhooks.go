package developers

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/eventtype"
	"github.com/almonerhq/almoner/shared/spelling"
	"github.com/almonerhq/almoner/shared/webhook"
)

// Webhooks stores webhook endpoints. Its errors are those of package webhook, audit.ErrNotAuthorized, or wrap
// store.ErrUnavailable.
type Webhooks interface {
	Webhooks(ctx context.Context, workspaceID uuid.UUID) ([]webhook.Endpoint, error)
	Webhook(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Endpoint, error)
	WebhookDeliveries(ctx context.Context, workspaceID, endpoint uuid.UUID, limit int) ([]webhook.Delivery, error)
	WebhookKey(ctx context.Context) ([]byte, error)
	AddWebhook(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed, event audit.Event) error
	DeleteWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error
	EnableWebhook(ctx context.Context, workspaceID, id, user uuid.UUID, event audit.Event) error
	SetWebhookPersonalData(ctx context.Context, workspaceID, id, user uuid.UUID, include bool, event audit.Event) error
	DisableWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error
	ReplaceWebhookSecret(
		ctx context.Context,
		workspaceID, id, replacement uuid.UUID,
		secret webhook.Sealed,
		event audit.Event,
	) error
	TestWebhook(ctx context.Context, workspaceID, id, delivery uuid.UUID, allowed *audit.Authorization) error
	ResendWebhook(
		ctx context.Context,
		workspaceID, id, former, delivery uuid.UUID,
		allowed *audit.Authorization,
		need func(eventType string) error,
	) error
}

// addWebhook serves POST /settings/developers/webhooks: url, types.
func (h *Handler) addWebhook() http.Handler {
	return h.form(hooks, func(v *settings.Request, here settings.Scope) error {
		e := webhook.Endpoint{
			ID:          uuid.NewSHA1(v.Key.Makes, here.Workspace.ID[:]), // a key is valid in each workspace
			WorkspaceID: here.Workspace.ID,
			Maker:       webhook.Maker{UserID: v.Current.User.ID},
			URL:         spelling.Pasted(v.Form.Get("url")),
			Types:       v.Form["types"],

			PersonalData: v.Form.Get("personal") == "yes",
		}
		notes := h.webhookNotes(v.R.Context(), here, e)
		status, text, err := h.reauthenticate(v, len(notes) == 0)
		if err != nil {
			return err
		}
		if text != "" {
			notes["password"] = text
		}
		if len(notes) > 0 {
			return h.showWebhookRefusal(v, here, status, notes)
		}
		key, err := h.Store.WebhookKey(v.R.Context())
		if errors.Is(err, webhook.ErrNotReady) {
			notes["url"] = "Webhooks are not available yet: the API has not started. Please try again in a minute."
			return h.showWebhookRefusal(v, here, http.StatusServiceUnavailable, notes)
		}
		if err != nil {
			return err
		}
		return h.saveWebhook(v, here, e, key)
	})
}

// webhookNotes returns what is wrong with an endpoint, by field.
func (h *Handler) webhookNotes(ctx context.Context, here settings.Scope, e webhook.Endpoint) map[string]string {
	notes := map[string]string{}
	switch {
	case len(e.Types) == 0:
		notes["types"] = "Choose at least one kind of event."
	case webhook.CheckTypes(e.Types) != "" || !here.Permissions.HasAll(eventtype.Needs(e.Types)):
		notes["types"] = "You can only choose events that you may read in this workspace."
	}
	if e.URL == "" {
		notes["url"] = "Enter the URL of your endpoint."
	} else if note := webhook.CheckURL(ctx, h.Network, e.URL); note != "" {
		notes["url"] = note
	}
	return notes
}

// saveWebhook stores an endpoint and shows its secret, only this time. The form's key and the workspace name the
// endpoint, so the same form sent again does not add another.
func (h *Handler) saveWebhook(v *settings.Request, here settings.Scope, e webhook.Endpoint, key []byte) error {
	secret, err := webhook.NewSecret(rand.Reader)
	if err != nil {
		return err
	}
	sealed, err := webhook.Seal(key, e.ID, secret)
	if err != nil {
		return err
	}
	event := v.EventIn(here, audit.WebhookAdded, "webhook:"+e.ID.String(), nil, eventtype.Needs(e.Types)...)
	err = h.Store.AddWebhook(v.R.Context(), e, sealed, event)
	switch {
	case errors.Is(err, webhook.ErrTooMany):
		return h.showWebhookRefusal(v, here, http.StatusConflict, map[string]string{
			"url": "This workspace has 20 endpoints, which is the maximum. Delete one first.",
		})
	case errors.Is(err, webhook.ErrTaken):
		return h.listWebhooks(v, here, func(page *webhooksView) {
			page.Outcome = &outcome{
				Heading: "This endpoint was already added",
				Text: "Its secret was shown once and cannot be shown again. If you did not save it, delete the " +
					"endpoint and add it again.",
			}
		})
	case err != nil:
		return err
	}
	return h.listWebhooks(v, here, func(page *webhooksView) {
		page.Outcome = &outcome{
			Heading: "The endpoint was added",
			Label:   "Signing secret",
			Value:   secret.Reveal(),
			Text: "Your server verifies each request with this secret (Standard Webhooks). It is shown only once. " +
				"Store it like a password, and never in a repository.",
		}
	})
}

func (h *Handler) showWebhookRefusal(
	v *settings.Request, here settings.Scope, status int, refused map[string]string,
) error {
	var problems ui.Problems
	for _, p := range []ui.Problem{
		{Field: "url", At: "webhook-url", Label: "URL"},
		{Field: "types", At: "webhook-types", Label: "Events"},
		passwordProblem("webhook", ""),
	} {
		if p.Text = refused[p.Field]; p.Text != "" {
			problems = append(problems, p)
		}
	}
	return h.newWebhook(v, here, status, func(page *newWebhookView) {
		page.Refuse("The endpoint was not added.", problems...)
		page.URL = v.Form.Get("url")
		page.PersonalData = v.Form.Get("personal") == "yes"
		page.Groups = eventGroups(here.Permissions, v.Form["types"])
	})
}

// changeWebhook serves a POST that changes the endpoint that the form names, and redirects to the page of the endpoint
// with a notice.
func (h *Handler) changeWebhook(
	change func(v *settings.Request, here settings.Scope, id uuid.UUID) (notice string, err error),
) http.Handler {
	return h.form(hooks, func(v *settings.Request, here settings.Scope) error {
		id, ok := v.ID()
		if !ok {
			id = uuid.Nil
		}
		notice, err := change(v, here, id)
		back := webhookPath(here, id)
		switch {
		case errors.Is(err, webhook.ErrNotFound):
			back, notice = here.Path(hooks), "The endpoint no longer exists."
		case errors.Is(err, webhook.ErrDisabled):
			notice = "Nothing was sent, because the endpoint is disabled. Enable it first."
		case errors.Is(err, webhook.ErrTests):
			notice = "Nothing was sent, because 60 test events were sent within an hour. Please try again later."
		case errors.Is(err, webhook.ErrWaiting):
			notice = "Nothing was sent, because 10 requested deliveries are still waiting. Please try again in a " +
				"minute."
		case err != nil:
			return err
		}
		return h.Done(v, back, notice)
	})
}

func (h *Handler) deleteWebhook() http.Handler {
	return h.form(hooks, func(v *settings.Request, here settings.Scope) error {
		id, _ := v.ID()
		event := v.EventIn(here, audit.WebhookDeleted, "webhook:"+id.String(), nil)
		err := h.Store.DeleteWebhook(v.R.Context(), here.Workspace.ID, id, event)
		notice := "The endpoint was deleted."
		if errors.Is(err, webhook.ErrNotFound) {
			notice, err = "The endpoint no longer exists.", nil
		}
		if err != nil {
			return err
		}
		return h.Done(v, here.Path(hooks), notice)
	})
}

func (h *Handler) disableWebhook() http.Handler {
	return h.changeWebhook(func(v *settings.Request, here settings.Scope, id uuid.UUID) (string, error) {
		event := v.EventIn(here, audit.WebhookDisabled, "webhook:"+id.String(), nil)
		return "The endpoint was disabled.", h.Store.DisableWebhook(v.R.Context(), here.Workspace.ID, id, event)
	})
}

// enableWebhook serves POST /settings/developers/webhooks/enable. From then on, the endpoint gets what this user may
// read, without personal data if another user asked for it.
func (h *Handler) enableWebhook() http.Handler {
	return h.changeWebhook(func(v *settings.Request, here settings.Scope, id uuid.UUID) (string, error) {
		e, err := h.Store.Webhook(v.R.Context(), here.Workspace.ID, id)
		if err != nil {
			return "", err
		}
		needs := eventtype.Needs(e.Types)
		if !here.Permissions.HasAll(needs) {
			return "The endpoint was not enabled. It gets events that you may not read in this workspace.", nil
		}
		event := v.EventIn(here, audit.WebhookEnabled, "webhook:"+id.String(), nil, needs...)
		err = h.Store.EnableWebhook(v.R.Context(), here.Workspace.ID, id, v.Current.User.ID, event)
		return "The endpoint was enabled. It gets the events that it missed.", err
	})
}

// testWebhook serves POST /settings/developers/webhooks/test. The page of the endpoint shows the result.
func (h *Handler) testWebhook() http.Handler {
	return h.changeWebhook(func(v *settings.Request, here settings.Scope, id uuid.UUID) (string, error) {
		// The same form sent again sends nothing more; the forms of other endpoints on the page do.
		made := uuid.NewSHA1(v.Key.Makes, id[:])
		err := h.Store.TestWebhook(v.R.Context(), here.Workspace.ID, id, made, h.allowed(v, here))
		return "A test event is on its way. The list of deliveries shows its result in a few seconds.", err
	})
}

func (h *Handler) resendWebhook() http.Handler {
	return h.changeWebhook(func(v *settings.Request, here settings.Scope, id uuid.UUID) (string, error) {
		former, err := uuid.Parse(v.Form.Get("delivery"))
		if err != nil {
			return "", webhook.ErrNotFound
		}
		need := func(eventType string) error {
			if need, known := eventtype.Need(eventType); known && here.Permissions.Has(need) {
				return nil
			}
			return audit.ErrNotAuthorized
		}
		made := uuid.NewSHA1(v.Key.Makes, former[:])
		err = h.Store.ResendWebhook(v.R.Context(), here.Workspace.ID, id, former, made, h.allowed(v, here), need)
		return "The event is on its way. The list of deliveries shows the result in a few seconds.", err
	})
}

// allowed returns what allows the user to act here.
func (*Handler) allowed(v *settings.Request, here settings.Scope) *audit.Authorization {
	return v.EventIn(here, "", "", nil).Authorization
}
