package developers

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/eventtype"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/webhook"
)

// deliveriesShown is how many deliveries the log of an endpoint shows.
const deliveriesShown = 50

// An endpoint is a webhook endpoint as a page shows it.
type endpoint struct {
	ID, URL string
	Types   []string
	// PersonalData is whether events are sent with personal data.
	PersonalData bool

	State   string // working, waiting, refused: the style
	Word    string // the same in words
	Enabled bool
	Created time.Time
	Note    *stateNote // nil unless it is failing or disabled
}

// A stateNote is a sentence about a failing or disabled endpoint, with a time between its parts.
type stateNote struct {
	Before string
	Since  time.Time
	After  string
}

func endpointView(e webhook.Endpoint) endpoint {
	out := endpoint{
		ID:    e.ID.String(),
		URL:   e.URL,
		Types: e.Types,

		PersonalData: e.PersonalData,

		State:   "working",
		Word:    "Enabled",
		Enabled: e.Enabled,
		Created: e.CreatedAt,
	}
	switch {
	case !e.Enabled:
		out.State, out.Word = "refused", "Disabled"
		out.Note = &stateNote{"Disabled on", *e.DisabledAt, whyDisabled(e.Reason)}
	case e.FailingSince != nil:
		out.State, out.Word = "waiting", "Failing"
		out.Note = &stateNote{
			"All deliveries have failed since", *e.FailingSince, ". After three days, the endpoint is disabled.",
		}
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
			"added it has ended. If you enable it, it gets the " +
			"events that you may read."
	}
	return "."
}

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

// eventGroups returns the types of events that a user with these permissions may read.
func eventGroups(held perm.Set, chosen []string) []eventGroup {
	var groups []eventGroup
	for _, s := range eventtype.Subjects() {
		if !held.Has(s.Need) {
			continue
		}
		group := eventGroup{Title: s.Title}
		for _, one := range s.Types() {
			group.Types = append(group.Types, eventBox{one, slices.Contains(chosen, one)})
		}
		groups = append(groups, group)
	}
	return groups
}

// A webhooksView is the page of the endpoints of one workspace.
type webhooksView struct {
	common
	Webhooks []endpoint
}

func (*webhooksView) Template() string { return "webhooks" }

// showWebhooks serves GET /settings/webhooks.
func (h *Handler) showWebhooks(v *settings.Request, here settings.Scope) error {
	return h.listWebhooks(v, here, func(*webhooksView) {})
}

// listWebhooks shows the endpoints, changed by adjust.
func (h *Handler) listWebhooks(v *settings.Request, here settings.Scope, adjust func(*webhooksView)) error {
	endpoints, err := h.Store.Webhooks(v.R.Context(), here.Workspace.ID)
	if err != nil {
		return err
	}
	common, err := h.common(v, here, hooks)
	if err != nil {
		return err
	}
	view := &webhooksView{common: common}
	for _, e := range endpoints {
		view.Webhooks = append(view.Webhooks, endpointView(e))
	}
	adjust(view)
	h.Pages.Show(v.W, v.R, http.StatusOK, view)
	return nil
}

// A newWebhookView is the page with the form for a new endpoint.
type newWebhookView struct {
	common
	URL          string
	Groups       []eventGroup
	PersonalData bool
}

func (*newWebhookView) Template() string { return "newwebhook" }

// showNewWebhook serves GET /settings/webhooks/new.
func (h *Handler) showNewWebhook(v *settings.Request, here settings.Scope) error {
	return h.newWebhook(v, here, http.StatusOK, func(*newWebhookView) {})
}

// newWebhook shows the form, changed by adjust.
func (h *Handler) newWebhook(
	v *settings.Request, here settings.Scope, status int, adjust func(*newWebhookView),
) error {
	common, err := h.common(v, here, hooks)
	if err != nil {
		return err
	}
	common.Title = "Add an endpoint"
	view := &newWebhookView{common: common, Groups: eventGroups(here.Permissions, nil)}
	adjust(view)
	h.Pages.Show(v.W, v.R, status, view)
	return nil
}

// A webhookView is the page of one endpoint with its log.
type webhookView struct {
	common
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

// webhookPath returns the path of the page of an endpoint.
func webhookPath(here settings.Scope, id uuid.UUID) string {
	return strings.Replace(here.Path(Section), "?", "/webhook?", 1) + "&id=" + id.String()
}

// webhookPage serves GET /settings/developers/webhook.
func (h *Handler) webhookPage() http.Handler {
	return h.Page(func(v *settings.Request) error {
		query := v.R.URL.Query()
		here, err := h.At(v, query.Get("tenant"), Section)
		if err != nil {
			return err
		}
		id, err := identity.Parse(query.Get("id"))
		if err != nil {
			id = uuid.Nil
		}
		e, err := h.Store.Webhook(v.R.Context(), here.Workspace.ID, id)
		if errors.Is(err, webhook.ErrNotFound) {
			h.Pages.ShowError(v.W, v.R, &ui.Message{
				Status:  http.StatusNotFound,
				Heading: "There is no such endpoint",
				Text:    "It was deleted, or it belongs to another workspace.",
				Links:   []ui.Link{{Href: here.Path(hooks), Text: "Back to the webhooks"}},
			})
			return nil
		}
		if err != nil {
			return err
		}
		return h.showWebhook(v, here, e, http.StatusOK, func(*webhookView) {})
	})
}

// showWebhook shows the page of an endpoint, which adjust can change.
func (h *Handler) showWebhook(
	v *settings.Request, here settings.Scope, e webhook.Endpoint, status int, adjust func(*webhookView),
) error {
	deliveries, err := h.Store.WebhookDeliveries(v.R.Context(), e.WorkspaceID, e.ID, deliveriesShown)
	if err != nil {
		return err
	}
	common, err := h.common(v, here, hooks)
	if err != nil {
		return err
	}
	page := &webhookView{common: common, Endpoint: endpointView(e)}
	page.Title = page.Endpoint.URL
	for _, d := range deliveries {
		page.Deliveries = append(page.Deliveries, deliveryView(d, e))
		page.Waiting = page.Waiting || d.TriedAt == nil
	}
	adjust(page)
	h.Pages.Show(v.W, v.R, status, page)
	return nil
}
