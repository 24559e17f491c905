package app

import (
	"context"
	"fmt"
	"io"

	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/envconf"
)

// migrateConfig is the setting of the migrate command.
type migrateConfig struct {
	DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
}

// Migrate brings the account schema up to date. If check is set, it changes nothing and fails with a migrate.Difference
// if the schema differs. If distribute is set, it also distributes the tables.
func Migrate(ctx context.Context, environ []string, check, distribute bool, out io.Writer) error {
	var config migrateConfig
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	var applied []string
	if check {
		state, err := postgres.SchemaState(ctx, config.DatabaseURL)
		if err == nil {
			err = state.Err()
		}
		if err != nil {
			return err
		}
	} else {
		var err error
		if applied, err = postgres.Migrate(ctx, config.DatabaseURL); err != nil {
			return err
		}
	}
	for _, name := range applied {
		if _, err := fmt.Fprintln(out, "applied "+name); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(out, "the account schema is up to date"); err != nil || check || !distribute {
		return err
	}
	return postgres.Distribute(ctx, config.DatabaseURL, out)
}

// FinishUpgrade completes an upgrade after the last process of the previous release has ended.
func FinishUpgrade(ctx context.Context, environ []string, out io.Writer) error {
	var config migrateConfig
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	state, err := postgres.SchemaState(ctx, config.DatabaseURL)
	if err == nil {
		err = state.Err()
	}
	duplicates := 0
	if err == nil {
		duplicates, err = postgres.FinishUpgrade(ctx, config.DatabaseURL)
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
