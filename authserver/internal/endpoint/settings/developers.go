package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A replacementView is the page with the form that replaces a token or the secret of an application.
type replacementView struct {
	page
	ID, Name string
	Secret   bool // of an application; otherwise a token
}

// showReplacement shows the form, as typed if it was refused: a leaked secret must not stay valid because the password
// was mistyped first.
func (r *request) showReplacement(id uuid.UUID, name string, secret bool) error {
	view := &replacementView{page{Form: r.typed(nil)}, id.String(), name, secret}
	view.Title = "Replace " + name
	return r.show("replacement", view)
}

// A tokensView is Settings → Developers: the user's tokens for one workspace.
type tokensView struct {
	listView[tokenRow]
	Ended []pat.Token
}

// A tokenRow is an active token in the list.
type tokenRow struct {
	pat.Token
	Replaces *time.Time // creation time of the active token that it replaces when it is first used, or nil
}

// showTokens shows the tokens, and what a form did.
func (s *Settings) showTokens(r *request) error {
	tokens, err := s.Store.Tokens(r.ctx(), r.user.User.ID, r.here.Workspace.ID)
	if err != nil {
		return err
	}
	view := &tokensView{}
	for _, t := range tokens {
		row := tokenRow{Token: t}
		if !t.Active(s.Now()) {
			view.Ended = append(view.Ended, t)
			continue
		}
		for _, former := range tokens {
			if t.ReplacesID != nil && former.ID == *t.ReplacesID && former.Active(s.Now()) {
				row.Replaces = &former.Created
			}
		}
		view.Rows = append(view.Rows, row)
	}
	view.Rows, view.List = listing[tokenRow]{
		Of:    "tokens",
		First: func(t tokenRow) bool { return r.created(t.ID) },
		Text:  func(t tokenRow) []string { return []string{t.Name, strings.Join(t.Permissions.Strings(), " ")} },
	}.Select(r, view.Rows)
	view.Ended = view.Ended[:min(len(view.Ended), pageSize)]
	return r.show("tokens", view)
}

// Lifetimes returns the numbers of days from which the user chooses the life of a token.
func (*page) Lifetimes() []int { return pat.Lifetimes() }

// showNewToken shows the form, as typed if it was refused.
func (s *Settings) showNewToken(r *request) error {
	view := &page{Form: r.typed(url.Values{"days": {"30"}})}
	view.Title = "New token"
	return r.show("newtoken", view)
}

// createToken takes name, days and permissions.
func (s *Settings) createToken(r *request) error {
	days, _ := strconv.Atoi(r.form.Get("days")) // text that is not a number becomes 0, which is not a choice
	wish := pat.Request{Name: r.form.Get("name"), Days: days, Permissions: r.form["permissions"]}
	for _, refusal := range wish.Refusals(r.here.Permissions) {
		r.reject("token "+refusal.Field, refusal.Message)
	}
	if err := s.confirm(r, "token", "The token was not created.", s.showNewToken); err != nil {
		return err
	}
	token, err := wish.Accept(r.here.Permissions, s.Now())
	if err != nil {
		return err
	}
	return s.saveToken(r, token, nil)
}

func (s *Settings) showTokenReplacement(r *request, token pat.Token) error {
	return r.showReplacement(token.ID, token.Name, false)
}

// replaceToken takes id. It creates a token with the name, lifetime and permissions of another, without permissions
// that the user has lost. The other token ends when the new one is first used.
func (s *Settings) replaceToken(r *request, former pat.Token) error {
	again := func(r *request) error { return s.showTokenReplacement(r, former) }
	if err := s.confirm(r, former.ID.String(), "Nothing was created.", again); err != nil {
		return err
	}
	permissions := former.Permissions.Intersect(r.here.Permissions)
	wish := pat.Request{Name: former.Name, Days: former.Days(), Permissions: permissions.Strings()}
	token, err := wish.Accept(r.here.Permissions, s.Now())
	if _, refused := errors.AsType[*pat.Refusal](err); refused {
		return s.showTokens(r.refuse(http.StatusBadRequest,
			"The token was not replaced, because you no longer have any of its permissions."))
	}
	if err != nil {
		return err
	}
	token.ReplacesID = &former.ID
	return s.saveToken(r, token, &former)
}

