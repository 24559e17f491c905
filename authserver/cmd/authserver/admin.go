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
// set, revocations are propagated to Redis. keys rotate, remove and reseal need ALMONER_KEYS. backup uses none of
// these.
type adminCommands struct {
	JSON bool `name:"json" help:"Write JSON."`

	Organisations struct {
		Add  organisationsAdd  `cmd:"" help:"Add an organisation."`
		List organisationsList `cmd:"" help:"List the organisations."`
	} `cmd:"" help:"Manage organisations."`
	Workspaces struct {
		Add  workspacesAdd  `cmd:"" help:"Add a workspace to an organisation."`
		List workspacesList `cmd:"" help:"List the workspaces with their modules and features."`
	} `cmd:"" aliases:"tenants" help:"Manage workspaces."`
	Modules struct {
		Set modulesSet `cmd:"" help:"Enable, disable, provision or unprovision a module of a workspace."`
	} `cmd:"" help:"Manage the modules of a workspace."`
	Features struct {
		Set featuresSet `cmd:"" help:"Turn a feature of a workspace on or off."`
	} `cmd:"" help:"Manage the features of a workspace."`
	Users           userCommands   `cmd:"" help:"Manage users."`
	Members         memberCommands `cmd:"" help:"Manage the members of a workspace and their permissions."`
	Clients         clientCommands `cmd:"" help:"Manage OAuth clients."`
	Apply           apply          `cmd:"" help:"Create and change clients to match a YAML file."`
	ConnectorPolicy policyCommands `cmd:"" help:"Manage what connectors may be granted in a workspace."`
	Keys            keyCommands    `cmd:"" help:"Manage the keys that sign access tokens."`
	Grants          grantCommands  `cmd:"" help:"Manage grants: what users consented to."`
	Backup          backupCommands `cmd:"" help:"Make, check and restore backups of the database, with PostgreSQL's programs (deploy/runbooks)."`
	Retention       struct {
		Show retentionShow `cmd:"" help:"Show how long records are kept, and how many are due to be deleted."`
		Run  retentionRun  `cmd:"" help:"Delete the records that are due now. The service also does this every hour."`
	} `cmd:"" help:"Manage the deletion of records that are no longer needed."`
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
	Name string `arg:"" help:"Name."`
}

func (c organisationsAdd) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.AddOrganisation(ctx, c.Name) })
}

type organisationsList struct{}

func (organisationsList) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.Organisations(ctx) })
}

type workspacesAdd struct {
	Organisation string `required:"" placeholder:"ID" help:"Id of the organisation."`
	Name         string `arg:"" help:"Name."`
}

func (c workspacesAdd) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx,
		func(d *admin.Service) (admin.Result, error) { return d.AddWorkspace(ctx, c.Organisation, c.Name) })
}

type workspacesList struct {
	Organisation string `placeholder:"ID" help:"Only the workspaces of one organisation."`
}

func (c workspacesList) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.Workspaces(ctx, c.Organisation) })
}

type modulesSet struct {
	Workspace string   `arg:"" help:"Id of the workspace."`
	Module    string   `arg:"" help:"Name of the module, such as programmes."`
	Changes   []string `arg:"" help:"One or more of enable, disable, provision and unprovision."`
}

func (c modulesSet) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.SetModule(ctx, c.Workspace, c.Module, c.Changes)
	})
}

type featuresSet struct {
	Workspace string `arg:"" help:"Id of the workspace."`
	Feature   string `arg:"" help:"llm_integration."`
	State     string `arg:"" help:"on or off."`
}

func (c featuresSet) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.SetFeature(ctx, c.Workspace, c.Feature, c.State)
	})
}

type retentionShow struct{}

func (retentionShow) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.ShowRetention(ctx) })
}

type retentionRun struct {
	DryRun bool `name:"dry-run" help:"Delete nothing; show what is due."`
}

func (c retentionRun) Run(ctx context.Context, a *adminCommands) error {
	if c.DryRun {
		return retentionShow{}.Run(ctx, a)
	}
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.RunRetention(ctx) })
}

// errTerminal refuses a password typed at a terminal, where it would be visible.
var errTerminal = errors.New("standard input is a terminal: pass the password with set-password USER < FILE")

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
