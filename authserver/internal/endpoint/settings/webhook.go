package settings

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
)

// deliveriesShown is how many deliveries the log of an endpoint shows.
const deliveriesShown = 50

// A webhookView is the page of one endpoint with its log.
type webhookView struct {
	developerPage
	Endpoint   endpoint
	Deliveries []deliveryRow
	Waiting    bool // some delivery waits
}

func (*webhookView) Template() string { return "webhook" }

// A deliveryRow is one delivery in the log.
type deliveryRow struct {
	ID, Type string
	Sequence *int64
	At       time.Time
	State    string // working, waiting, refused: the style
	Word     string // the same in words
	Cause    string // "" for the first attempts of an event
	Problem  string
	Status   *int
	Took     string
	Again    bool // it can be sent again
}

func deliveryView(d webhook.Delivery, e webhook.Endpoint) deliveryRow {
	row := deliveryRow{
		ID:       d.ID.String(),
		Type:     d.Type,
		Sequence: d.Sequence,
		At:       d.CreatedAt,
		State:    "refused",
		Word:     "Failed",
		Problem:  d.Problem,
		Status:   d.Status,
		Cause:    map[webhook.Cause]string{webhook.ByResend: "Sent again", webhook.ByTest: "Test event"}[d.Cause],
		Again:    d.TriedAt != nil && (e.Enabled || d.Sequence == nil),
	}
	switch {
	case d.TriedAt == nil:
		row.State, row.Word = "waiting", "Waiting"
	case d.Accepted():
		row.State, row.Word = "working", "Accepted"
	}
	if d.Status != nil {
		row.Took = strconv.FormatInt(d.Took.Milliseconds(), 10) + " ms"
	}
	return row
}

func (s *Settings) showWebhook(r *request) error {
	e, err := s.Store.Webhook(r.ctx(), r.here.Workspace.ID, r.id())
	if errors.Is(err, webhook.ErrNotFound) {
		s.Pages.ShowError(r.w, r.http, &ui.Message{
			Status:  http.StatusNotFound,
			Heading: "There is no such endpoint",
			Text:    "It was deleted, or it belongs to another workspace.",
			Links:   []ui.Link{{Href: r.path(webhooksSection), Text: "Back to the webhooks"}},
		})
		return nil
	}
	if err != nil {
		return err
	}
	r.section = webhooksSection
	return s.webhookPage(r, e, nil)
}

// webhookPage shows an endpoint, and what a form did.
func (s *Settings) webhookPage(r *request, e webhook.Endpoint, done *formResult) error {
	deliveries, err := s.Store.WebhookDeliveries(r.ctx(), e.WorkspaceID, e.ID, deliveriesShown)
	if err != nil {
		return err
	}
	view := &webhookView{Endpoint: endpointView(e)}
	view.Title, view.Outcome = e.URL, done
	for _, d := range deliveries {
		view.Deliveries = append(view.Deliveries, deliveryView(d, e))
		view.Waiting = view.Waiting || d.TriedAt == nil
	}
	return s.showDeveloper(r, view)
}

const noEndpoint = "The endpoint no longer exists."

// webhookChanged redirects to the page of the endpoint that the form names, or to the list if there is none.
func (r *request) webhookChanged(err error, notice string) error {
	if errors.Is(err, webhook.ErrNotFound) {
		return r.done(noEndpoint)
	}
	path := strings.Replace(r.path(developersSection), "?", "/webhook?", 1) + "&id=" + r.id().String()
	return r.outcomeAt(path, err, notice, refusals{
		webhook.ErrDisabled: "Nothing was sent, because the endpoint is disabled. Enable it first.",
		webhook.ErrTests: "Nothing was sent, because 60 test events were sent within an hour. Please try again " +
			"later.",
		webhook.ErrWaiting: "Nothing was sent, because 10 requested deliveries are still waiting. Please try again " +
			"in a minute.",
	})
}

// deleteWebhook takes id, as do the other forms of an endpoint.
func (s *Settings) deleteWebhook(r *request) error {
	event := r.webhookEvent(audit.WebhookDeleted, r.id(), nil)
	err := s.Store.DeleteWebhook(r.ctx(), r.here.Workspace.ID, r.id(), event)
	return r.outcome(err, "The endpoint was deleted.", refusals{webhook.ErrNotFound: noEndpoint})
}