// saveToken stores a token and shows its value, only this time. The form's key names the token, so the same form sent
// again does not create another.
func (s *Settings) saveToken(r *request, token pat.Token, former *pat.Token) error {
	value, err := credential.PersonalAccessToken.New(s.Random)
	if err != nil {
		return fmt.Errorf("create token: %w", err)
	}
	token.ID, token.UserID, token.WorkspaceID = r.key.Makes, r.user.User.ID, r.here.Workspace.ID
	detail := map[string]any{
		"name":        token.Name,
		"permissions": token.Permissions.Strings(),
		"expires":     token.Expires.UTC().Format(time.RFC3339),
	}
	if former != nil {
		detail["replaces"] = former.ID.String()
	}
	event := r.eventHere(audit.TokenCreated, "token:"+token.ID.String(), detail, token.Permissions...)
	saved, err := s.Store.SaveToken(r.ctx(), token, credential.Hash(value.Reveal()), event)
	if err != nil {
		return err
	}
	did := outcome{What: "token again"}
	if saved {
		did = outcome{What: "token", ID: token.ID, Name: token.Name, Value: value.Reveal()}
	}
	return s.showTokens(r.withOutcome(did))
}

// token reads the active token that the form names.
func (r *request) token() (pat.Token, error) {
	tokens, err := r.Store.Tokens(r.ctx(), r.user.User.ID, r.here.Workspace.ID)
	named := func(t pat.Token) bool { return t.ID == r.id() && t.Active(r.Now()) }
	if at := slices.IndexFunc(tokens, named); at >= 0 {
		return tokens[at], nil
	}
	return pat.Token{}, cmp.Or(err, pat.ErrNoToken)
}

// revokeToken revokes a token of the user and redirects to the page.
func (s *Settings) revokeToken(r *request, token pat.Token) error {
	event := r.event(nil, audit.TokenRevoked, "token:"+token.ID.String(), nil)
	err := s.Tokens.End(r.ctx(), token, pat.ByUser, event)
	return r.done(err, "The token "+token.Name+" was revoked.")
}

// showApplications shows the OAuth applications of one workspace, and what a form did.
func (s *Settings) showApplications(r *request) error {
	view := &listView[client.Client]{}
	view.Rows, view.List = listing[client.Client]{
		Of:    "applications",
		First: func(c client.Client) bool { return r.created(c.ID) },
		Text: func(c client.Client) []string {
			return []string{c.Name, c.ID.String(), view.PlatformName(c.Platform), strings.Join(c.Redirects, " ")}
		},
	}.Select(r, read(r, s.Store.Clients, r.here.Workspace.ID))
	return r.show("applications", view)
}

// showNewApplication shows the form, as typed if it was refused, with the resources of connectors.
func (s *Settings) showNewApplication(r *request) error {
	fresh := url.Values{"kind": {string(client.Confidential)}, "resource": {s.BaseURL + "/mcp"}} // of assistants
	view := &listView[string]{Rows: s.Resources}
	view.Form, view.Title = r.typed(fresh), "Register an OAuth application"
	return r.show("newapp", view)
}

const notRegistered = "The application was not registered."

// register takes kind, name, permissions, redirect_uris, platform, resource and method. It shows the identifier of the
// client and, only this time, its secret. The form's key names the client, so the same form sent again does not create
// another.
func (s *Settings) register(r *request) error {
	wish := registration(r.form)
	c, refusals := s.checkApplication(client.Kind(r.form.Get("kind")), wish, r.here.Permissions)
	for _, refusal := range refusals {
		r.reject("app "+refusal.Field, whyNotRegistered(refusal, wish))
	}
	if err := s.confirm(r, "app", notRegistered, s.showNewApplication); err != nil {
		return err
	}
	c.ID = r.key.Makes
	c, secret, err := s.Clients.Register(r.ctx(), r.actor(), c, named(c))
	switch {
	case errors.Is(err, client.ErrTooMany):
		return s.showNewApplication(r.refuse(http.StatusConflict, notRegistered, problemOf("app name",
			"This workspace has 1,000 applications, which is the maximum. Delete one first.")))
	case errors.Is(err, client.ErrExists):
		return s.showRegisteredBefore(r)
	case err != nil:
		return err
	}
	did := outcome{
		What:     "application",
		ID:       c.ID,
		Name:     c.Name,
		Value:    secret.Reveal(),
		Client:   c.ID.String(),
		Resource: c.Resource, // of a connector
	}
	if secret != "" {
		address := url.Values{"client_id": {did.Client}, "redirect_uri": {c.Redirects[0]}, "state": {"STATE"}}
		did.Consent = s.AppURL + "/oauth/authorize?" + address.Encode()
	}
	return s.showApplications(r.withOutcome(did))
}

