package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/app"
)

// adminCommands are the operator's commands. They work on the database of ALMONER_DATABASE_URL. If ALMONER_REDIS_URL is
// set, revocations are propagated to Redis. keys rotate, remove and reseal need ALMONER_KEYS.
type adminCommands struct {
	JSON bool `name:"json" help:"Write JSON."`

	Organisations struct {
		Add  organisationsAdd  `cmd:"" help:"Add an organisation."`
		List organisationsList `cmd:"" help:"List the organisations."`
	} `cmd:"" help:"Organisations."`
	Workspaces struct {
		Add  workspacesAdd  `cmd:"" help:"Add a workspace to an organisation."`
		List workspacesList `cmd:"" help:"List the workspaces, their modules and features."`
	} `cmd:"" aliases:"tenants" help:"Workspaces of organisations."`
	Modules struct {
		Set modulesSet `cmd:"" help:"Enable, disable, provision or unprovision a module of a workspace."`
	} `cmd:"" help:"Modules of a workspace."`
	Features struct {
		Set featuresSet `cmd:"" help:"Switch a feature of a workspace on or off."`
	} `cmd:"" help:"Features of a workspace."`
	Users   userCommands   `cmd:"" help:"Users."`
	Members memberCommands `cmd:"" help:"Who works in a workspace, and what they may do there."`
	Clients struct {
		AddService clientsAddService `cmd:"" help:"Register an internal service, which may introspect tokens. Its secret is shown once."`
		List       clientsList       `cmd:"" help:"List the clients."`
		Delete     clientsDelete     `cmd:"" help:"Delete a client and revoke its grants."`
	} `cmd:"" help:"OAuth clients."`
	ConnectorPolicy policyCommands `cmd:"" help:"What connectors may be given in a workspace, at most."`
	Keys            keyCommands    `cmd:"" help:"Keys that sign access tokens."`
	Grants          grantCommands  `cmd:"" help:"Grants: what users consented to."`
}

// execute runs one command and prints its result.
func (a *adminCommands) execute(ctx context.Context, command func(*admin.Service) (admin.Result, error)) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	service, done, err := app.Admin(ctx, os.Environ(), log)
	if err != nil {
		return err
	}
	defer done()
	result, err := command(service)
	if err != nil {
		return err
	}
	return admin.Print(os.Stdout, a.JSON, result)
}

type organisationsAdd struct {
	Name string `arg:"" help:"Its name."`
}

func (c organisationsAdd) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.AddOrganisation(ctx, c.Name) })
}

type organisationsList struct{}

func (organisationsList) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.Organisations(ctx) })
}

type workspacesAdd struct {
	Organisation string `required:"" placeholder:"ID" help:"Whose workspace it is."`
	Name         string `arg:"" help:"Its name."`
}

func (c workspacesAdd) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(
		ctx,
		func(d *admin.Service) (admin.Result, error) { return d.AddWorkspace(ctx, c.Organisation, c.Name) },
	)
}

type workspacesList struct {
	Organisation string `placeholder:"ID" help:"Those of one organisation."`
}

func (c workspacesList) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.Workspaces(ctx, c.Organisation) })
}

type modulesSet struct {
	Workspace string   `arg:"" help:"The workspace's id."`
	Module    string   `arg:"" help:"programmes or engage."`
	Changes   []string `arg:"" help:"enable, disable, provision, unprovision: one or several."`
}

func (c modulesSet) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.SetModule(ctx, c.Workspace, c.Module, c.Changes)
	})
}

type featuresSet struct {
	Workspace string `arg:"" help:"The workspace's id."`
	Feature   string `arg:"" help:"llm_integration."`
	State     string `arg:"" help:"on or off."`
}

func (c featuresSet) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.SetFeature(ctx, c.Workspace, c.Feature, c.State)
	})
}

type clientsAddService struct {
	Name string `arg:"" help:"Its name."`
}

func (c clientsAddService) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.AddService(ctx, c.Name) })
}

type clientsList struct {
	Workspace string `placeholder:"ID" aliases:"tenant" help:"Only the clients of one workspace."`
}

func (c clientsList) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.Clients(ctx, c.Workspace) })
}

type clientsDelete struct {
	Client string `arg:"" help:"The client's id."`
}

func (c clientsDelete) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.DeleteClient(ctx, c.Client) })
}

// errTerminal refuses a password typed at a terminal, where it would be visible.
var errTerminal = errors.New(
	"the password is read from standard input, which is a terminal here: use set-password USER < FILE",
)

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
