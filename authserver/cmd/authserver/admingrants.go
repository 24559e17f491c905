package main

import (
	"context"
	"errors"

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
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.ListKeys(ctx) })
}

type keysRotate struct{}

func (keysRotate) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.RotateKeys(ctx) })
}

type keysRemove struct {
	KID string `arg:"" name:"kid" help:"The key's identifier."`
}

func (c keysRemove) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.RemoveKey(ctx, c.KID) })
}

type keysReseal struct{}

func (keysReseal) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.ResealKeys(ctx) })
}

type grantCommands struct {
	List      grantsList      `cmd:"" help:"List the latest grants."`
	Revoke    grantsRevoke    `cmd:"" help:"Revoke one grant."`
	RevokeAll grantsRevokeAll `cmd:"" help:"Revoke every grant that the options name; --all for every grant there is."`
}

// grantOptions select grants.
type grantOptions struct {
	User         named `placeholder:"USER" help:"Of one user: id or e-mail address."`
	Client       named `placeholder:"ID" help:"Of one client."`
	Workspace    named `placeholder:"ID" aliases:"tenant" help:"Only the grants in one workspace."`
	IssuedBefore named `placeholder:"TIME" help:"Consented to before a time such as 2026-03-01T12:00:00Z."`
}

// A named is the value of an option that narrows a command. A given value must not be empty: --workspace "$WORKSPACE"
// with an unset variable must not widen the command to every workspace.
type named string

// UnmarshalText parses the value of the option.
func (n *named) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("it is empty: name something, or leave the option out")
	}
	*n = named(text)
	return nil
}

func (o grantOptions) query() admin.GrantQuery {
	return admin.GrantQuery{
		User:         string(o.User),
		Client:       string(o.Client),
		Workspace:    string(o.Workspace),
		IssuedBefore: string(o.IssuedBefore),
	}
}

type grantsList struct {
	grantOptions
	Limit int `default:"200" help:"How many at most."`
}

func (c grantsList) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(
		ctx,
		func(d *admin.Service) (admin.Result, error) { return d.ListGrants(ctx, c.query(), c.Limit) },
	)
}

type grantsRevoke struct {
	Grant string `arg:"" help:"The grant's id."`
}

func (c grantsRevoke) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.RevokeGrant(ctx, c.Grant) })
}

var errWhoseGrants = errors.New(
	"say whose grants: --user, --client, --workspace or --issued-before; or --all alone, for every grant there is",
)

type grantsRevokeAll struct {
	grantOptions
	All bool `help:"Every grant there is."`
}

// Run needs an option or --all, so that an operator who forgets the options does not revoke every grant.
func (c grantsRevokeAll) Run(ctx context.Context, a *adminCommands) error {
	if named := c.grantOptions != (grantOptions{}); named == c.All {
		return errWhoseGrants
	}
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.RevokeGrants(ctx, c.query()) })
}
