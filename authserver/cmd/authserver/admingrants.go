package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/admin"
)

type keyCommands struct {
	List   keysList   `cmd:"" help:"List the published keys."`
	Rotate keysRotate `cmd:"" help:"Sign with the next key. The previous key stays published until its tokens expire."`
	Remove keysRemove `cmd:"" help:"Emergency: remove a key immediately, even the current one. Its tokens become invalid."`
	Reseal keysReseal `cmd:"" help:"Encrypt signing keys with the newest key in ALMONER_KEYS, once every process has it."`
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
	KID string `arg:"" name:"kid" help:"Id of the key."`
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
	Limit int `default:"200" help:"Maximum number of grants, up to 10000."`
}

func (c grantsList) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.ListGrants(ctx, c.query(), c.Limit) })
}

type grantsRevoke struct {
	Grant string `arg:"" help:"Id of the grant."`
}

func (c grantsRevoke) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.RevokeGrant(ctx, c.Grant) })
}

var errWhoseGrants = errors.New(
	"select the grants with --user, --client, --workspace or --issued-before, or use only --all for every grant")

type grantsRevokeAll struct {
	grantOptions
	All bool `help:"Every grant."`
}

// Run needs an option or --all, so that an operator who forgets the options does not revoke every grant.
func (c grantsRevokeAll) Run(ctx context.Context, a *adminCommands) error {
	if named := c.grantOptions != (grantOptions{}); named == c.All {
		return errWhoseGrants
	}
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.RevokeGrants(ctx, c.query(), progressTo(os.Stderr))
	})
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
