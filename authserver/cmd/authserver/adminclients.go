package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/almonerhq/almoner/authserver/internal/admin"
)

type clientCommands struct {
	Add           clientsAdd           `cmd:"" help:"Register a confidential client or a connector. Shows its secret once."`
	AddService    clientsAddService    `cmd:"" help:"Register an internal service that may introspect tokens. Shows its secret once."`
	Set           clientsSet           `cmd:"" help:"Change a client. Its grants and its secret stay as they are."`
	ReplaceSecret clientsReplaceSecret `cmd:"" help:"Give a client a new secret and show it once. The previous one works for 24 hours more."`
	List          clientsList          `cmd:"" help:"List the clients."`
	Delete        clientsDelete        `cmd:"" help:"Delete a client and revoke its grants."`
}

type clientsAdd struct {
	Workspace   string   `required:"" placeholder:"ID" help:"Id of the workspace that owns the client."`
	Name        string   `arg:"" help:"Name that users see."`
	RedirectURI []string `name:"redirect-uri" required:"" sep:"none" placeholder:"URI" help:"Redirect URI; repeat it for several."`
	Permission  []string `required:"" placeholder:"P" help:"Required permission; repeat it, or separate several with commas."`
	AuthMethod  string   `placeholder:"METHOD" help:"Authentication at the token endpoint: client_secret_json (default), client_secret_post or client_secret_basic."`
	Connector   string   `placeholder:"PLATFORM" help:"Register a connector of this platform: claude or chatgpt. Needs --resource and ALMONER_BASE_URL."`
	Resource    string   `placeholder:"URL" help:"Resource identifier of a connector."`
	ID          string   `name:"id" placeholder:"UUID" help:"The client_id. Default: random."`
}

func (c clientsAdd) Run(ctx context.Context, d service) error {
	kind := "confidential"
	if c.Connector != "" {
		kind = "connector"
	}
	return d.print(d.AddClient(ctx, admin.ClientSpec{
		ID:          c.ID,
		Kind:        kind,
		Workspace:   c.Workspace,
		Name:        c.Name,
		Redirects:   c.RedirectURI,
		Permissions: c.Permission,
		Platform:    c.Connector,
		Resource:    c.Resource,
		AuthMethod:  c.AuthMethod,
	}))
}

type clientsAddService struct {
	Name string `arg:"" help:"Name."`
}

func (c clientsAddService) Run(ctx context.Context, d service) error {
	return d.print(d.AddService(ctx, c.Name))
}

type clientsSet struct {
	Client      string   `arg:"" help:"Id of the client."`
	Name        *string  `help:"New name."`
	RedirectURI []string `name:"redirect-uri" sep:"none" placeholder:"URI" help:"Redirect URI; repeat it for several. They replace all present ones."`
	AddRedirect []string `name:"add-redirect-uri" sep:"none" placeholder:"URI" help:"Redirect URI to add to the present ones; repeat it for several."`
	Permission  []string `placeholder:"P" help:"Required permission; repeat it for several. They replace all present ones."`
	AuthMethod  *string  `placeholder:"METHOD" help:"Authentication at the token endpoint."`
	Platform    *string  `help:"Platform of a connector: claude or chatgpt."`
	Resource    *string  `placeholder:"URL" help:"Resource identifier of a connector."`
}

func (c clientsSet) Run(ctx context.Context, d service) error {
	return d.print(d.SetClient(ctx, c.Client, admin.ClientUpdate{
		Name:        c.Name,
		Redirects:   c.RedirectURI,
		Added:       c.AddRedirect,
		Permissions: c.Permission,
		AuthMethod:  c.AuthMethod,
		Platform:    c.Platform,
		Resource:    c.Resource,
	}))
}

type clientsReplaceSecret struct {
	Client    string `arg:"" help:"Id of the client."`
	ExpireOld bool   `help:"Revoke the previous secret immediately, for example if it was stolen."`
}

func (c clientsReplaceSecret) Run(ctx context.Context, d service) error {
	return d.print(d.ReplaceClientSecret(ctx, c.Client, c.ExpireOld))
}

type clientsList struct {
	Workspace string `placeholder:"ID" aliases:"tenant" help:"Only the clients of one workspace."`
}

func (c clientsList) Run(ctx context.Context, d service) error {
	return d.print(d.Clients(ctx, c.Workspace))
}

type clientsDelete struct {
	Client string `arg:"" help:"Id of the client."`
}

func (c clientsDelete) Run(ctx context.Context, d service) error {
	return d.print(d.DeleteClient(ctx, c.Client))
}

type apply struct {
	File   string `short:"f" required:"" placeholder:"FILE" help:"File with the clients in YAML; - for standard input."`
	DryRun bool   `help:"Change nothing; show what would change."`
}

func (c apply) Run(ctx context.Context, a *adminCommands) error {
	var from io.Reader = os.Stdin
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return fmt.Errorf("open the clients file: %w", err)
		}
		defer func() { _ = file.Close() }() // the file was only read
		from = file
	}
	d, err := a.ProvideService(ctx)
	if err != nil {
		return err
	}
	return d.print(d.Apply(ctx, from, c.DryRun))
}

type policyCommands struct {
	Show policyShow `cmd:"" help:"Show the policy of a workspace."`
	Set  policySet  `cmd:"" help:"Change the given parts of the policy. Stricter limits also apply to existing connections."`
}

type policyShow struct {
	Workspace string `arg:"" help:"Id of the workspace."`
}

func (p policyShow) Run(ctx context.Context, d service) error {
	return d.print(d.ConnectorPolicy(ctx, p.Workspace))
}

type policySet struct {
	Workspace   string   `arg:"" help:"Id of the workspace."`
	Platforms   []string `placeholder:"NAMES" help:"Allowed platforms, separated by commas: claude, chatgpt, other; or all, or none."`
	Permissions []string `placeholder:"NAMES" help:"Permissions that may be granted, separated by commas; or all."`
	Days        *int     `help:"Maximum duration of access in days, 1 to 30."`
	DryRun      bool     `help:"Show the effect on existing connections, and change nothing."`
}

func (p policySet) Run(ctx context.Context, d service) error {
	change := admin.PolicyChange{Platforms: p.Platforms, Permissions: p.Permissions, Days: p.Days}
	return d.print(d.SetConnectorPolicy(ctx, p.Workspace, change, p.DryRun))
}
