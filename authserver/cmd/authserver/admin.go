package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/backup"
)

// adminCommands are the operator's commands. They work on the database of ALMONER_DATABASE_URL. If ALMONER_REDIS_URL is
// set, revocations are propagated to Redis. keys rotate, remove and reseal need ALMONER_KEYS. backup uses none of
// these.
type adminCommands struct {
	JSON bool `name:"json" help:"Write JSON."`

	Organisations struct {
		Add  admin.AddOrganisation   `cmd:"" help:"Add an organisation."`
		List admin.ListOrganisations `cmd:"" help:"List the organisations."`
	} `cmd:"" help:"Manage organisations."`
	Workspaces struct {
		Add  admin.AddWorkspace   `cmd:"" help:"Add a workspace to an organisation."`
		List admin.ListWorkspaces `cmd:"" help:"List the workspaces with their modules and features."`
	} `cmd:"" aliases:"tenants" help:"Manage workspaces."`
	Modules struct {
		Set admin.SetModule `cmd:"" help:"Enable, disable, provision or unprovision a module of a workspace."`
	} `cmd:"" help:"Manage the modules of a workspace."`
	Features struct {
		Set admin.SetFeature `cmd:"" help:"Turn a feature of a workspace on or off."`
	} `cmd:"" help:"Manage the features of a workspace."`
	Users           userCommands   `cmd:"" help:"Manage users."`
	Members         memberCommands `cmd:"" help:"Manage the members of a workspace and their permissions."`
	Clients         clientCommands `cmd:"" help:"Manage OAuth clients."`
	Apply           admin.Apply    `cmd:"" help:"Create and change clients to match a YAML file."`
	ConnectorPolicy policyCommands `cmd:"" help:"Manage what connectors may be granted in a workspace."`
	Keys            keyCommands    `cmd:"" help:"Manage the keys that sign access tokens."`
	Grants          grantCommands  `cmd:"" help:"Manage grants: what users consented to."`
	Backup          backupCommands `cmd:"" help:"Make, check and restore backups of the database, with PostgreSQL's programs (deploy/runbooks)."`
	Retention       struct {
		Show admin.ShowRetention `cmd:"" help:"Show how long records are kept, and how many are due to be deleted."`
		Run  admin.RunRetention  `cmd:"" help:"Delete the records that are due now. The service also does this every hour."`
	} `cmd:"" help:"Manage the deletion of records that are no longer needed."`
}

