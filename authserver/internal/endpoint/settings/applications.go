package settings

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// An applicationsView is the page of the OAuth applications of one workspace.
type applicationsView struct {
	developerPage
	List listPage
	Apps []applicationRow
}

func (*applicationsView) Template() string { return "applications" }

// An applicationRow is an OAuth application in the list.
type applicationRow struct {
	ID, Name  string
	Connector bool
	Platform  string
	Resource  string
	Method    string
	Redirects []string
	Required  perm.Set
	Created   time.Time
}

func (s *Settings) showApplications(r *request) error { return s.listApplications(r, nil) }

// listApplications shows the applications, and what a form did.
func (s *Settings) listApplications(r *request, result *formResult) error {
	clients, err := s.Store.Clients(r.ctx(), r.here.Workspace.ID)
	if err != nil {
		return err
	}
	view := &applicationsView{}
	view.Outcome = result
	for _, c := range clients {
		view.Apps = append(view.Apps, applicationRow{
			ID:        c.ID.String(),
			Name:      c.Name,
			Connector: c.Kind == client.Connector,
			Platform:  workspace.PlatformOf(c.Platform).Name(),
			Resource:  c.Resource,
			Method:    string(c.AuthMethod),
			Redirects: c.Redirects,
			Required:  c.Required,
			Created:   c.CreatedAt,
		})
	}
	view.Apps, view.List = listing[applicationRow]{
		Of:    "applications",
		Path:  r.path(r.section),
		First: func(a applicationRow) bool { return result != nil && a.ID == result.ID },
		Matches: func(a applicationRow, words string) bool {
			return contains(words, a.Name, a.ID, a.Platform, strings.Join(a.Redirects, " "))
		},
	}.Select(r.query(), view.Apps)
	return s.showDeveloper(r, view)
}

// A newApplicationView is the page with the form for a new application.
type newApplicationView struct {
	developerPage
	Kind      string // confidential or connector
	Name      string
	Redirects string // one per line
	Chosen    perm.Set
	Platform  string
	Resource  string
	Method    string
	Resources []string
}

func (*newApplicationView) Template() string { return "newapp" }

func (s *Settings) showNewApplication(r *request) error {
	// Assistants use the resource.
	return s.applicationForm(r, &newApplicationView{Kind: string(client.Confidential), Resource: s.BaseURL + "/mcp"})
}

func (s *Settings) applicationForm(r *request, view *newApplicationView) error {
	view.Title, view.Resources = "Register an application", s.Resources
	return s.showDeveloper(r, view)
}

// showTyped shows the form as typed.
func (s *Settings) showTyped(r *request) error {
	return s.applicationForm(r, &newApplicationView{
		Kind:      r.form.Get("kind"),
		Name:      r.form.Get("name"),
		Redirects: r.form.Get("redirect_uris"),
		Chosen:    perm.FromStrings(r.form["permissions"]),
		Platform:  r.form.Get("platform"),
		Resource:  r.form.Get("resource"),
		Method:    r.form.Get("method"),
	})
}

const notRegistered = "The application was not registered."

// register takes kind, name, permissions, redirect_uris, platform, resource and method.
func (s *Settings) register(r *request) error {
	wish := registration(r.form)
	c, refusals := s.checkApplication(client.Kind(r.form.Get("kind")), wish, r.here.Permissions)
	for _, refusal := range refusals {
		r.reject(applicationProblem(refusal.Field, whyNotRegistered(refusal, wish)))
	}
	if err := s.reauthenticate(r, "app"); err != nil {
		return err
	}
	if r.rejected(notRegistered) {
		return s.showTyped(r)
	}
	return s.saveApplication(r, c)
}

// checkApplication returns the client that the form describes, with a refusal for each invalid field. Its kind is the
// chosen one: a user who asks for a connector never gets a secret.
func (s *Settings) checkApplication(
	kind client.Kind, wish client.Registration, held perm.Set,
) (client.Client, []*client.Refusal) {
	c, refusals := wish.Check(s.Resources)
	if kind != client.Confidential && kind != client.Connector {
		refusals = slices.DeleteFunc(refusals, func(r *client.Refusal) bool { return ofKind(r.Field) })
		unknown := &client.Refusal{Field: "kind", Message: "Choose a kind: confidential or connector."}
		refusals = append(refusals, unknown)
	}
	about := func(r *client.Refusal) bool { return r.Field == "requiredPermissions" }
	if !held.HasAll(c.Required) && !slices.ContainsFunc(refusals, about) {
		refusals = append(refusals, &client.Refusal{
			Field:   "requiredPermissions",
			Message: "You can only require permissions that you have in this workspace.",
		})
	}
	slices.SortStableFunc(refusals, func(a, b *client.Refusal) int {
		return slices.Index(applicationFields, a.Field) - slices.Index(applicationFields, b.Field)
	})
	return c, refusals
}

