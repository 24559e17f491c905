package main

import (
	"context"
	"os"
)

type userCommands struct {
	Add         usersAdd         `cmd:"" help:"Add a user without a password."`
	List        usersList        `cmd:"" help:"List the users."`
	Duplicates  usersDuplicates  `cmd:"" help:"List the users whose addresses are spellings of one address, such as ada@münchen.example and ada@xn--mnchen-3ya.example. Each user signs in with the spelling shown. Keep one, and run users delete ID or users set-email ID ADDRESS for the other. The list also has users whose address has invisible characters, shown as \\u200b. They may be unable to sign in: ask them for their address, and set it with users set-email. Then run migrate --finish."`
	Show        usersShow        `cmd:"" help:"Show a user, and whether and how the user's address was confirmed."`
	Disable     usersDisable     `cmd:"" help:"Disable a user: sign them out, and refuse their tokens and grants."`
	Enable      usersEnable      `cmd:"" help:"Enable a user again."`
	SetPassword usersSetPassword `cmd:"" help:"Set a user's password, read from standard input, and sign them out everywhere. Keeps passkeys and linked accounts unless --remove-others is given."`

	ResetLink usersResetLink `cmd:"" help:"Create a link that lets a user set a new password. It works once, within 30 minutes, and can also remove passkeys. Needs ALMONER_APP_URL."`

	ConfirmEmail usersConfirmEmail `cmd:"" help:"Confirm that the account with this address belongs to the owner of the address. Do this only if you are sure: another person may have created an account with an unconfirmed address. This ends nothing; to end everything that gives access to the account, use reset-link."`

	SetEmail usersSetEmail `cmd:"" help:"Change the e-mail address of a user who has lost the old mailbox. Both addresses get a mail. Users who can read both mailboxes change it in Settings."`

	Delete usersDelete `cmd:"" help:"Delete a user: end their memberships, grants, tokens, sign-ins and sign-in methods, and remove their name and address. This cannot be undone. Audit events and applications stay. Use --dry-run first to see what would end."`

	SignInMethods      usersSignInMethods      `cmd:"" help:"List a user's passkeys, linked accounts and authenticator app."`
	RemoveSignInMethod usersRemoveSignInMethod `cmd:"" help:"Remove a passkey or linked account, even the last sign-in method, or the authenticator app, and sign the user out everywhere."`
}

type usersAdd struct {
	Email string `required:"" placeholder:"ADDRESS" help:"E-mail address to sign in with."`
	Name  string `required:"" help:"Name of the user."`
}

func (u usersAdd) Run(ctx context.Context, d service) error {
	return d.print(d.AddUser(ctx, u.Email, u.Name))
}

type usersList struct{}

func (usersList) Run(ctx context.Context, d service) error { return d.print(d.Users(ctx)) }

type usersDuplicates struct{}

func (usersDuplicates) Run(ctx context.Context, d service) error {
	return d.print(d.DuplicateUsers(ctx))
}

type usersShow struct {
	User string `arg:"" help:"UUID or e-mail address of the user."`
}

func (u usersShow) Run(ctx context.Context, d service) error { return d.print(d.ShowUser(ctx, u.User)) }

type usersConfirmEmail struct {
	User string `arg:"" optional:"" xor:"users" help:"UUID or e-mail address of the user."`
	All  bool   `xor:"users" help:"Confirm all unconfirmed addresses. Do this only if the deployment has always sent mail, and its invitations were opened by the people they were sent to."`
}

func (u usersConfirmEmail) Run(ctx context.Context, d service) error {
	return d.print(d.ConfirmEmail(ctx, u.User))
}

type usersDisable struct {
	User string `arg:"" help:"UUID or e-mail address of the user."`
}

func (u usersDisable) Run(ctx context.Context, d service) error {
	return d.print(d.SetDisabled(ctx, u.User, true))
}

type usersEnable struct {
	User string `arg:"" help:"UUID or e-mail address of the user."`
}

func (u usersEnable) Run(ctx context.Context, d service) error {
	return d.print(d.SetDisabled(ctx, u.User, false))
}

