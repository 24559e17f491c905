package harness

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The known permissions (contract, section 8).
const (
	APIAccess       = "account:api:access"
	ReadMembers     = "account:read:members"
	WriteMembers    = "account:write:members"
	ReadProgrammes  = "programmes:read:programmes"
	WriteProgrammes = "programmes:write:programmes"
	ReadForms       = "engage:read:forms"
	WriteForms      = "engage:write:forms"
	ReadSubmissions = "engage:read:submissions"
)

// Everything returns all known permissions.
func Everything() []string {
	var all []string
	for _, entry := range perm.All() {
		all = append(all, string(entry.ID))
	}
	return all
}

// ForConnectors returns the permissions that a connector may be granted: all but those of account (contract, section
// 8).
func ForConnectors() []string {
	return slices.DeleteFunc(Everything(), func(permission string) bool {
		return strings.HasPrefix(permission, "account:")
	})
}

// RedirectURI is the callback of applications that tests register. Nothing listens there.
const RedirectURI = "https://app.canal-lane.example/oauth/callback"

// A TestWorkspace is a workspace for one test, with an owner who holds every permission. Changes in it do not affect
// other tests.
type TestWorkspace struct {
	Workspace demo.Workspace
	Owner     demo.User
	Token     string // the owner's personal access token with every permission

	product *Product
}

// NewWorkspace creates a workspace and its owner.
func (p *Product) NewWorkspace(t testing.TB) TestWorkspace {
	t.Helper()
	o := TestWorkspace{Workspace: p.Database.Workspace(t), Owner: p.Database.User(t), product: p}
	p.Database.Join(t, o.Workspace, o.Owner, Everything()...)
	o.Token = p.Database.Token(t, o.Workspace, o.Owner, Everything()...)
	return o
}

// Member creates a member of the workspace with the permissions.
func (o TestWorkspace) Member(t testing.TB, permissions ...string) demo.User {
	t.Helper()
	user := o.product.Database.User(t)
	o.product.Database.Join(t, o.Workspace, user, permissions...)
	return user
}

// Clients returns the path where the workspace's applications are registered (spec 4.2).
func (t TestWorkspace) Clients() string { return ClientsPath(t.Workspace) }

// ClientsPath returns the path where a workspace's applications are registered (spec 4.2).
func ClientsPath(workspace demo.Workspace) string {
	return "/v1/account/tenants/" + workspace.ID + "/oauth-clients"
}

// Register registers an application through the API.
func (o TestWorkspace) Register(t testing.TB, body map[string]any) Answer {
	t.Helper()
	return o.product.As(o.Token).JSON(t, http.MethodPost, o.Clients(), body)
}

// ConfidentialBody returns the body that registers a confidential application (spec 4.2).
func ConfidentialBody(permissions ...string) map[string]any {
	return map[string]any{
		"name":                "Gift Aid export",
		"redirectUris":        []string{RedirectURI},
		"requiredPermissions": permissions,
	}
}

// ConnectorBody returns the body that registers a connector for a resource (contract, section 5).
func ConnectorBody(resource string, permissions ...string) map[string]any {
	return map[string]any{
		"name":                "Assistant of the office",
		"redirectUris":        []string{RedirectURI},
		"requiredPermissions": permissions,
		"connectorPlatform":   "claude",
		"resource":            resource,
	}
}

// Confidential registers a confidential application. The method is its tokenEndpointAuthMethod, or "" for the
// default.
func (o TestWorkspace) Confidential(t testing.TB, method string, permissions ...string) ConfidentialApp {
	t.Helper()
	body := ConfidentialBody(permissions...)
	if method != "" {
		body["tokenEndpointAuthMethod"] = method
	}
	object := o.Register(t, body).Wants(t, http.StatusCreated).Object(t)
	id, _ := object["clientId"].(string)
	secret, _ := object["clientSecret"].(string)
	return ConfidentialApp{ClientID: id, Secret: secret, RedirectURI: RedirectURI, product: o.product}
}

// Connector registers a connector for the REST API.
func (o TestWorkspace) Connector(t testing.TB, permissions ...string) Connector {
	t.Helper()
	return o.ConnectorFor(t, o.product.BaseURL+"/v1", permissions...)
}

// ConnectorFor registers a connector for a resource.
func (o TestWorkspace) ConnectorFor(t testing.TB, resource string, permissions ...string) Connector {
	t.Helper()
	object := o.Register(t, ConnectorBody(resource, permissions...)).Wants(t, http.StatusCreated).Object(t)
	id, _ := object["clientId"].(string)
	return Connector{
		ClientID:    id,
		RedirectURI: RedirectURI,
		Resource:    resource,
		Scope:       strings.Join(permissions, " "),
		product:     o.product,
	}
}

// LimitConnectors sets the workspace's connector policy in the settings and confirms the warning. It returns the text
// of the warning page, or "".
func (p *Product) LimitConnectors(t *testing.T, ws TestWorkspace, days string, platforms, permissions []string) string {
	t.Helper()
	owner := p.Person(t, ws.Owner)
	page := owner.Arrive(t, p.AppURL+"/settings/connectors?tenant="+ws.Workspace.ID)
	form := page.FormWith(t, "input#days")
	form.Fields["platforms"], form.Fields["permissions"] = platforms, permissions
	form.Fields.Set("days", days)
	warned, answer := "", owner.Submit(t, form)
	if answer.Status == http.StatusOK {
		warned = answer.Text()
		answer = owner.Submit(t, answer.FormWith(t, "input[name=confirm]"))
	}
	owner.Follow(t, answer).WantsText(t, "The policy of "+ws.Workspace.Name+" was saved.")
	return warned
}
