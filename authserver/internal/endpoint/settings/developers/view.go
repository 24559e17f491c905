package developers

import (
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// A view is Settings → Developers, for one workspace.
type view struct {
	ui.Frame
	Key        string // proves that a form came from this page (endpoint/settings)
	Workspaces []ui.Workspace
	Workspace  ui.Workspace
	BaseURL    string
	Held       perm.Set
	Outcome    *outcome
	Reauth     reauthMethod
	Tokens     []ui.Token
	EndedToken []ui.Token
	NewToken   tokenForm
	Apps       []app
	NewApp     appForm
	Resources  []string
	Refused    refusedReplacement
	Webhooks   []endpoint
	NewWebhook webhookForm
}

func (*view) Template() string { return "developers" }

// A refusedReplacement is the replacement of a token or a secret that was refused because the user was not
// authenticated. Its row is shown open, with its input.
type refusedReplacement struct {
	ID        string // of the token or application, or "" if nothing was refused
	Note      string // the error of the password field
	ExpireOld bool
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
	Heading string
	Text    string
	Label   string
	Value   string // "" if it cannot be shown, or not again
	Client  string // client id of the value, or ""
	IsToken bool
}

// A tokenForm is the submitted form for a new token, with its errors.
type tokenForm struct {
	Open     bool
	Name     string
	Days     int
	Chosen   perm.Set
	Notes    map[string]string // field → its error
	Lifetime []int
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

// An appForm is the submitted form for a new application, with its errors.
type appForm struct {
	Open      bool
	Kind      string // confidential or connector
	Name      string
	Redirects string // one per line
	Chosen    perm.Set
	Platform  string
	Resource  string
	Method    string
	Notes     map[string]string
}

// reauthField is the password field, or the link to reauthentication, if the user must authenticate.
type reauthField struct {
	Password, Elsewhere   bool
	ID, Note, WorkspaceID string
}

// ReauthField returns the field of the form with this id, with the note of a refused replacement.
func (d *view) ReauthField(id, note string) reauthField {
	if id == d.Refused.ID {
		note = d.Refused.Note
	}
	return reauthField{d.Reauth == byPassword, d.Reauth == onOtherPage, id, note, d.Workspace.ID}
}

// tokenField returns the element id of a field in the form for a new token, by the field names of pat.Refusal and
// "password", or "".
func tokenField(name string) string {
	return map[string]string{
		"name": "token-name", "days": "token-days", "permissions": "token-permissions", "password": "password-token",
	}[name]
}

// passwordField returns the element id of the password field in the row of a token or an application.
func passwordField(id string) string { return "password-" + id }

// appField returns the element id of a field in the form for a new application, by the field names of client.Refusal
// and "password", or "".
func appField(name string) string {
	return map[string]string{
		"name":                    "app-name",
		"kind":                    "app-kind",
		"redirectUris":            "app-redirects",
		"requiredPermissions":     "app-permissions",
		"connectorPlatform":       "app-platform",
		"resource":                "app-resource",
		"tokenEndpointAuthMethod": "app-method",
		"password":                "password-app",
	}[name]
}
