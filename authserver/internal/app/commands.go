package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/database/pg"
)

// adminConfig is the settings of the administrator's commands. Keys are only needed for signing keys and mails, Redis
// only to propagate revocations, the URL of the pages only for links, and the URL of the API only for connectors.
type adminConfig struct {
	DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
	RedisURL    credential.Secret `env:"ALMONER_REDIS_URL"`
	Keys        credential.Secret `env:"ALMONER_KEYS"`
	SMTPURL     credential.Secret `env:"ALMONER_SMTP_URL"`
	AppURL      string            `env:"ALMONER_APP_URL"`
	BaseURL     string            `env:"ALMONER_BASE_URL"`
	RetentionSettings
}

// Admin creates the service of the administrator's commands. The caller must call done afterwards.
func Admin(ctx context.Context, environ []string, log *slog.Logger) (service *admin.Service, done func(), err error) {
	var config adminConfig
	reading, err := envconf.Load(&config, environ)
	if err != nil {
		return nil, nil, err
	}
	reading.Warn(log)
	revoke, closeRedis, err := propagateRevocation(config.RedisURL, log)
	if err != nil {
		return nil, nil, err
	}
	store, err := postgres.Open(ctx, postgres.Only(config.DatabaseURL), pg.CommandWait)
	if err != nil {
		return nil, nil, err
	}
	store.ServeCommands()
	done = func() {
		store.Close()
		closeRedis()
	}
	ring, err := useKeys(store, config)
	if err != nil {
		done()
		return nil, nil, err
	}
	var resources []string
	if config.BaseURL != "" {
		resources = perm.Identifiers(config.BaseURL)
	}
	return admin.New(admin.Deps{
		Store: admin.Store{
			WorkspaceStore: store.Accounts,
			UserStore:      store.Accounts,
			SignInStore:    store.SignIns,
			AccountStore:   store.Accounts,
			MemberStore:    store.Accounts,
			ClientStore:    store.Clients,
			GrantStore:     store.Grants,
			PolicyStore:    store.Grants,
		},
		Clients: &client.Registry{
			Store: store.Clients,
			PropagateRevocation: func(ctx context.Context, ended []useraccount.EndedGrant) {
				revoke(ctx, admin.Revoked(ended, grant.ClientDeleted))
			},
			Now:    time.Now,
			Random: rand.Reader,
		},
		Keys:                store.Grants,
		Keyring:             ring,
		AppURL:              config.AppURL,
		Resources:           resources,
		Retention:           store.Retention(config.RetentionSettings.periods()),
		Audit:               store.Logs,
		PropagateRevocation: revoke,
	}), done, nil
}

// useKeys returns the keyring and makes the store seal secrets and queue mails, which the worker of a running process
// sends. It does nothing without the keys, and queues no mail without the settings of mail.
func useKeys(store *postgres.Store, config adminConfig) (*keyring.Keyring, error) {
	if config.Keys == "" {
		return nil, nil
	}
	keys, err := seal.ParseKeys(config.Keys)
	if err != nil {
		return nil, fmt.Errorf("ALMONER_KEYS: %w", err)
	}
	if err := sealSecrets(store, keys); err != nil {
		return nil, err
	}
	if config.SMTPURL != "" {
		if err := queueMail(store, keys, time.Now); err != nil {
			return nil, err
		}
	}
	return keyring.New(store.Grants, keys)
}

// propagateRevocation returns a function that revokes ended grants in Redis until Redis fails. Postgres refuses them in
// any case. Without a URL, it does nothing. done closes the connection.
func propagateRevocation(url credential.Secret, log *slog.Logger) (
	revoke func(context.Context, []grant.Grant), done func(), err error,
) {
	if url == "" {
		return func(context.Context, []grant.Grant) {}, func() {}, nil
	}
	rdb, err := redis.Connect(credential.Fixed(url), 0)
	if err != nil {
		return nil, nil, err
	}
	grants := redis.NewGrants(rdb)
	failed := false
	revoke = func(ctx context.Context, ended []grant.Grant) {
		if failed {
			return
		}
		if err := grants.RevokeAll(ctx, ended); err != nil {
			failed = true
			log.Warn("revocations not propagated to Redis; Postgres still refuses the grants", "error", err)
		}
	}
	return revoke, func() { _ = rdb.Close() }, nil // no commands are pending
}

// migration returns the database and the command that migrates it.
func migration(ctx context.Context, environ []string, out io.Writer) (credential.Secret, migrate.Command, error) {
	var config struct {
		DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
	}
	_, err := envconf.Load(&config, environ)
	url := config.DatabaseURL
	return url, migrate.Command{
		Schema:     "account",
		State:      func() (migrate.State, error) { return postgres.SchemaState(ctx, url) },
		Up:         func() ([]string, error) { return postgres.Migrate(ctx, url) },
		Distribute: func() error { return postgres.Distribute(ctx, url, out) },
	}, err
}

// Migrate brings the account schema up to date. If check is set, it changes nothing and fails with a migrate.State
// if the schema differs. If distribute is set, it also distributes the tables.
func Migrate(ctx context.Context, environ []string, check, distribute bool, out io.Writer) error {
	_, command, err := migration(ctx, environ, out)
	if err != nil {
		return err
	}
	return command.Run(check, distribute, out)
}

// FinishUpgrade completes an upgrade after the last process of the previous release has ended.
func FinishUpgrade(ctx context.Context, environ []string, out io.Writer) error {
	url, command, err := migration(ctx, environ, out)
	if err == nil {
		err = command.Check()
	}
	duplicates := 0
	if err == nil {
		duplicates, err = postgres.FinishUpgrade(ctx, url)
	}
	if err == nil && duplicates > 0 {
		_, err = fmt.Fprintf(out, "users whose address has invisible characters or is another spelling of another "+
			"user's address: %d; to list them, run authserver admin users duplicates; its --help says what to do\n",
			duplicates)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "the upgrade is finished; the previous release no longer works with this database")
	return err
}
