package developers

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/spelling"
)

// overlap is how long a replaced secret still works (contract, section 5).
const overlap = 24 * time.Hour

// registerApp serves POST /settings/developers/apps.
func (h *Handler) registerApp() http.Handler {
	return h.form(applications, func(v *settings.Request, here settings.Scope) error {
		wish := registration(v)
		c, refusals := h.check(client.Kind(v.Form.Get("kind")), wish, here.Permissions)
		var problems ui.Problems
		for _, refusal := range refusals {
			problems = append(problems, appProblem(refusal.Field, whyNotRegistered(refusal, wish)))
		}
		status, text, err := h.reauthenticate(v, len(problems) == 0)
		if err != nil {
			return err
		}
		if text != "" {
			problems = append(problems, passwordProblem("app", text))
		}
		if len(problems) > 0 {
			return h.newApp(v, here, status, func(page *newAppView) {
				page.Refuse("The application was not registered.", problems...)
				page.appForm = typedApp(v)
			})
		}
		return h.saveApp(v, here, c)
	})
}

// check returns the client that the form describes, with a refusal for each invalid field. Its kind is the chosen one:
// a user who asks for a connector never gets a secret.
func (h *Handler) check(
	kind client.Kind, wish client.Registration, held perm.Set,
) (client.Client, []*client.Refusal) {
	c, refusals := wish.Check(h.Resources)
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
		return slices.Index(appFields, a.Field) - slices.Index(appFields, b.Field)
	})
	return c, refusals
}

// ofKind reports whether a field is shown for one kind of application only.
func ofKind(field string) bool {
	return field == "connectorPlatform" || field == "resource" || field == "tokenEndpointAuthMethod"
}

func registration(v *settings.Request) client.Registration {
	out := client.Registration{Name: v.Form.Get("name"), Required: v.Form["permissions"]}
	for _, line := range strings.Split(v.Form.Get("redirect_uris"), "\n") {
		if uri := spelling.Pasted(line); uri != "" {
			out.Redirects = append(out.Redirects, uri)
		}
	}
	if v.Form.Get("kind") == string(client.Connector) {
		out.Connector, out.Platform, out.Resource = true, v.Form.Get("platform"), v.Form.Get("resource")
	} else {
		out.AuthMethod = v.Form.Get("method")
	}
	return out
}

func typedApp(v *settings.Request) appForm {
	return appForm{
		Kind:      v.Form.Get("kind"),
		Name:      v.Form.Get("name"),
		Redirects: v.Form.Get("redirect_uris"),
		Chosen:    perm.FromStrings(v.Form["permissions"]),
		Platform:  v.Form.Get("platform"),
		Resource:  v.Form.Get("resource"),
		Method:    v.Form.Get("method"),
	}
}

// saveApp stores a client and shows its identifier and, only this time, its secret. The form's key names the client, so
// the same form sent again does not create another.
func (h *Handler) saveApp(v *settings.Request, here settings.Scope, c client.Client) error {
	c.ID, c.WorkspaceID, c.CreatedBy = v.Key.Makes, here.Workspace.ID, &v.Current.User.ID
	c.CreatedAt = h.Now().UTC().Truncate(time.Microsecond)
	var secret credential.Secret
	var hash []byte
	if !c.Kind.Traits().Public {
		var err error
		if secret, err = credential.ClientSecret.New(rand.Reader); err != nil {
			return fmt.Errorf("create client secret: %w", err)
		}
		hash = credential.Hash(secret.Reveal())
	}
	registered := v.EventIn(
		here,
		audit.ClientRegistered,
		"client:"+c.ID.String(),
		map[string]any{"name": c.Name},
		c.Required...,
	)
	saved, err := h.Store.SaveClient(v.R.Context(), c, hash, registered)
	if errors.Is(err, client.ErrTooMany) {
		return h.newApp(v, here, http.StatusConflict, func(page *newAppView) {
			page.Refuse("The application was not registered.", appProblem("name", "This workspace has 1,000 "+
				"applications, which is the maximum. Delete one first."))
			page.appForm = typedApp(v)
		})
	}
	if err != nil {
		return err
	}
	if !saved {
		return h.showRegisteredBefore(v, here, c.ID)
	}
	result := &outcome{
		Heading: c.Name + " was registered",
		ID:      c.ID.String(),
		Client:  c.ID.String(),
		Label:   "Client secret",
		Value:   secret.Reveal(),
	}
	result.Text = "A connector has no secret. The platform needs only the client id."
	if secret != "" {
		result.Text = "The secret is shown only once. Store it like a password, and never in a repository."
	}
	h.addSteps(result, c)
	return h.listApps(v, here, http.StatusOK, func(page *appsView) { page.Outcome = result })
}

