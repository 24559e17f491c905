package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// showWebhooks shows the endpoints of one workspace, and what a form did.
func (s *Settings) showWebhooks(r *request) error {
	endpoints := read(r, s.Store.Webhooks, r.here.Workspace.ID)
	return r.show("webhooks", &listView[webhook.Endpoint]{Rows: endpoints})
}

// A typesView is a form in which the user chooses the events of an endpoint, with those that the user may read.
type typesView struct {
	listView[webhook.Subject]
	Endpoint webhook.Endpoint // if it exists
	Lost     []string         // of its events those that the user may not read
}

// newTypesView returns the view with the form as typed, if it was refused.
func (r *request) newTypesView(title string, fresh url.Values) *typesView {
	unreadable := func(subject webhook.Subject) bool { return !r.here.Permissions.Has(subject.Need) }
	view := &typesView{}
	view.Rows = slices.DeleteFunc(webhook.Subjects(), unreadable)
	view.Form, view.Title = r.typed(fresh), title
	return view
}

// Own reports whether the user made the endpoint on its page.
func (v *typesView) Own() bool {
	return v.Endpoint.Maker == webhook.Maker{UserID: v.User}
}

func (s *Settings) showNewWebhook(r *request) error {
	return r.show("newwebhook", r.newTypesView("Add an endpoint", nil))
}

const notAdded = "The endpoint was not added."

// addWebhook takes url, events, types and personal.
func (s *Settings) addWebhook(r *request) error {
	e := webhook.Endpoint{
		ID:           uuid.NewSHA1(r.key.Makes, r.here.Workspace.ID[:]), // a key is valid in each workspace
		WorkspaceID:  r.here.Workspace.ID,
		Maker:        webhook.Maker{UserID: r.user.User.ID},
		URL:          spelling.Pasted(r.form.Get("url")),
		PersonalData: r.form.Get("personal") == "yes",
	}
	s.checkURL(r, e.URL)
	r.chooseTypes(&e)
	if err := s.confirm(r, "webhook", notAdded, s.showNewWebhook); err != nil {
		return err
	}
	secret, sealed, err := r.newWebhookSecret(e.ID)
	if errors.Is(err, webhook.ErrNotReady) {
		return s.showNewWebhook(r.refuse(http.StatusServiceUnavailable, notAdded, problemOf("webhook url",
			"Webhooks are not available yet: the API has not started. Please try again in a minute.")))
	}
	if err != nil {
		return err
	}
	event := r.webhookEvent(audit.WebhookAdded, e.ID, webhook.Needs(e.Types))
	err = s.Store.AddWebhook(r.ctx(), e, sealed, event)
	switch {
	case errors.Is(err, webhook.ErrTooMany):
		return s.showNewWebhook(r.refuse(http.StatusConflict, notAdded, problemOf("webhook url",
			"This workspace has 20 endpoints, which is the maximum. Delete one first.")))
	case errors.Is(err, webhook.ErrTaken):
		return s.showWebhooks(r.withOutcome(outcome{What: "endpoint again"}))
	case err != nil:
		return err
	}
	return s.showWebhooks(r.withOutcome(outcome{What: "endpoint", Value: secret.Reveal()}))
}

// checkURL rejects the URL of an endpoint that is not valid.
func (s *Settings) checkURL(r *request, address string) {
	if address == "" {
		r.reject("webhook url", "Enter the URL of your endpoint.")
	} else if note := webhook.CheckURL(r.ctx(), s.Network, address); note != "" {
		r.reject("webhook url", note)
	}
}

// chooseTypes reads events, which is all for all that the user may read, also of types that are added later, and types,
// and rejects those that are not valid.
func (r *request) chooseTypes(e *webhook.Endpoint) {
	if e.AllTypes = r.form.Get("events") == "all"; e.AllTypes {
		e.Types = webhook.Readable(webhook.EventTypes(), r.here.Permissions)
		return
	}
	e.Types = r.form["types"]
	if len(e.Types) == 0 {
		r.reject("webhook types", "Choose at least one event.")
	} else if webhook.CheckTypes(e.Types) != "" || !r.here.Permissions.HasAll(webhook.Needs(e.Types)) {
		r.reject("webhook types", "You can only choose events that you may read in this workspace.")
	}
}