func (s *Settings) disableWebhook(r *request) error {
	event := r.webhookEvent(audit.WebhookDisabled, r.id(), nil)
	err := s.Store.DisableWebhook(r.ctx(), r.here.Workspace.ID, r.id(), event)
	return r.webhookChanged(err, "The endpoint was disabled.")
}

// enableWebhook makes the endpoint get what this user may read from then on, without personal data if another user
// asked for it.
func (s *Settings) enableWebhook(r *request) error {
	e, err := s.Store.Webhook(r.ctx(), r.here.Workspace.ID, r.id())
	if err != nil {
		return r.webhookChanged(err, "")
	}
	needs := webhook.Needs(e.Types)
	if !r.here.Permissions.HasAll(needs) {
		return r.webhookChanged(nil,
			"The endpoint was not enabled. It gets events that you may not read in this workspace.")
	}
	event := r.webhookEvent(audit.WebhookEnabled, e.ID, needs)
	err = s.Store.EnableWebhook(r.ctx(), r.here.Workspace.ID, e.ID, r.user.User.ID, event)
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
func (s *Settings) changePersonalData(r *request) error {
	e, err := s.Store.Webhook(r.ctx(), r.here.Workspace.ID, r.id())
	if err != nil {
		return r.webhookChanged(err, "")
	}
	include, notice := r.form.Get("personal") == "yes", "Events are now sent without personal data."
	var needs perm.Set
	if include {
		needs, notice = webhook.Needs(e.Types), "Events are now sent with personal data."
		if !r.here.Permissions.HasAll(needs) {
			return r.webhookChanged(nil,
				"Nothing was changed. The endpoint gets events that you may not read in this workspace.")
		}
		if err := s.reauthenticate(r, "personal"); err != nil {
			return err
		}
	}
	if r.rejected("Nothing was changed.") {
		return s.webhookPage(r, e, nil)
	}
	event := r.webhookEvent(audit.WebhookChanged, e.ID, needs)
	err = s.Store.SetWebhookPersonalData(r.ctx(), r.here.Workspace.ID, e.ID, r.user.User.ID, include, event)
	return r.webhookChanged(err, notice)
}

// replaceWebhookSecret shows the new secret, only this time. The form's key identifies the replacement, so submitting
// the same form again does not replace the secret again.
func (s *Settings) replaceWebhookSecret(r *request) error {
	e, err := s.Store.Webhook(r.ctx(), r.here.Workspace.ID, r.id())
	if err != nil {
		return r.outcome(err, "", refusals{webhook.ErrNotFound: noEndpoint})
	}
	needs := webhook.Needs(e.Types)
	if !r.here.Permissions.HasAll(needs) {
		return r.done("The secret was not replaced. It signs events that you may not read in this workspace.")
	}
	if err := s.reauthenticate(r, "secret"); err != nil {
		return err
	}
	if r.rejected("The secret was not replaced.") {
		return s.webhookPage(r, e, nil)
	}
	secret, sealed, err := s.newWebhookSecret(r, e.ID)
	if err != nil {
		return err
	}
	event := r.webhookEvent(audit.WebhookSecretReplaced, e.ID, needs)
	err = s.Store.ReplaceWebhookSecret(r.ctx(), r.here.Workspace.ID, e.ID, r.key.Makes, sealed, event)
	if errors.Is(err, webhook.ErrReplaced) {
		return s.webhookPage(r, e, &formResult{
			Heading: "The secret was already replaced",
			Text: "The new secret was shown once and cannot be shown again. If you did not save it, replace the " +
				"secret again.",
		})
	}
	if err != nil {
		return err
	}
	return s.webhookPage(r, e, &formResult{
		Heading: "The secret was replaced",
		Label:   "Signing secret",
		Value:   secret.Reveal(),
		Text: "For 24 hours, requests are signed with both secrets, and then only with the new one. The new " +
			"secret is shown only once. Store it like a password, and never in a repository.",
	})
}
