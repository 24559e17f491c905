package main

import (
	"context"

	"github.com/almonerhq/almoner/authserver/internal/admin"
)

type keyCommands struct {
	List   keysList   `cmd:"" help:"List the keys that are published."`
	Rotate keysRotate `cmd:"" help:"Make the next key sign; the former one is published until its last token has expired."`
	Remove keysRemove `cmd:"" help:"Emergency: take a key out at once, the current one too. No token that it signed is believed any more."`
	Reseal keysReseal `cmd:"" help:"Seal the private halves under the newest key of ALMONER_KEYS, once every process has it."`
}

type keysList struct{}

func (keysList) Run(ctx context.Context, a *adminCommands) error {
	return a.carryOut(ctx, func(d *admin.Desk) (admin.Result, error) { return d.ListKeys(ctx) })
}

type keysRotate struct{}

func (keysRotate) Run(ctx context.Context, a *adminCommands) error {
	return a.carryOut(ctx, func(d *admin.Desk) (admin.Result, error) { return d.RotateKeys(ctx) })
}

type keysRemove struct {
	KID string `arg:"" name:"kid" help:"The key's identifier."`
}

func (c keysRemove) Run(ctx context.Context, a *adminCommands) error {
	return a.carryOut(ctx, func(d *admin.Desk) (admin.Result, error) { return d.RemoveKey(ctx, c.KID) })
}

type keysReseal struct{}

func (keysReseal) Run(ctx context.Context, a *adminCommands) error {
	return a.carryOut(ctx, func(d *admin.Desk) (admin.Result, error) { return d.ResealKeys(ctx) })
}

type grantCommands struct {
	List      grantsList      `cmd:"" help:"List the latest grants."`
	Revoke    grantsRevoke    `cmd:"" help:"Revoke one grant."`
	RevokeAll grantsRevokeAll `cmd:"" help:"Revoke every grant that the options name: without options, every grant there is."`
}

// grantOptions name grants.
type grantOptions struct {
	User         string `placeholder:"USER" help:"Of one user: id or e-mail address."`
	Client       string `placeholder:"ID" help:"Of one client."`
	Tenant       string `placeholder:"ID" help:"Of one workspace."`
	IssuedBefore string `placeholder:"TIME" help:"Consented to before a time such as 2026-03-01T12:00:00Z."`
}

func (o grantOptions) query() admin.GrantQuery {
	return admin.GrantQuery{User: o.User, Client: o.Client, Tenant: o.Tenant, IssuedBefore: o.IssuedBefore}
}

type grantsList struct {
	grantOptions
	Limit int `default:"200" help:"How many at most."`
}

func (c grantsList) Run(ctx context.Context, a *adminCommands) error {
	return a.carryOut(ctx, func(d *admin.Desk) (admin.Result, error) { return d.ListGrants(ctx, c.query(), c.Limit) })
}

type grantsRevoke struct {
	Grant string `arg:"" help:"The grant's id."`
}

func (c grantsRevoke) Run(ctx context.Context, a *adminCommands) error {
	return a.carryOut(ctx, func(d *admin.Desk) (admin.Result, error) { return d.RevokeGrant(ctx, c.Grant) })
}

type grantsRevokeAll struct{ grantOptions }

func (c grantsRevokeAll) Run(ctx context.Context, a *adminCommands) error {
	return a.carryOut(ctx, func(d *admin.Desk) (admin.Result, error) { return d.RevokeGrants(ctx, c.query()) })
}