// runAdmin runs a command of the operator and prints its result.
func runAdmin(ctx context.Context, command admin.Command, asJSON bool) error {
	if checked, ok := command.(admin.Checked); ok {
		if err := checked.Check(); err != nil {
			return err
		}
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	service, done, err := app.Admin(ctx, os.Environ(), log)
	if err != nil {
		return err
	}
	result, err := service.Run(ctx, command)
	done()
	if err != nil {
		return err
	}
	return admin.Print(os.Stdout, asJSON, result)
}

type userCommands struct {
	Add                admin.AddUser            `cmd:"" help:"Add a user without a password."`
	List               admin.ListUsers          `cmd:"" help:"List the users."`
	Duplicates         admin.ListDuplicates     `cmd:"" help:"List the users whose addresses are spellings of one address, such as ada@münchen.example and ada@xn--mnchen-3ya.example. Each user signs in with the spelling shown. Keep one, and run users delete ID or users set-email ID ADDRESS for the other. The list also has users whose address has invisible characters, shown as \\u200b. They may be unable to sign in: ask them for their address, and set it with users set-email. Then run migrate --finish."`
	Show               admin.ShowUser           `cmd:"" help:"Show a user, and whether and how the user's address was confirmed."`
	Disable            admin.DisableUser        `cmd:"" help:"Disable a user: sign them out, and refuse their tokens and grants."`
	Enable             admin.EnableUser         `cmd:"" help:"Enable a user again."`
	SetPassword        admin.SetPassword        `cmd:"" help:"Set a user's password, read from standard input, and sign them out everywhere. Keeps passkeys and linked accounts unless --remove-others is given."`
	ResetLink          admin.ResetLink          `cmd:"" help:"Create a link that lets a user set a new password. It works once, within 30 minutes, and can also remove passkeys. Needs ALMONER_APP_URL."`
	ConfirmEmail       admin.ConfirmEmail       `cmd:"" help:"Confirm that the account with this address belongs to the owner of the address. Do this only if you are sure: another person may have created an account with an unconfirmed address. This ends nothing; to end everything that gives access to the account, use reset-link."`
	SetEmail           admin.SetEmail           `cmd:"" help:"Change the e-mail address of a user who has lost the old mailbox. Both addresses get a mail. Users who can read both mailboxes change it in Settings."`
	Delete             admin.DeleteUser         `cmd:"" help:"Delete a user: end their memberships, grants, tokens, sign-ins and sign-in methods, and remove their name and address. This cannot be undone. Audit events and applications stay. Use --dry-run first to see what would end."`
	SignInMethods      admin.ListSignInMethods  `cmd:"" help:"List a user's passkeys, linked accounts and authenticator app."`
	RemoveSignInMethod admin.RemoveSignInMethod `cmd:"" help:"Remove a passkey or linked account, even the last sign-in method, or the authenticator app, and sign the user out everywhere."`
}

type memberCommands struct {
	Add             admin.AddMember       `cmd:"" help:"Add a user to a workspace."`
	List            admin.ListMembers     `cmd:"" help:"List the members of a workspace."`
	SetPermissions  admin.SetPermissions  `cmd:"" help:"Replace the permissions of a member."`
	Remove          admin.RemoveMember    `cmd:"" help:"Remove a user from a workspace, and revoke their grants and personal access tokens there."`
	AppointManagers admin.AppointManagers `cmd:"" help:"Give account:read:members and account:write:members to the members with account:api:access, in workspaces where no member has account:write:members. Lists whom it changed."`
}

type clientCommands struct {
	Add           admin.AddClient           `cmd:"" help:"Register a confidential client or a connector. Shows its secret once."`
	AddService    admin.AddService          `cmd:"" help:"Register an internal service that may introspect tokens. Shows its secret once."`
	Set           admin.SetClient           `cmd:"" help:"Change a client. Its grants and its secret stay as they are."`
	ReplaceSecret admin.ReplaceClientSecret `cmd:"" help:"Give a client a new secret and show it once. The previous one works for 24 hours more."`
	List          admin.ListClients         `cmd:"" help:"List the clients."`
	Delete        admin.DeleteClient        `cmd:"" help:"Delete a client and revoke its grants."`
}

type policyCommands struct {
	Show admin.ShowConnectorPolicy `cmd:"" help:"Show the policy of a workspace."`
	Set  admin.SetConnectorPolicy  `cmd:"" help:"Change the given parts of the policy. Stricter limits also apply to existing connections."`
}

type keyCommands struct {
	List   admin.ListKeys   `cmd:"" help:"List the published keys."`
	Rotate admin.RotateKeys `cmd:"" help:"Sign with the next key. The previous key stays published until its tokens expire."`
	Remove admin.RemoveKey  `cmd:"" help:"Emergency: remove a key immediately, even the current one. Its tokens become invalid."`
	Reseal admin.ResealKeys `cmd:"" help:"Encrypt signing keys with the newest key in ALMONER_KEYS, once every process has it."`
}

type grantCommands struct {
	List      admin.ListGrants   `cmd:"" help:"List the latest grants."`
	Revoke    admin.RevokeGrant  `cmd:"" help:"Revoke one grant."`
	RevokeAll admin.RevokeGrants `cmd:"" help:"Revoke all grants that match the options, or every grant with --all."`
}

type backupCommands struct {
	Dump    backupDump    `cmd:"" help:"Write and check a dump of the database and of the server's roles."`
	Base    backupBase    `cmd:"" help:"Make and check a base backup, which then replaces the earlier one. Run it as the user postgres."`
	Verify  backupVerify  `cmd:"" help:"Check the newest dump, or the base backup."`
	Restore backupRestore `cmd:"" help:"Restore a dump. The database that it replaces is renamed."`
	Recover backupRecover `cmd:"" help:"Replace the data of a stopped server with the base backup. When it starts, it replays the WAL up to a moment. Run it as the user postgres."`
}

// backupFolder is the last argument of each command.
type backupFolder struct {
	Dir string `arg:"" placeholder:"FOLDER" help:"Folder with the backups."`
}

func (b backupFolder) folder() backup.Folder { return backup.Folder{Dir: b.Dir, Out: os.Stdout} }

// own returns an error without its causes: printError gives advice about those of ALMONER_DATABASE_URL, which these
// commands do not use.
func own(err error) error {
	if err != nil {
		return errors.New(err.Error())
	}
	return nil
}

type backupDump struct {
	backupFolder
	NoRoles bool `help:"Leave out the roles, for example because a managed PostgreSQL does not let you read them."`
	Later   bool `help:"Allow programs of a later version than the server's: for a move to a server of that version."`
}

func (b backupDump) Run(ctx context.Context) error {
	return own(b.folder().Dump(ctx, backup.DumpOptions{NoRoles: b.NoRoles, Later: b.Later}))
}

type backupBase struct{ backupFolder }

func (b backupBase) Run(ctx context.Context) error { return own(b.folder().Base(ctx)) }

type backupVerify struct {
	Kind string `arg:"" enum:"dump,base" help:"dump or base."`
	backupFolder
}

func (b backupVerify) Run(ctx context.Context) error {
	if b.Kind == "base" {
		return own(b.folder().VerifyBase(ctx))
	}
	return own(b.folder().VerifyDump(ctx))
}

type backupRestore struct {
	backupFolder
	Dump  string `placeholder:"NAME" help:"Name of the dump in the folder. Default: the newest."`
	Roles bool   `help:"First make the roles of the dump's server, with their passwords. For a new server."`
}

func (b backupRestore) Run(ctx context.Context) error {
	return own(b.folder().Restore(ctx, b.Dump, b.Roles))
}

type backupRecover struct {
	backupFolder
	Data    string `name:"pgdata" required:"" placeholder:"FOLDER" help:"Folder with the data of the stopped server."`
	Archive string `required:"" placeholder:"FOLDER" help:"Folder with the archived WAL."`
	Moment  string `required:"" placeholder:"TIME" help:"The moment before the damage, like 2026-03-01 12:00:00+00."`
}

func (b backupRecover) Run(ctx context.Context) error {
	moment, err := backup.ParseMoment(b.Moment)
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	return own(backup.Recovery{Folder: b.folder(), Data: b.Data, Archive: b.Archive, Moment: moment}.Recover(ctx))
}
