package developers

import (
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// common is what every page of the section has.
type common struct {
	ui.Frame
	Key        string // proves that a form came from this page (endpoint/settings)
	Workspaces []ui.Workspace
	Workspace  ui.Workspace
	BaseURL    string
	Held       perm.Set
	Reauth     reauthMethod
	Outcome    *outcome
}

// A reauthMethod is how the user must authenticate before a credential is created.
type reauthMethod int

// noReauth: the user authenticated recently. byPassword: the form asks for the password. onOtherPage: the user has no
// password and authenticates on another page.
const (
	noReauth reauthMethod = iota
	byPassword
	onOtherPage
)

// An outcome is what a form did. The page shows it only once, with the credential that the form created.
type outcome struct {
	ID      string // of the token or application, or ""
	Heading string
	Text    string
	Label   string
	Value   string // "" if it cannot be shown, or not again
	Client  string // client id of the value, or ""
	Curl    string // a command that uses the token, or ""
	Consent string // where an application sends people, or ""
	Steps   []string
	Docs    string // URL of the API's description of the steps
}

// An app is an OAuth application in the list.
type app struct {
	ID, Name  string
	Connector bool
	Platform  string
	Resource  string
	Method    string
	Redirects []string
	Required  perm.Set
	Created   time.Time
}

func appView(c client.Client) app {
	return app{
		ID:        c.ID.String(),
		Name:      c.Name,
		Connector: c.Kind == client.Connector,
		Platform:  workspace.PlatformOf(c.Platform).Name(),
		Resource:  c.Resource,
		Method:    string(c.AuthMethod),
		Redirects: c.Redirects,
		Required:  c.Required,
		Created:   c.CreatedAt,
	}
}

// An appForm is the submitted form for a new application.
type appForm struct {
	Kind      string // confidential or connector
	Name      string
	Redirects string // one per line
	Chosen    perm.Set
	Platform  string
	Resource  string
	Method    string
}

// reauthField is the password field, or the link to reauthentication, if the user must authenticate.
type reauthField struct {
	Password, Elsewhere   bool
	ID, Note, WorkspaceID string
	First                 bool // of the errors: it gets the focus
}

// ReauthField returns the field of the form with this id, with its error.
func (c *common) ReauthField(id string) reauthField {
	field := reauthField{c.Reauth == byPassword, c.Reauth == onOtherPage, id, "", c.Workspace.ID, false}
	for _, problem := range c.Problems {
		if problem.At == passwordField(id) {
			field.Note, field.First = problem.Text, c.Problems.First(problem.Field)
		}
	}
	return field
}

// passwordField returns the element id of the password field of a form.
func passwordField(id string) string { return "password-" + id }

// passwordProblem returns the error of the password field of a form.
func passwordProblem(id, text string) ui.Problem {
	return ui.ProblemAt("password", passwordField(id), "Your password", text)
}

// tokenProblem returns the error of a field in the form for a new token, by the field names of pat.Refusal.
func tokenProblem(field, text string) ui.Problem {
	label := map[string]string{"name": "Name", "days": "Expires after", "permissions": "Permissions"}[field]
	return ui.ProblemAt(field, "token-"+field, label, text)
}

// appFields are the field names of client.Refusal, in the order of the form.
var appFields = []string{
	"name", "kind", "connectorPlatform", "resource", "tokenEndpointAuthMethod", "redirectUris", "requiredPermissions",
}

// appProblem returns the error of a field in the form for a new application, by the field names of client.Refusal.
func appProblem(field, text string) ui.Problem {
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