// ofKind reports whether a field is shown for one kind of application only.
func ofKind(field string) bool {
	return field == "connectorPlatform" || field == "resource" || field == "tokenEndpointAuthMethod"
}

func registration(form url.Values) client.Registration {
	out := client.Registration{Name: form.Get("name"), Required: form["permissions"]}
	for _, line := range strings.Split(form.Get("redirect_uris"), "\n") {
		if uri := spelling.Pasted(line); uri != "" {
			out.Redirects = append(out.Redirects, uri)
		}
	}
	if form.Get("kind") == string(client.Connector) {
		out.Connector, out.Platform, out.Resource = true, form.Get("platform"), form.Get("resource")
	} else {
		out.AuthMethod = form.Get("method")
	}
	return out
}

// saveApplication stores a client and shows its identifier and, only this time, its secret. The form's key names the
// client, so the same form sent again does not create another.
func (s *Settings) saveApplication(r *request, c client.Client) error {
	c.ID = r.key.Makes
	c, secret, err := s.Clients.Register(r.ctx(), r.actor(), c, named(c))
	switch {
	case errors.Is(err, client.ErrTooMany):
		r.refuse(http.StatusConflict, notRegistered, applicationProblem("name",
			"This workspace has 1,000 applications, which is the maximum. Delete one first."))
		return s.showTyped(r)
	case errors.Is(err, client.ErrExists):
		return s.showRegisteredBefore(r, r.key.Makes)
	case err != nil:
		return err
	}
	result := &formResult{
		Heading: c.Name + " was registered",
		ID:      c.ID.String(),
		Client:  c.ID.String(),
		Label:   "Client secret",
		Text:    "A connector has no secret. The platform needs only the client id.",
	}
	if secret != "" {
		result.Value = secret.Reveal()
		result.Text = "The secret is shown only once. Store it like a password, and never in a repository."
	}
	s.addSteps(result, c)
	return s.listApplications(r, result)
}

// named returns the detail of the events of a client.
func named(c client.Client) map[string]any { return map[string]any{"name": c.Name} }

// addSteps tells the person who registered an application what to do next.
func (s *Settings) addSteps(result *formResult, c client.Client) {
	if c.Kind.Traits().Public {
		result.Docs = s.BaseURL + "/v1/docs#authorize"
		result.Steps = []string{
			"On the platform, add a custom connector with the address " + c.Resource + " and this client id.",
			"Connect it there, sign in here and approve. The connection then appears in Connected apps.",
		}
		return
	}
	result.Docs = s.BaseURL + "/v1/docs#exchangeToken"
	result.Consent = s.AppURL + "/oauth/authorize?" + url.Values{
		"client_id":    {result.Client},
		"redirect_uri": {c.Redirects[0]},
		"state":        {"STATE"},
	}.Encode()
	result.Steps = []string{
		"Store the client id and the secret on your server.",
		"Send people to the address above, with a new random value instead of STATE each time.",
		"At your redirect URI, check that state is the value that you sent.",
		"Exchange the code on your server within 60 seconds, at " + s.BaseURL + "/v1/account/oauth/token.",
	}
}

// showRegisteredBefore responds to a form that was sent before. The application may have been deleted since.
func (s *Settings) showRegisteredBefore(r *request, id uuid.UUID) error {
	_, err := s.Store.Client(r.ctx(), id)
	if errors.Is(err, client.ErrUnknown) {
		return s.listApplications(r, &formResult{
			Heading: "This application was deleted",
			Text:    "You registered it with this form earlier. To register another application, open this page again.",
		})
	}
	if err != nil {
		return err
	}
	return s.listApplications(r, &formResult{
		Heading: "This application was already registered",
		Client:  id.String(),
		Text: "If it has a secret, it was shown once and cannot be shown again. If you did not save it, " +
			"replace it.",
	})
}

// ownApplication returns the workspace's client that the form names. If there is none, it redirects and returns
// errAnswered.
func (s *Settings) ownApplication(r *request) (client.Client, error) {
	c, err := s.Store.Client(r.ctx(), r.id())
	if err == nil && c.WorkspaceID == r.here.Workspace.ID {
		return c, nil
	}
	if err != nil && !errors.Is(err, client.ErrUnknown) {
		return client.Client{}, err
	}
	return client.Client{}, r.gone(r.path(r.section), "The application is no longer registered.")
}

func (s *Settings) showSecretReplacement(r *request) error {
	c, err := s.ownApplication(r)
	if err != nil {
		return err
	}
	if c.Kind.Traits().Public {
		redirect(r.w, r.path(r.section))
		return nil
	}
	return s.showReplacement(r, &replacementView{ID: c.ID.String(), Name: c.Name, Secret: true})
}

