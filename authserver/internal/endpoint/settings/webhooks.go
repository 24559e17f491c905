package settings

import (
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A webhooksView is the page of the endpoints of one workspace.
type webhooksView struct {
	developerPage
	Webhooks []endpoint
}

func (*webhooksView) Template() string { return "webhooks" }

// An endpoint is a webhook endpoint as a page shows it.
type endpoint struct {
	ID, URL      string
	Types        []string
	PersonalData bool   // events are sent with personal data
	State        string // working, waiting, refused: the style
	Word         string // the same in words
	Enabled      bool
	Created      time.Time
	Note         *stateNote // nil unless it is failing or disabled
}

// A stateNote is a sentence about a failing or disabled endpoint, with a time between its parts.
type stateNote struct {
	Before string
	Since  time.Time
	After  string
}

func endpointView(e webhook.Endpoint) endpoint {
	out := endpoint{
		ID:           e.ID.String(),
		URL:          e.URL,
		Types:        e.Types,
		PersonalData: e.PersonalData,
		State:        "working",
		Word:         "Enabled",
		Enabled:      e.Enabled,
		Created:      e.CreatedAt,
	}
	switch {
	case !e.Enabled:
		out.State, out.Word = "refused", "Disabled"
		out.Note = &stateNote{"Disabled on", *e.DisabledAt, whyDisabled(e.Reason)}
	case e.FailingSince != nil:
		out.State, out.Word = "waiting", "Failing"
		after := ". After three days, the endpoint is disabled."
		out.Note = &stateNote{"All deliveries have failed since", *e.FailingSince, after}
	}
	return out
}

func whyDisabled(reason webhook.Reason) string {
	switch reason {
	case webhook.Failing:
		return ", because all deliveries failed for three days."
	case webhook.Gone:
		return ", because it answered that it is gone (status 410)."
	case webhook.NoRight:
		return ", because the person who added it may no longer manage API access, or the token or application that " +
			"added it has ended. If you enable it, it gets the events that you may read."
	}
	return "."
}

func (s *Settings) showWebhooks(r *request) error { return s.listWebhooks(r, nil) }

// listWebhooks shows the endpoints, and what a form did.
func (s *Settings) listWebhooks(r *request, result *formResult) error {
	endpoints, err := s.Store.Webhooks(r.ctx(), r.here.Workspace.ID)
	if err != nil {
		return err
	}
	view := &webhooksView{}
	view.Outcome = result
	for _, e := range endpoints {
		view.Webhooks = append(view.Webhooks, endpointView(e))
	}
	return s.showDeveloper(r, view)
}

// A newWebhookView is the page with the form for a new endpoint.
type newWebhookView struct {
	developerPage
	URL          string
	Groups       []eventGroup
	PersonalData bool
}

func (*newWebhookView) Template() string { return "newwebhook" }

// An eventGroup is the checkboxes of the types of events about one subject.
type eventGroup struct {
	Title string
	Types []eventBox
}

// An eventBox is the checkbox of one type of events.
type eventBox struct {
	Type   string
	Chosen bool
}

// showNewWebhook shows the form, as typed if it was refused, with the types of events that the user may read.
func (s *Settings) showNewWebhook(r *request) error {
	view := &newWebhookView{}
	view.Title = "Add an endpoint"
	var chosen []string
	if r.status != 0 {
		view.URL, view.PersonalData, chosen = r.form.Get("url"), r.form.Get("personal") == "yes", r.form["types"]
	}
	for _, subject := range webhook.Subjects() {
		if !r.here.Permissions.Has(subject.Need) {
			continue
		}
		group := eventGroup{Title: subject.Title}
		for _, one := range subject.Types() {
			group.Types = append(group.Types, eventBox{one, slices.Contains(chosen, one)})
		}
		view.Groups = append(view.Groups, group)
	}
	return s.showDeveloper(r, view)
}

const notAdded = "The endpoint was not added."

func urlProblem(text string) ui.Problem { return ui.ProblemAt("url", "webhook-url", "URL", text) }

// addWebhook takes url, types and personal.
func (s *Settings) addWebhook(r *request) error {
	e := webhook.Endpoint{
		ID:           uuid.NewSHA1(r.key.Makes, r.here.Workspace.ID[:]), // a key is valid in each workspace
		WorkspaceID:  r.here.Workspace.ID,
		Maker:        webhook.Maker{UserID: r.user.User.ID},
		URL:          spelling.Pasted(r.form.Get("url")),
		Types:        r.form["types"],
		PersonalData: r.form.Get("personal") == "yes",
	}
	s.checkWebhook(r, e)
	if err := s.reauthenticate(r, "webhook"); err != nil {
		return err
	}
	if r.rejected(notAdded) {
		return s.showNewWebhook(r)
	}
	secret, sealed, err := s.newWebhookSecret(r, e.ID)
	if errors.Is(err, webhook.ErrNotReady) {
		r.refuse(http.StatusServiceUnavailable, notAdded,
			urlProblem("Webhooks are not available yet: the API has not started. Please try again in a minute."))
		return s.showNewWebhook(r)
	}
	if err != nil {
		return err
	}
	event := r.webhookEvent(audit.WebhookAdded, e.ID, webhook.Needs(e.Types))
	err = s.Store.AddWebhook(r.ctx(), e, sealed, event)
	switch {
	case errors.Is(err, webhook.ErrTooMany):
		r.refuse(http.StatusConflict, notAdded,
			urlProblem("This workspace has 20 endpoints, which is the maximum. Delete one first."))
		return s.showNewWebhook(r)
	case errors.Is(err, webhook.ErrTaken):
		return s.listWebhooks(r, &formResult{
			Heading: "This endpoint was already added",
			Text: "Its secret was shown once and cannot be shown again. If you did not save it, delete the " +
				"endpoint and add it again.",
		})
	case err != nil:
		return err
	}
	return s.listWebhooks(r, &formResult{
		Heading: "The endpoint was added",
		Label:   "Signing secret",
		Value:   secret.Reveal(),
		Text: "Your server verifies each request with this secret (Standard Webhooks). It is shown only once. " +
			"Store it like a password, and never in a repository.",
	})
}

// checkWebhook rejects the fields of an endpoint that are not valid.
func (s *Settings) checkWebhook(r *request, e webhook.Endpoint) {
	if e.URL == "" {
		r.reject(urlProblem("Enter the URL of your endpoint."))
	} else if note := webhook.CheckURL(r.ctx(), s.Network, e.URL); note != "" {
		r.reject(urlProblem(note))
	}
	note := ""
	switch {
	case len(e.Types) == 0:
		note = "Choose at least one kind of event."
	case webhook.CheckTypes(e.Types) != "" || !r.here.Permissions.HasAll(webhook.Needs(e.Types)):
		note = "You can only choose events that you may read in this workspace."
	default:
		return
	}
	r.reject(ui.ProblemAt("types", "webhook-types", "Events", note))
}

// newWebhookSecret returns a new secret of an endpoint, also sealed for the store. It returns webhook.ErrNotReady until
// the API has started.
func (s *Settings) newWebhookSecret(r *request, id uuid.UUID) (credential.Secret, webhook.Sealed, error) {
	key, err := s.Store.WebhookKey(r.ctx())
	if err != nil {
		return "", webhook.Sealed{}, err
	}
	secret, err := webhook.NewSecret(rand.Reader)
	if err != nil {
		return "", webhook.Sealed{}, err
	}
	sealed, err := webhook.Seal(key, id, secret)
	return secret, sealed, err
}

func (r *request) webhookEvent(action audit.Action, id uuid.UUID, more perm.Set) audit.Event {
	return r.eventHere(action, "webhook:"+id.String(), nil, more...)
}