// checkApplication returns the client that the form describes, with a refusal for each invalid field. Its kind is the
// chosen one: a user who asks for a connector never gets a secret.
func (s *Settings) checkApplication(
	kind client.Kind, wish client.Registration, held perm.Set,
) (client.Client, []*client.Refusal) {
	c, refusals := wish.Check(s.Resources)
	if kind != client.Confidential && kind != client.Connector {
		refusals = slices.DeleteFunc(refusals, func(r *client.Refusal) bool {
			return slices.Contains([]string{"connectorPlatform", "resource", "tokenEndpointAuthMethod"}, r.Field)
		})
		refusals = append(refusals, &client.Refusal{Field: "kind"})
	}
	about := func(r *client.Refusal) bool { return r.Field == "requiredPermissions" }
	if !held.HasAll(c.Required) && !slices.ContainsFunc(refusals, about) {
		refusals = append(refusals, &client.Refusal{
			Field:   "requiredPermissions",
			Message: "You can only require permissions that you have in this workspace.",
		})
	}
	at := func(r *client.Refusal) int { return slices.Index(applicationFields, r.Field) }
	slices.SortStableFunc(refusals, func(a, b *client.Refusal) int { return at(a) - at(b) })
	return c, refusals
}

// applicationFields are the fields of the form in its order, by the field names of client.Refusal.
var applicationFields = []string{
	"name", "kind", "connectorPlatform", "resource", "tokenEndpointAuthMethod", "redirectUris", "requiredPermissions",
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

// named returns the detail of the events of a client.
func named(c client.Client) map[string]any { return map[string]any{"name": c.Name} }

// showRegisteredBefore responds to a form that was sent before. The application may have been deleted since.
func (s *Settings) showRegisteredBefore(r *request) error {
	_, err := s.Store.Client(r.ctx(), r.key.Makes)
	if errors.Is(err, client.ErrUnknown) {
		return s.showApplications(r.withOutcome(outcome{What: "application deleted"}))
	}
	if err != nil {
		return err
	}
	return s.showApplications(r.withOutcome(outcome{What: "application again", Client: r.key.Makes.String()}))
}

// application reads the workspace's client that the form names.
func (r *request) application() (client.Client, error) {
	return r.Clients.Own(r.ctx(), r.actor(), r.id())
}

func (s *Settings) showSecretReplacement(r *request, c client.Client) error {
	if c.Kind.Traits().Public {
		ui.Redirect(r.w, r.path(r.section))
		return nil
	}
	return r.showReplacement(c.ID, c.Name, true)
}

// replaceSecret takes id and expire_old.
func (s *Settings) replaceSecret(r *request, c client.Client) error {
	if c.Kind.Traits().Public {
		return s.showApplications(r.refuse(http.StatusBadRequest,
			"The secret was not replaced. An assistant is a public client and has no secret."))
	}
	again := func(r *request) error { return s.showSecretReplacement(r, c) }
	if err := s.confirm(r, c.ID.String(), "Nothing was created.", again); err != nil {
		return err
	}
	expire := r.form.Get("expire_old") == "yes"
	secret, err := s.Clients.ReplaceSecret(r.ctx(), r.actor(), c, expire, named(c))
	if err != nil {
		return err
	}
	did := outcome{What: "secret", ID: c.ID, Name: c.Name, Value: secret.Reveal(), Client: c.ID.String()}
	if expire {
		did.What = "secret at once"
	}
	return s.showApplications(r.withOutcome(did))
}

// An appDeletionView asks whether to delete an application.
type appDeletionView struct {
	page
	Application client.Client
	Would       *effects
}

func (s *Settings) showAppDeletion(r *request, c client.Client) error {
	would, _, err := s.rehearse(r, rehearsal.DeleteClient(c.ID))
	if err != nil {
		return r.done(err, "")
	}
	view := &appDeletionView{Application: c, Would: would}
	view.Title = "Delete " + c.Name
	return r.show("deleteapp", view)
}

// deleteApplication takes id.
func (s *Settings) deleteApplication(r *request, c client.Client) error {
	_, err := s.Clients.Delete(r.ctx(), r.actor(), c.ID, named(c))
	if errors.Is(err, client.ErrUnknown) {
		err = nil
	}
	return r.done(err, c.Name+" was deleted and disconnected for everyone.")
}

// whyNotRegistered returns the message for the form's user. The message of client.Refusal is for API clients and names
// JSON members.
func whyNotRegistered(r *client.Refusal, wish client.Registration) string {
	switch r.Field {
	case "redirectUris":
		switch {
		case r.Nth > 0: // empty lines do not count
			return "Address " + strconv.Itoa(r.Nth) + " of " + strconv.Itoa(len(wish.Redirects)) + ": " + r.Message
		case len(wish.Redirects) != 1:
			return "Enter 1 to 20 redirect URIs, one per line."
		}
	case "requiredPermissions":
		return aboutPermissions(r, wish)
	}
	return r.Message
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
		return "Assistants cannot have the permission “" + entry.Title + "”. Deselect it."
	}
	required := perm.FromStrings(wish.Required)
	if surplus := required.Without(required.Usable(wish.Resource)); wish.Connector && len(surplus) > 0 {
		entry, _ := perm.Describe(surplus[0])
		return wish.Resource + " does not use the permission “" + entry.Title +
			"”. Deselect it or choose another resource."
	}
	return r.Message
}