type usersSetPassword struct {
	User         string `arg:"" help:"UUID or e-mail address of the user."`
	RemoveOthers bool   `help:"Also remove the user's passkeys and linked accounts, so that only the password remains."`
}

func (u usersSetPassword) Run(ctx context.Context, a *adminCommands) error {
	if isTerminal(os.Stdin) {
		return errTerminal
	}
	d, err := a.ProvideService(ctx)
	if err != nil {
		return err
	}
	return d.print(d.SetPassword(ctx, u.User, os.Stdin, u.RemoveOthers))
}

type usersResetLink struct {
	User string `arg:"" help:"UUID or e-mail address of the user."`
}

func (u usersResetLink) Run(ctx context.Context, d service) error {
	return d.print(d.ResetLink(ctx, u.User))
}

type usersSetEmail struct {
	User  string `arg:"" help:"UUID or e-mail address of the user."`
	Email string `arg:"" help:"The new address."`
}

func (u usersSetEmail) Run(ctx context.Context, d service) error {
	return d.print(d.SetEmail(ctx, u.User, u.Email))
}

type usersDelete struct {
	User   string `arg:"" help:"UUID or e-mail address of the user."`
	DryRun bool   `help:"Change nothing; show what would end."`
}

func (u usersDelete) Run(ctx context.Context, d service) error {
	return d.print(d.DeleteUser(ctx, u.User, u.DryRun))
}

type usersSignInMethods struct {
	User string `arg:"" help:"UUID or e-mail address of the user."`
}

func (u usersSignInMethods) Run(ctx context.Context, d service) error {
	return d.print(d.SignInMethods(ctx, u.User))
}

type usersRemoveSignInMethod struct {
	User   string `arg:"" help:"UUID or e-mail address of the user."`
	Method string `arg:"" help:"Id of a passkey or issuer of a linked account, as listed by sign-in-methods."`
}

func (u usersRemoveSignInMethod) Run(ctx context.Context, d service) error {
	return d.print(d.RemoveSignInMethod(ctx, u.User, u.Method))
}

type memberCommands struct {
	Add            membersAdd            `cmd:"" help:"Add a user to a workspace."`
	List           membersList           `cmd:"" help:"List the members of a workspace."`
	SetPermissions membersSetPermissions `cmd:"" help:"Replace the permissions of a member."`
	Remove         membersRemove         `cmd:"" help:"Remove a user from a workspace, and revoke their grants and personal access tokens there."`

	AppointManagers membersAppointManagers `cmd:"" help:"Give account:read:members and account:write:members to the members with account:api:access, in workspaces where no member has account:write:members. Lists whom it changed."`
}

type membersAdd struct {
	Workspace   string   `arg:"" help:"Id of the workspace."`
	User        string   `arg:"" help:"UUID or e-mail address of the user."`
	Permissions []string `arg:"" help:"Permissions, or all, or none."`
}

func (m membersAdd) Run(ctx context.Context, d service) error {
	return d.print(d.AddMember(ctx, m.Workspace, m.User, m.Permissions))
}

type membersList struct {
	Workspace string `arg:"" help:"Id of the workspace."`
}

func (m membersList) Run(ctx context.Context, d service) error {
	return d.print(d.Members(ctx, m.Workspace))
}

type membersSetPermissions struct {
	Workspace   string   `arg:"" help:"Id of the workspace."`
	User        string   `arg:"" help:"UUID or e-mail address of the user."`
	Permissions []string `arg:"" help:"Permissions, or all, or none."`
}

func (m membersSetPermissions) Run(ctx context.Context, d service) error {
	return d.print(d.SetPermissions(ctx, m.Workspace, m.User, m.Permissions))
}

type membersAppointManagers struct {
	Workspace string `placeholder:"ID" aliases:"tenant" help:"Only in one workspace."`
}

func (m membersAppointManagers) Run(ctx context.Context, d service) error {
	return d.print(d.AppointManagers(ctx, m.Workspace))
}

type membersRemove struct {
	Workspace string `arg:"" help:"Id of the workspace."`
	User      string `arg:"" help:"UUID or e-mail address of the user."`
}

func (m membersRemove) Run(ctx context.Context, d service) error {
	return d.print(d.RemoveMember(ctx, m.Workspace, m.User))
}