// showWebhookTypes shows the form that changes the events of an endpoint, as typed if it was refused.
func (s *Settings) showWebhookTypes(r *request, e webhook.Endpoint) error {
	fresh := url.Values{"types": e.Types}
	if e.AllTypes {
		fresh = url.Values{"events": {"all"}}
	}
	view := r.newTypesView("Edit events", fresh)
	view.Endpoint = e
	for _, one := range e.Types {
		if len(webhook.Readable([]string{one}, r.here.Permissions)) == 0 {
			view.Lost = append(view.Lost, one)
		}
	}
	return r.show("webhookevents", view)
}

// changeWebhookTypes takes events and types. From then on, the endpoint gets what this user may read.
func (s *Settings) changeWebhookTypes(r *request, e webhook.Endpoint) error {
	changed := e
	r.chooseTypes(&changed)
	again := func(r *request) error { return s.showWebhookTypes(r, e) }
	if err := s.confirm(r, "events", "Nothing was changed.", again); err != nil {
		return err
	}
	event := r.webhookEvent(audit.WebhookChanged, e.ID, webhook.Needs(changed.Types))
	err := s.Store.SetWebhookTypes(r.ctx(), changed, r.user.User.ID, event)
	return r.webhookChanged(err, "The events were changed.")
}

// newWebhookSecret returns a new secret of an endpoint, also sealed for the store. It returns webhook.ErrNotReady until
// the API has started.
func (r *request) newWebhookSecret(id uuid.UUID) (secret credential.Secret, sealed webhook.Sealed, err error) {
	key, err := r.Store.WebhookKey(r.ctx())
	if err == nil {
		secret, err = webhook.NewSecret(r.Random)
	}
	if err == nil {
		sealed, err = webhook.Seal(key, id, secret)
	}
	return secret, sealed, err
}

func (r *request) webhookEvent(action audit.Action, id uuid.UUID, more perm.Set) audit.Event {
	return r.eventHere(action, "webhook:"+id.String(), nil, more...)
}

// deliveriesShown is how many deliveries the log of an endpoint shows, latestShown of them without a click.
const deliveriesShown, latestShown = 50, 10

// A webhookView is the page of one endpoint with its log.
type webhookView struct {
	page
	Endpoint   webhook.Endpoint
	Deliveries []webhook.Delivery
}

// deliveryRows are some deliveries on the page of an endpoint.
type deliveryRows struct {
	View *webhookView
	Rows []webhook.Delivery
}

// Latest returns the deliveries that the page shows.
func (v *webhookView) Latest() deliveryRows {
	return deliveryRows{v, v.Deliveries[:min(latestShown, len(v.Deliveries))]}
}

// Older returns the deliveries that the page unfolds.
func (v *webhookView) Older() deliveryRows {
	return deliveryRows{v, v.Deliveries[len(v.Latest().Rows):]}
}

// Waiting reports whether some delivery waits.
func (v *webhookView) Waiting() bool {
	return slices.ContainsFunc(v.Deliveries, func(d webhook.Delivery) bool { return d.TriedAt == nil })
}

func (s *Settings) showWebhook(r *request) error {
	e, err := r.endpoint()
	if errors.Is(err, webhook.ErrNotFound) {
		back := ui.Link{Href: r.path(webhooksSection), Text: "Back to the webhooks"}
		s.Pages.ShowError(r.w, r.http, ui.MessageOf("no endpoint", "", back))
		return nil
	}
	if err != nil {
		return err
	}
	r.section = webhooksSection
	return s.webhookPage(r, e)
}

// webhookPage shows an endpoint, and what a form did.
func (s *Settings) webhookPage(r *request, e webhook.Endpoint) error {
	view := &webhookView{Endpoint: e}
	view.Title = e.URL
	view.Deliveries, r.failed = s.Store.WebhookDeliveries(r.ctx(), e.WorkspaceID, e.ID, deliveriesShown)
	return r.show("webhook", view)
}

