package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

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

// A service runs one command and prints its result.
type service struct {
	*admin.Service
	json bool
	done func()
}

// ProvideService opens the service. kong calls it before it runs a command with a service.
func (a *adminCommands) ProvideService(ctx context.Context) (service, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	opened, done, err := app.Admin(ctx, os.Environ(), log)
	return service{opened, a.JSON, done}, err
}

// print prints the result of a command, and closes the service.
func (s service) print(result admin.Result, err error) error {
	s.done()
	if err != nil {
		return err
	}
	return admin.Print(os.Stdout, s.json, result)
}

type organisationsAdd struct {
	Name string `arg:"" help:"Name."`
}

func (o organisationsAdd) Run(ctx context.Context, d service) error {
	return d.print(d.AddOrganisation(ctx, o.Name))
}

type organisationsList struct{}

func (organisationsList) Run(ctx context.Context, d service) error {
	return d.print(d.Organisations(ctx))
}

type workspacesAdd struct {
	Organisation string `required:"" placeholder:"ID" help:"Id of the organisation."`
	Name         string `arg:"" help:"Name."`
}

func (w workspacesAdd) Run(ctx context.Context, d service) error {
	return d.print(d.AddWorkspace(ctx, w.Organisation, w.Name))
}

type workspacesList struct {
	Organisation string `placeholder:"ID" help:"Only the workspaces of one organisation."`
}

func (w workspacesList) Run(ctx context.Context, d service) error {
	return d.print(d.Workspaces(ctx, w.Organisation))
}

type modulesSet struct {
	Workspace string   `arg:"" help:"Id of the workspace."`
	Module    string   `arg:"" help:"Name of the module, such as programmes."`
	Changes   []string `arg:"" help:"One or more of enable, disable, provision and unprovision."`
}

func (m modulesSet) Run(ctx context.Context, d service) error {
	return d.print(d.SetModule(ctx, m.Workspace, m.Module, m.Changes))
}

type featuresSet struct {
	Workspace string `arg:"" help:"Id of the workspace."`
	Feature   string `arg:"" help:"llm_integration."`
	State     string `arg:"" help:"on or off."`
}

func (f featuresSet) Run(ctx context.Context, d service) error {
	return d.print(d.SetFeature(ctx, f.Workspace, f.Feature, f.State))
}

type retentionShow struct{}

func (retentionShow) Run(ctx context.Context, d service) error { return d.print(d.ShowRetention(ctx)) }

type retentionRun struct {
	DryRun bool `name:"dry-run" help:"Delete nothing; show what is due."`
}

func (r retentionRun) Run(ctx context.Context, d service) error {
	if r.DryRun {
		return retentionShow{}.Run(ctx, d)
	}
	return d.print(d.RunRetention(ctx))
}

// errTerminal refuses a password typed at a terminal, where it would be visible.
var errTerminal = errors.New("standard input is a terminal: pass the password with set-password USER < FILE")

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

type keyCommands struct {
	List   keysList   `cmd:"" help:"List the published keys."`
	Rotate keysRotate `cmd:"" help:"Sign with the next key. The previous key stays published until its tokens expire."`
	Remove keysRemove `cmd:"" help:"Emergency: remove a key immediately, even the current one. Its tokens become invalid."`
	Reseal keysReseal `cmd:"" help:"Encrypt signing keys with the newest key in ALMONER_KEYS, once every process has it."`
}

type keysList struct{}

func (keysList) Run(ctx context.Context, d service) error { return d.print(d.ListKeys(ctx)) }

type keysRotate struct{}

func (keysRotate) Run(ctx context.Context, d service) error { return d.print(d.RotateKeys(ctx)) }

type keysRemove struct {
	KID string `arg:"" name:"kid" help:"Id of the key."`
}

func (k keysRemove) Run(ctx context.Context, d service) error {
	return d.print(d.RemoveKey(ctx, k.KID))
}

type keysReseal struct{}

func (keysReseal) Run(ctx context.Context, d service) error { return d.print(d.ResealKeys(ctx)) }

type grantCommands struct {
	List      grantsList      `cmd:"" help:"List the latest grants."`
	Revoke    grantsRevoke    `cmd:"" help:"Revoke one grant."`
	RevokeAll grantsRevokeAll `cmd:"" help:"Revoke all grants that match the options, or every grant with --all."`
}

// grantOptions select grants.
type grantOptions struct {
	User         named `placeholder:"USER" help:"Only the grants of one user: id or e-mail address."`
	Client       named `placeholder:"ID" help:"Only the grants of one client."`
	Workspace    named `placeholder:"ID" aliases:"tenant" help:"Only the grants in one workspace."`
	IssuedBefore named `placeholder:"TIME" help:"Only grants with consent before a time such as 2026-03-01T12:00:00Z."`
}

// A named is the value of an option that narrows a command. A given value must not be empty: --workspace "$WORKSPACE"
// with an unset variable must not widen the command to every workspace.
type named string

// UnmarshalText parses the value of the option.
func (n *named) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("must not be empty: give a value, or omit the option")
	}
	*n = named(text)
	return nil
}

func (g grantOptions) query() admin.GrantQuery {
	return admin.GrantQuery{
		User:         string(g.User),
		Client:       string(g.Client),
		Workspace:    string(g.Workspace),
		IssuedBefore: string(g.IssuedBefore),
	}
}

type grantsList struct {
	grantOptions
	Limit int `default:"200" help:"Maximum number of grants, up to 10000."`
}

func (g grantsList) Run(ctx context.Context, d service) error {
	return d.print(d.ListGrants(ctx, g.query(), g.Limit))
}

type grantsRevoke struct {
	Grant string `arg:"" help:"Id of the grant."`
}

func (g grantsRevoke) Run(ctx context.Context, d service) error {
	return d.print(d.RevokeGrant(ctx, g.Grant))
}

var errWhoseGrants = errors.New(
	"select the grants with --user, --client, --workspace or --issued-before, or use only --all for every grant")

type grantsRevokeAll struct {
	grantOptions
	All bool `help:"Every grant."`
}

// Run needs an option or --all, so that an operator who forgets the options does not revoke every grant.
func (g grantsRevokeAll) Run(ctx context.Context, a *adminCommands) error {
	if named := g.grantOptions != (grantOptions{}); named == g.All {
		return errWhoseGrants
	}
	d, err := a.ProvideService(ctx)
	if err != nil {
		return err
	}
	return d.print(d.RevokeGrants(ctx, g.query(), progressTo(os.Stderr)))
}

// progressTo returns a function that writes how many grants are revoked, at most once in five seconds.
func progressTo(out io.Writer) func(revoked int) {
	const every = 5 * time.Second
	last := time.Now()
	return func(revoked int) {
		if time.Since(last) >= every {
			_, _ = fmt.Fprintf(out, "Revoked %d grants so far.\n", revoked)
			last = time.Now()
		}
	}
}
