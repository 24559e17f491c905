package main

import (
	"context"

	"github.com/almonerhq/almoner/authserver/internal/admin"
)

type policyCommands struct {
	Show policyShow `cmd:"" help:"Show the policy of a workspace."`
	Set  policySet  `cmd:"" help:"Change the given parts of the policy. Stricter limits also apply to existing connections."`
}

type policyShow struct {
	Workspace string `arg:"" help:"Id of the workspace."`
}

func (c policyShow) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.ConnectorPolicy(ctx, c.Workspace) })
}

type policySet struct {
	Workspace   string   `arg:"" help:"Id of the workspace."`
	Platforms   []string `placeholder:"NAMES" help:"Allowed platforms, separated by commas: claude, chatgpt, other; or all, or none."`
	Permissions []string `placeholder:"NAMES" help:"Permissions that may be granted, separated by commas; or all."`
	Days        *int     `help:"Maximum duration of access in days, 1 to 30."`
	DryRun      bool     `help:"Show the effect on existing connections, and change nothing."`
}

func (c policySet) Run(ctx context.Context, a *adminCommands) error {
	change := admin.PolicyChange{Platforms: c.Platforms, Permissions: c.Permissions, Days: c.Days}
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.SetConnectorPolicy(ctx, c.Workspace, change, c.DryRun)
	})
}
