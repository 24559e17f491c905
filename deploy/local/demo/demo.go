// Package demo creates the demo data of `make run`.
//
// It consists of five workspaces, four users, four applications, 230 programmes and a public form, as section 8 of the
// contract lists them. The types mirror .almoner/demo.json. Their values are derived from the installation's seed, so
// they are the same at every start.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/seed"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// RedirectURI is the redirect URI of the demo applications. Nothing needs to listen there.
const RedirectURI = "http://127.0.0.1:8090/callback"

// A Demo is the content of demo.json.
type Demo struct {
	BaseURL    string     `json:"baseUrl"`
	AppURL     string     `json:"appUrl"`
	Resource   string     `json:"resource"` // the REST API's identifier: {base_url}/v1
	Workspaces Workspaces `json:"tenants"`
	Users      Users      `json:"users"`
	Tokens     Tokens     `json:"personalAccessTokens"`
	Clients    Clients    `json:"clients"`
	Engage     Engage     `json:"engage"`
	Mailbox    *Mailbox   `json:"mailbox,omitempty"` // set by the stack
}

// A Mailbox gets the mails of the deployment.
type Mailbox struct {
	URL string `json:"url"` // answers the mails as JSON, the newest first; ?to= selects those to one address
}

// Workspaces are the demo workspaces, by their purpose.
type Workspaces struct {
	Main               Workspace `json:"main"`
	Empty              Workspace `json:"empty"`
	ProgrammesDisabled Workspace `json:"programmesDisabled"`
	Unprovisioned      Workspace `json:"unprovisioned"`
	LLMDisabled        Workspace `json:"llmDisabled"`
}

// A Workspace is a demo workspace.
type Workspace struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Users are the demo users, by their role in main.
type Users struct {
	Owner     User `json:"owner"`
	Reader    User `json:"reader"`
	Registrar User `json:"registrar"`
	Outsider  User `json:"outsider"`
}

// A User can sign in with e-mail address and password.
type User struct {
	ID       string `json:"id"`
	Email    string `json:"email"`
	Password string `json:"password"`
}

// Tokens are personal access tokens; the first three are for main.
type Tokens struct {
	Owner     string  `json:"owner"`
	Reader    string  `json:"reader"`
	Registrar string  `json:"registrar"`
	OwnerIn   OwnerIn `json:"ownerIn"`
}

// OwnerIn has a token of the owner for each workspace.
type OwnerIn struct {
	Main               string `json:"main"`
	Empty              string `json:"empty"`
	ProgrammesDisabled string `json:"programmesDisabled"`
	Unprovisioned      string `json:"unprovisioned"`
	LLMDisabled        string `json:"llmDisabled"`
}

// Clients are the applications. All except the service belong to main.
type Clients struct {
	Confidential Confidential `json:"confidential"`
	Connector    Connector    `json:"connector"`
	MCP          Connector    `json:"mcp"`
	Service      Service      `json:"service"`
}

// A Confidential application has a secret.
type Confidential struct {
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`
	RedirectURI  string `json:"redirectUri"`
	WorkspaceID  string `json:"tenantId"`
}

// A Connector is a public client with PKCE.
type Connector struct {
	ClientID    string `json:"clientId"`
	RedirectURI string `json:"redirectUri"`
	WorkspaceID string `json:"tenantId"`
	Resource    string `json:"resource"`
	Scope       string `json:"scope"`
}

// A Service may introspect tokens.
type Service struct {
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`
}

// Engage is the public form of main.
type Engage struct {
	EmbedKey      string `json:"embedKey"`
	AllowedOrigin string `json:"allowedOrigin"`
}

// Describe returns the demo of an installation without the current tokens, which only its database knows.
func Describe(s seed.Seed, baseURL, appURL string) (Demo, error) {
	secrets := map[string]string{}
	for _, name := range []string{"confidential", "service"} {
		secret, err := credential.ClientSecret.New(s.Reader("client secret " + name))
		if err != nil {
			return Demo{}, err
		}
		secrets[name] = secret.Reveal()
	}
	workspace := func(key, name string) Workspace { return Workspace{ID: s.UUID("tenant " + key).String(), Name: name} }
	user := func(key string) User {
		return User{ID: s.UUID("user " + key).String(), Email: key + "@demo.almoner.example", Password: s.Password(key)}
	}
	d := Demo{
		BaseURL:  baseURL,
		AppURL:   appURL,
		Resource: baseURL + "/v1",
		Workspaces: Workspaces{
			Main:               workspace("main", "Tideway Community Trust"),
			Empty:              workspace("empty", "Fellside Young Carers"),
			ProgrammesDisabled: workspace("programmesDisabled", "Brook Street Advice"),
			Unprovisioned:      workspace("unprovisioned", "Friends of Lantern Hospice"),
			LLMDisabled:        workspace("llmDisabled", "Quayside Debt Support"),
		},
		Users: Users{
			Owner:     user("owner"),
			Reader:    user("reader"),
			Registrar: user("registrar"),
			Outsider:  user("outsider"),
		},
	}
	main := d.Workspaces.Main.ID
	connector := func(key, resource string, permissions perm.Set) Connector {
		return Connector{
			ClientID:    s.UUID("client " + key).String(),
			RedirectURI: RedirectURI,
			WorkspaceID: main,
			Resource:    resource,
			Scope:       permissions.Scope(),
		}
	}
	d.Clients = Clients{
		Confidential: Confidential{s.UUID("client confidential").String(), secrets["confidential"], RedirectURI, main},
		Connector:    connector("connector", baseURL+"/v1", connectorPermissions()),
		MCP:          connector("mcp", baseURL+"/mcp", readerPermissions()),
		Service:      Service{s.UUID("client service").String(), secrets["service"]},
	}
	var err error
	d.Engage, err = describeEngage(s)
	return d, err
}

func connectorPermissions() perm.Set { return perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite) }

// WriteFile writes demo.json atomically and readable only by its owner, since it contains passwords.
func (d Demo) WriteFile(path string) error {
	content, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, append(content, '\n'), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Seed writes the demo data, as the owner, to a database that Claim has accepted and the services have migrated, and
// adds the current tokens to d. A second call only replaces demo tokens that expired or were revoked, and updates the
// connectors to the installation's port.
func Seed(ctx context.Context, db *pgx.Conn, s seed.Seed, d *Demo, now time.Time) error {
	if err := once(ctx, db, "account", func(tx pgx.Tx) error { return insertAccount(ctx, tx, s, *d) }); err != nil {
		return err
	}
	err := once(ctx, db, "programmes", func(tx pgx.Tx) error { return insertProgrammes(ctx, tx, s, *d, now) })
	if err != nil {
		return err
	}
	if err := once(ctx, db, "engage", func(tx pgx.Tx) error { return insertEngage(ctx, tx, s, *d) }); err != nil {
		return err
	}
	if err := followAddress(ctx, db, *d); err != nil {
		return err
	}
	return ensureTokens(ctx, db, s, d, now)
}