// addSteps tells the person who registered an application what to do next.
func (h *Handler) addSteps(result *outcome, c client.Client) {
	if c.Kind.Traits().Public {
		result.Docs = h.BaseURL + "/v1/docs#authorize"
		result.Steps = []string{
			"On the platform, add a custom connector with the address " + c.Resource + " and this client id.",
			"Connect it there, sign in here and approve. The connection then appears in Connected apps.",
		}
		return
	}
	result.Docs = h.BaseURL + "/v1/docs#exchangeToken"
	result.Consent = h.AppURL + "/oauth/authorize?" + url.Values{
		"client_id":    {result.Client},
		"redirect_uri": {c.Redirects[0]},
		"state":        {"STATE"},
	}.Encode()
	result.Steps = []string{
		"Store the client id and the secret on your server.",
		"Send people to the address above, with a new random value instead of STATE each time.",
		"At your redirect URI, check that state is the value that you sent.",
		"Exchange the code on your server within 60 seconds, at " + h.BaseURL + "/v1/account/oauth/token.",
	}
}

// showRegisteredBefore responds to a form that was sent before. The application may have been deleted since.
func (h *Handler) showRegisteredBefore(v *settings.Request, here settings.Scope, id uuid.UUID) error {
	result := &outcome{
		Heading: "This application was already registered", Client: id.String(),
		Text: "If it has a secret, it was shown once and cannot be shown again. If you did not save it, replace it.",
	}
	if _, err := h.Store.Client(v.R.Context(), id); errors.Is(err, client.ErrUnknown) {
		result = &outcome{
			Heading: "This application was deleted",
			Text:    "You registered it with this form earlier. To register another application, open this page again.",
		}
	} else if err != nil {
		return err
	}
	return h.listApps(v, here, http.StatusOK, func(page *appsView) { page.Outcome = result })
}

// ownApp returns the workspace's client that the form names. If there is none, it writes the response and returns
// answered.
func (h *Handler) ownApp(v *settings.Request, here settings.Scope) (client.Client, error) {
	id, err := identity.Parse(cmp.Or(v.Form.Get("id"), v.R.URL.Query().Get("id")))
	if err != nil {
		id = uuid.Nil
	}
	c, err := h.Store.Client(v.R.Context(), id)
	if err == nil && c.WorkspaceID == here.Workspace.ID {
		return c, nil
	}
	if err != nil && !errors.Is(err, client.ErrUnknown) {
		return client.Client{}, err
	}
	if err := h.Done(v, here.Path(applications), "The application is no longer registered."); err != nil {
		return client.Client{}, err
	}
	return client.Client{}, settings.ErrAnswered
}

// replaceSecret serves POST /settings/developers/apps/secret.
func (h *Handler) replaceSecret() http.Handler {
	return h.form(applications, func(v *settings.Request, here settings.Scope) error {
		c, err := h.ownApp(v, here)
		if err != nil {
			return err
		}
		if c.Kind.Traits().Public {
			return h.listApps(v, here, http.StatusBadRequest, func(page *appsView) {
				page.Problem = "The secret was not replaced. A connector is a public client and has no secret."
			})
		}
		status, note, err := h.reauthenticate(v, true)
		if err != nil {
			return err
		}
		if note != "" {
			return h.showReplacement(v, here, status, ofApp(c), note)
		}
		secret, err := credential.ClientSecret.New(rand.Reader)
		if err != nil {
			return fmt.Errorf("create client secret: %w", err)
		}
		old := overlap
		if v.Form.Get("expire_old") == "yes" {
			old = 0
		}
		err = h.Store.ReplaceSecret(v.R.Context(), here.Workspace.ID, c.ID, credential.Hash(secret.Reveal()), old,
			v.EventIn(here, audit.ClientSecretReplaced, "client:"+c.ID.String(), map[string]any{"name": c.Name}))
		if err != nil {
			return err
		}
		text := "It is shown only once. The old secret keeps working for 24 hours."
		if old == 0 {
			text = "It is shown only once. The old secret no longer works."
		}
		return h.listApps(v, here, http.StatusOK, func(page *appsView) {
			page.Outcome = &outcome{
				Heading: "New secret of " + c.Name,
				Text:    text,
				ID:      c.ID.String(),
				Client:  c.ID.String(),
				Label:   "Client secret",
				Value:   secret.Reveal(),
			}
		})
	})
}

// deleteApp serves POST /settings/developers/apps/delete.
func (h *Handler) deleteApp() http.Handler {
	return h.form(applications, func(v *settings.Request, here settings.Scope) error {
		c, err := h.ownApp(v, here)
		if err != nil {
			return err
		}
		ended, err := h.Store.DeleteClient(v.R.Context(), here.Workspace.ID, c.ID,
			v.EventIn(here, audit.ClientDeleted, "client:"+c.ID.String(), map[string]any{"name": c.Name}))
		if err != nil && !errors.Is(err, client.ErrUnknown) {
			return err
		}
		for _, g := range ended {
			h.Grants.PropagateRevocation(v.R.Context(), g.ID, g.Ends, grant.ClientDeleted)
		}
		return h.Done(v, here.Path(applications), c.Name+" was deleted and disconnected for everyone.")
	})
}
