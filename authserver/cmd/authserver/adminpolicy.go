package main

import (
	"context"

	"github.com/almonerhq/almoner/authserver/internal/admin"
)

type policyCommands struct {
	Show policyShow `cmd:"" help:"Show the policy of a workspace."`
	Set  policySet  `cmd:"" help:"Change the policy of a workspace, in what the options name. Lowering it narrows the connections that exist."`
}

type policyShow struct {
	Workspace string `arg:"" help:"The workspace's id."`
}

func (c policyShow) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.ConnectorPolicy(ctx, c.Workspace) })
}

type policySet struct {
	Workspace   string   `arg:"" help:"The workspace's id."`
	Platforms   []string `placeholder:"NAMES" help:"Those allowed, separated by commas: claude, chatgpt, other; or all, or none."`
	Permissions []string `placeholder:"NAMES" help:"Those allowed at most, separated by commas; or all."`
	Days        *int     `help:"How long access lasts at most: 1 to 30."`
	DryRun      bool     `help:"Say what it would do to the connections that exist, and change nothing."`
}

func (c policySet) Run(ctx context.Context, a *adminCommands) error {
	change := admin.PolicyChange{Platforms: c.Platforms, Permissions: c.Permissions, Days: c.Days}
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.SetConnectorPolicy(ctx, c.Workspace, change, c.DryRun)
	})
}