// A deliveryView is the page of one delivery: what was sent, and what came back.
type deliveryView struct {
	page
	Endpoint webhook.Endpoint
	Delivery webhook.Delivery
	Readable bool             // the user may see the request and the response
	Headers  []webhook.Header // of the request
	Body     string           // of the request, without personal data; "" if its event is no longer stored
	Indented string           // Body for people to read
	Response string           // the beginning of the body of the response
	Escaped  bool             // Response has escaped bytes
	Whole    bool             // Response is the whole body
}

// showDelivery shows the delivery that the URL names.
func (s *Settings) showDelivery(r *request, e webhook.Endpoint) error {
	id, _ := web.ParseID(r.form.Get("delivery"))
	d, event, err := s.Store.WebhookDelivery(r.ctx(), e.WorkspaceID, e.ID, id)
	if errors.Is(err, webhook.ErrNotFound) {
		back := ui.Link{Href: r.webhookPath(), Text: "Back to the endpoint"}
		s.Pages.ShowError(r.w, r.http, ui.MessageOf("no delivery", "", back))
		return nil
	}
	if err != nil {
		return err
	}
	view := &deliveryView{Endpoint: e, Delivery: d, Readable: d.ReadableWith(r.here.Permissions)}
	view.Title = "Delivery of " + d.Type
	if !view.Readable {
		return r.show("delivery", view)
	}
	if event != nil {
		body, err := event.Body(e.WorkspaceID)
		if err != nil {
			return err
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, body, "", "  "); err != nil {
			return err
		}
		view.Body, view.Indented = string(body), indented.String()
	}
	if d.SentAt != nil {
		view.Headers = webhook.Headers(d.MessageID(e.WorkspaceID), *d.SentAt, d.Signature)
	}
	view.Response, view.Escaped = webhook.Text(d.Response)
	view.Whole = len(d.Response) < webhook.MaxResponse
	return r.show("delivery", view)
}

// webhookPath returns the path of the page of the endpoint that the form names.
func (r *request) webhookPath() string {
	return strings.Replace(r.path(developersSection), "?", "/webhook?", 1) + "&id=" + r.id().String()
}

// endpoint reads the webhook endpoint that the form names.
func (r *request) endpoint() (webhook.Endpoint, error) {
	return r.Store.Webhook(r.ctx(), r.here.Workspace.ID, r.id())
}

// webhookChanged redirects to the page of the endpoint that the form names, or to the list if there is none.
func (r *request) webhookChanged(err error, notice string) error {
	if !errors.Is(err, webhook.ErrNotFound) {
		r.back = r.webhookPath()
	}
	return r.done(err, notice)
}

// deleteWebhook takes id, as do the other forms of an endpoint.
func (s *Settings) deleteWebhook(r *request) error {
	event := r.webhookEvent(audit.WebhookDeleted, r.id(), nil)
	err := s.Store.DeleteWebhook(r.ctx(), r.here.Workspace.ID, r.id(), event)
	return r.done(err, "The endpoint was deleted.")
}

func (s *Settings) disableWebhook(r *request) error {
	event := r.webhookEvent(audit.WebhookDisabled, r.id(), nil)
	err := s.Store.DisableWebhook(r.ctx(), r.here.Workspace.ID, r.id(), event)
	return r.webhookChanged(err, "The endpoint was disabled.")
}

// needsOf returns the permissions to read what the endpoint gets. Of all types, its user's own endpoint gets those that
// the user may read.
func (r *request) needsOf(e webhook.Endpoint) perm.Set {
	types := e.Wanted()
	if e.AllTypes && e.UserID == r.user.User.ID {
		types = webhook.Readable(types, r.here.Permissions)
	}
	return webhook.Needs(types)
}

// enableWebhook makes the endpoint get what this user may read from then on, without personal data if another user
// asked for it.
func (s *Settings) enableWebhook(r *request, e webhook.Endpoint) error {
	needs := r.needsOf(e)
	if !r.here.Permissions.HasAll(needs) {
		return r.webhookChanged(nil,
			"The endpoint was not enabled, because it gets events that you may not read in this workspace. "+
				"Choose “Edit events” and remove them first.")
	}
	event := r.webhookEvent(audit.WebhookEnabled, e.ID, needs)
	err := s.Store.EnableWebhook(r.ctx(), r.here.Workspace.ID, e.ID, r.user.User.ID, event)
	return r.webhookChanged(err, "The endpoint was enabled. It gets the events that it missed.")
}

