package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/backup"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/shared/rest"
)

type keyCommands struct {
	List   ListKeys   `cmd:"" help:"List the published keys."`
	Rotate RotateKeys `cmd:"" help:"Sign with the next key. The previous key stays published until its tokens expire."`
	Remove RemoveKey  `cmd:"" help:"Emergency: remove a key immediately, even the current one. Its tokens become invalid."`
	Reseal ResealKeys `cmd:"" help:"Encrypt signing keys with the newest key in ALMONER_KEYS, once every process has it."`
}

// MaintenanceStore reads the signing keys and records what was deleted.
type MaintenanceStore interface {
	SigningKeys(ctx context.Context) ([]keyring.StoredKey, error)
	Record(ctx context.Context, e audit.Event) error
}

// A Key is a signing key without its key material.
type Key struct {
	KID       string     `json:"kid"`
	State     string     `json:"state"`
	Activated *time.Time `json:"activatedAt"`
	Retired   *time.Time `json:"retiredAt"`
	Created   rest.Time  `json:"createdAt"`
}

func (k Key) cells() []cell {
	return []cell{
		{"KID", k.KID}, {"STATE", k.State}, {"CREATED", k.Created}, {"SIGNS SINCE", k.Activated},
		{"RETIRED", k.Retired},
	}
}

// ListKeys lists the published keys, oldest first.
type ListKeys struct{}

func (ListKeys) run(ctx context.Context, s *Service) (Result, error) {
	stored, err := s.Store.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	keys := make(List[Key], len(stored))
	for i, k := range stored {
		keys[i] = Key{k.KID, string(k.State), k.Activated, k.Retired, rest.Time(k.Created)}
	}
	return keys, nil
}

// ring returns the key ring, with its first keys created.
func (s *Service) ring(ctx context.Context) (*keyring.Keyring, error) {
	if s.Keyring == nil {
		return nil, refuse("ALMONER_KEYS is not set: it is needed to decrypt signing keys")
	}
	return s.Keyring, s.Keyring.Load(ctx)
}

// RotateKeys makes the next key sign.
type RotateKeys struct{}

func (RotateKeys) run(ctx context.Context, s *Service) (Result, error) {
	ring, err := s.ring(ctx)
	if err != nil {
		return nil, err
	}
	kid, err := ring.Rotate(ctx, audit.Operator)
	return Outcome{
		"Every process signs with the key " + kid + " within 5 seconds. The previous key stays published until its " +
			"last token has expired.",
		map[string]any{"kid": kid},
	}, err
}

// RemoveKey removes a key at once, even the current one.
type RemoveKey struct {
	KID string `arg:"" name:"kid" help:"Id of the key."`
}

func (c RemoveKey) run(ctx context.Context, s *Service) (Result, error) {
	ring, err := s.ring(ctx)
	if err != nil {
		return nil, err
	}
	if err := ring.Remove(ctx, c.KID, audit.Operator); errors.Is(err, keyring.ErrUnknownKID) {
		return nil, refuse("there is no published key with that id: see keys list")
	} else if err != nil {
		return nil, err
	}
	signing, err := ring.Current(ctx)
	if err != nil {
		return nil, err
	}
	return Outcome{
		"Removed the key. Both services refuse its tokens from now on, and every process signs with " +
			signing.KeyID() + " within 5 seconds. Programs that verify tokens themselves may cache the key set for " +
			"5 minutes.",
		map[string]any{"removed": c.KID, "signing": signing.KeyID()},
	}, nil
}

// ResealKeys seals the private keys and the secrets of authenticator apps under the newest key of ALMONER_KEYS.
type ResealKeys struct{}

func (ResealKeys) run(ctx context.Context, s *Service) (Result, error) {
	ring, err := s.ring(ctx)
	if err != nil {
		return nil, err
	}
	n, err := ring.Reseal(ctx, audit.Operator)
	if err != nil {
		return nil, err
	}
	apps, err := s.Store.ResealAuthenticators(ctx)
	return Outcome{
		fmt.Sprintf("Resealed: %s and %s.", plural(n, "signing key"), plural(apps, "authenticator app")),
		map[string]any{"resealed": n, "authenticators": apps},
	}, err
}

type retentionCommands struct {
	Show ShowRetention `cmd:"" help:"Show how long records are kept, and how many are due to be deleted."`
	Run  RunRetention  `cmd:"" help:"Delete the records that are due now. The service also does this every hour."`
}

// ShowRetention lists how long records are kept, and how many are due.
type ShowRetention struct{}

func (ShowRetention) run(ctx context.Context, s *Service) (Result, error) {
	return s.Retention.Show(ctx)
}

// RunRetention deletes the due records now and records their numbers in one audit event.
type RunRetention struct {
	DryRun bool `name:"dry-run" help:"Delete nothing; show what is due."`
}

func (c RunRetention) run(ctx context.Context, s *Service) (Result, error) {
	if c.DryRun {
		return s.Retention.Show(ctx)
	}
	all, failed := s.Retention.DeleteAll(ctx)
	if counts := all.Counts(); len(counts) > 0 {
		e := audit.ByOperator().Event(audit.RetentionRun, "retention", map[string]any{"deleted": counts}, nil)
		if err := s.Store.Record(ctx, e); err != nil {
			return nil, fmt.Errorf("record the run: %w", err)
		}
	}
	return all, failed
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

// withoutCauses returns an error with the same text and no causes. cmd/authserver would give advice about
// ALMONER_DATABASE_URL for some causes, but these commands do not use it.
func withoutCauses(err error) error {
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
	return withoutCauses(b.folder().Dump(ctx, backup.DumpOptions{NoRoles: b.NoRoles, Later: b.Later}))
}

type backupBase struct{ backupFolder }

func (b backupBase) Run(ctx context.Context) error { return withoutCauses(b.folder().Base(ctx)) }

type backupVerify struct {
	Kind string `arg:"" enum:"dump,base" help:"dump or base."`
	backupFolder
}

func (b backupVerify) Run(ctx context.Context) error {
	if b.Kind == "base" {
		return withoutCauses(b.folder().VerifyBase(ctx))
	}
	return withoutCauses(b.folder().VerifyDump(ctx))
}

type backupRestore struct {
	backupFolder
	Dump  string `placeholder:"NAME" help:"Name of the dump in the folder. Default: the newest."`
	Roles bool   `help:"First make the roles of the dump's server, with their passwords. For a new server."`
}

func (b backupRestore) Run(ctx context.Context) error {
	return withoutCauses(b.folder().Restore(ctx, b.Dump, b.Roles))
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
	r := backup.Recovery{Folder: b.folder(), Data: b.Data, Archive: b.Archive, Moment: moment}
	return withoutCauses(r.Recover(ctx))
}
