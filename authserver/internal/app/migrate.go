package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/envconf"
)

// migrateConfig is the one setting that migrate needs.
type migrateConfig struct {
	DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
}

// Migrate brings the account schema up to date, or, with check, fails where it is not.
func Migrate(ctx context.Context, environ []string, check bool, out io.Writer) error {
	var config migrateConfig
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	if check {
		pending, err := postgres.Pending(ctx, config.DatabaseURL)
		if err != nil {
			return err
		}
		if pending {
			return errors.New("a migration is pending: run authserver migrate")
		}
		_, err = fmt.Fprintln(out, "the account schema is up to date")
		return err
	}
	applied, err := postgres.Migrate(ctx, config.DatabaseURL)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "the account schema is up to date (%d migrations applied)\n", applied)
	return err
}
