package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/almonerhq/almoner/authserver/internal/backup"
)

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