// testWebhook sends a test event. The page of the endpoint shows the result.
func (s *Settings) testWebhook(r *request) error {
	// The same form sent again sends nothing more; the forms of other endpoints on the page do.
	id := r.id()
	makes := uuid.NewSHA1(r.key.Makes, id[:])
	err := s.Store.TestWebhook(r.ctx(), r.here.Workspace.ID, id, makes, r.authorization())
	return r.webhookChanged(err,
		"A test event is on its way. The list of deliveries shows its result in a few seconds.")
}

// resendWebhook takes delivery, too.
func (s *Settings) resendWebhook(r *request) error {
	former, err := uuid.Parse(r.form.Get("delivery"))
	if err != nil {
		return r.webhookChanged(webhook.ErrNotFound, "")
	}
	need := func(eventType string) error {
		if need, known := webhook.Need(eventType); known && r.here.Permissions.Has(need) {
			return nil
		}
		return audit.ErrNotAuthorized
	}
	makes := uuid.NewSHA1(r.key.Makes, former[:])
	err = s.Store.ResendWebhook(r.ctx(), r.here.Workspace.ID, r.id(), former, makes, r.authorization(), need)
	return r.webhookChanged(err,
		"The event is on its way. The list of deliveries shows the result in a few seconds.")
}

// authorization returns what allows the user to act in the workspace of the page.
func (r *request) authorization() *audit.Authorization { return r.eventHere("", "", nil).Authorization }

// changePersonalData takes personal: yes to include the personal data of events. From then on, the endpoint gets what
// this user may read. Omitting it needs no reauthentication.
func (s *Settings) changePersonalData(r *request, e webhook.Endpoint) error {
	include, notice := r.form.Get("personal") == "yes", "Events are now sent without personal data."
	var needs perm.Set
	if include {
		needs, notice = r.needsOf(e), "Events are now sent with personal data."
		if !r.here.Permissions.HasAll(needs) {
			return r.webhookChanged(nil,
				"Nothing was changed, because the endpoint gets events that you may not read in this workspace. "+
					"Choose “Edit events” and remove them first.")
		}
		again := func(r *request) error { return s.webhookPage(r, e) }
		if err := s.confirm(r, "personal", "Nothing was changed.", again); err != nil {
			return err
		}
	}
	event := r.webhookEvent(audit.WebhookChanged, e.ID, needs)
	err := s.Store.SetWebhookPersonalData(r.ctx(), r.here.Workspace.ID, e.ID, r.user.User.ID, include, event)
	return r.webhookChanged(err, notice)
}

// replaceWebhookSecret shows the new secret, only this time. The form's key identifies the replacement, so submitting
// the same form again does not replace the secret again.
func (s *Settings) replaceWebhookSecret(r *request, e webhook.Endpoint) error {
	needs := r.needsOf(e)
	if !r.here.Permissions.HasAll(needs) {
		return r.done(nil, "The secret was not replaced. It signs events that you may not read in this workspace.")
	}
	again := func(r *request) error { return s.webhookPage(r, e) }
	if err := s.confirm(r, "secret", "The secret was not replaced.", again); err != nil {
		return err
	}
	secret, sealed, err := r.newWebhookSecret(e.ID)
	if err != nil {
		return err
	}
	event := r.webhookEvent(audit.WebhookSecretReplaced, e.ID, needs)
	err = s.Store.ReplaceWebhookSecret(r.ctx(), r.here.Workspace.ID, e.ID, r.key.Makes, sealed, event)
	if errors.Is(err, webhook.ErrReplaced) {
		return s.webhookPage(r.withOutcome(outcome{What: "endpoint secret again"}), e)
	}
	if err != nil {
		return err
	}
	return s.webhookPage(r.withOutcome(outcome{What: "endpoint secret", Value: secret.Reveal()}), e)
}