// replaceSecret takes id and expire_old.
func (s *Settings) replaceSecret(r *request) error {
	c, err := s.ownApplication(r)
	if err != nil {
		return err
	}
	if c.Kind.Traits().Public {
		r.refuse(http.StatusBadRequest,
			"The secret was not replaced. A connector is a public client and has no secret.")
		return s.listApplications(r, nil)
	}
	if err := s.reauthenticate(r, c.ID.String()); err != nil {
		return err
	}
	expire := r.form.Get("expire_old") == "yes"
	if r.rejected("Nothing was created.") {
		view := &replacementView{ID: c.ID.String(), Name: c.Name, Secret: true, ExpireOld: expire}
		return s.showReplacement(r, view)
	}
	secret, err := s.Clients.ReplaceSecret(r.ctx(), r.actor(), c, expire, named(c))
	if err != nil {
		return err
	}
	text := "It is shown only once. The old secret keeps working for 24 hours."
	if expire {
		text = "It is shown only once. The old secret no longer works."
	}
	return s.listApplications(r, &formResult{
		Heading: "New secret of " + c.Name,
		Text:    text,
		ID:      c.ID.String(),
		Client:  c.ID.String(),
		Label:   "Client secret",
		Value:   secret.Reveal(),
	})
}

// deleteApplication takes id.
func (s *Settings) deleteApplication(r *request) error {
	c, err := s.ownApplication(r)
	if err != nil {
		return err
	}
	_, err = s.Clients.Delete(r.ctx(), r.actor(), c.ID, named(c))
	if err != nil && !errors.Is(err, client.ErrUnknown) {
		return err
	}
	return r.done(c.Name + " was deleted and disconnected for everyone.")
}

// applicationFields are the field names of client.Refusal, in the order of the form.
var applicationFields = []string{
	"name", "kind", "connectorPlatform", "resource", "tokenEndpointAuthMethod", "redirectUris", "requiredPermissions",
}

// applicationProblem returns the error of a field in the form for a new application, by the field names of
// client.Refusal.
func applicationProblem(field, text string) ui.Problem {
	at := map[string][2]string{
		"name":                    {"app-name", "Name"},
		"kind":                    {"app-kind", "Kind"},
		"redirectUris":            {"app-redirects", "Redirect URIs"},
		"requiredPermissions":     {"app-permissions", "Required permissions"},
		"connectorPlatform":       {"app-platform", "Platform"},
		"resource":                {"app-resource", "Resource"},
		"tokenEndpointAuthMethod": {"app-method", "Token endpoint authentication method"},
	}[field]
	return ui.ProblemAt(field, at[0], at[1], text)
}

// whyNotRegistered returns the message for the form's user. The message of client.Refusal is for API clients and names
// JSON members.
func whyNotRegistered(r *client.Refusal, wish client.Registration) string {
	switch r.Field {
	case "redirectUris":
		return aboutAddresses(r, wish)
	case "requiredPermissions":
		return aboutPermissions(r, wish)
	case "connectorPlatform":
		return "Choose a platform."
	case "resource":
		return "Choose a resource."
	case "tokenEndpointAuthMethod":
		return "Choose an authentication method."
	}
	return r.Message
}

func aboutAddresses(r *client.Refusal, wish client.Registration) string {
	switch {
	case r.Nth > 0: // empty lines do not count
		return "Address " + strconv.Itoa(r.Nth) + " of " + strconv.Itoa(len(wish.Redirects)) + ": " + r.Message
	case len(wish.Redirects) == 1:
		return r.Message
	}
	return "Enter 1 to 20 redirect URIs, one per line."
}

func aboutPermissions(r *client.Refusal, wish client.Registration) string {
	notForConnectors := func(id string) bool {
		entry, known := perm.Describe(perm.Permission(id))
		return known && !entry.Connector
	}
	switch at := slices.IndexFunc(wish.Required, notForConnectors); {
	case len(wish.Required) == 0:
		return "Choose at least one permission."
	case at >= 0 && wish.Connector:
		entry, _ := perm.Describe(perm.Permission(wish.Required[at]))
		return "Connectors cannot have the permission “" + entry.Title + "”. Deselect it."
	}
	required := perm.FromStrings(wish.Required)
	if surplus := required.Without(required.Usable(wish.Resource)); wish.Connector && len(surplus) > 0 {
		entry, _ := perm.Describe(surplus[0])
		return wish.Resource + " does not use the permission “" + entry.Title +
			"”. Deselect it or choose another resource."
	}
	return r.Message
}
