package main

import (
	"context"
	"os"

	"github.com/almonerhq/almoner/authserver/internal/admin"
)

type userCommands struct {
	Add         usersAdd         `cmd:"" help:"Add a user, who has no password yet."`
	List        usersList        `cmd:"" help:"List the users."`
	Disable     usersDisable     `cmd:"" help:"Disable a user: nothing of theirs works, and they are signed out."`
	Enable      usersEnable      `cmd:"" help:"Enable a user again."`
	SetPassword usersSetPassword `cmd:"" help:"Set a user's password, read from standard input, and sign them out everywhere. Passkeys and linked accounts stay, unless --remove-others is given."`

	SignInMethods      usersSignInMethods      `cmd:"" help:"List a user's passkeys and linked accounts."`
	RemoveSignInMethod usersRemoveSignInMethod `cmd:"" help:"Remove a passkey or a linked account of a user, even the last way to sign in, and sign them out everywhere."`
}

type usersAdd struct {
	Email string `required:"" placeholder:"ADDRESS" help:"E-mail address, with which they sign in."`
	Name  string `required:"" help:"Their name."`
}

func (c usersAdd) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.AddUser(ctx, c.Email, c.Name) })
}

type usersList struct{}

func (usersList) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.Users(ctx) })
}

type usersDisable struct {
	User string `arg:"" help:"Id or e-mail address."`
}

func (c usersDisable) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.SetDisabled(ctx, c.User, true) })
}

type usersEnable struct {
	User string `arg:"" help:"Id or e-mail address."`
}

func (c usersEnable) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.SetDisabled(ctx, c.User, false) })
}

type usersSetPassword struct {
	User         string `arg:"" help:"Id or e-mail address."`
	RemoveOthers bool   `help:"Remove the user's passkeys and linked accounts too, so that the password is the only way to sign in."`
}

func (c usersSetPassword) Run(ctx context.Context, a *adminCommands) error {
	if isTerminal(os.Stdin) {
		return errTerminal
	}
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.SetPassword(ctx, c.User, os.Stdin, c.RemoveOthers)
	})
}

type usersSignInMethods struct {
	User string `arg:"" help:"Id or e-mail address."`
}

func (c usersSignInMethods) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.SignInMethods(ctx, c.User) })
}

type usersRemoveSignInMethod struct {
	User   string `arg:"" help:"Id or e-mail address."`
	Method string `arg:"" help:"A passkey's id or a linked account's issuer, as sign-in-methods shows it."`
}

func (c usersRemoveSignInMethod) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.RemoveSignInMethod(ctx, c.User, c.Method)
	})
}

type memberCommands struct {
	Add            membersAdd            `cmd:"" help:"Make a user a member of a workspace."`
	List           membersList           `cmd:"" help:"List the members of a workspace."`
	SetPermissions membersSetPermissions `cmd:"" help:"Replace what a member may do."`
	Remove         membersRemove         `cmd:"" help:"End a membership, and the user's grants and personal access tokens there."`
}

type membersAdd struct {
	Workspace   string   `arg:"" help:"The workspace's id."`
	User        string   `arg:"" help:"Id or e-mail address."`
	Permissions []string `arg:"" help:"Permissions, or the word all or none."`
}

func (c membersAdd) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.AddMember(ctx, c.Workspace, c.User, c.Permissions)
	})
}

type membersList struct {
	Workspace string `arg:"" help:"The workspace's id."`
}

func (c membersList) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) { return d.Members(ctx, c.Workspace) })
}

type membersSetPermissions struct {
	Workspace   string   `arg:"" help:"The workspace's id."`
	User        string   `arg:"" help:"Id or e-mail address."`
	Permissions []string `arg:"" help:"Permissions, or the word all or none."`
}

func (c membersSetPermissions) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(ctx, func(d *admin.Service) (admin.Result, error) {
		return d.SetPermissions(ctx, c.Workspace, c.User, c.Permissions)
	})
}

type membersRemove struct {
	Workspace string `arg:"" help:"The workspace's id."`
	User      string `arg:"" help:"Id or e-mail address."`
}

func (c membersRemove) Run(ctx context.Context, a *adminCommands) error {
	return a.execute(
		ctx,
		func(d *admin.Service) (admin.Result, error) { return d.RemoveMember(ctx, c.Workspace, c.User) },
	)
}
