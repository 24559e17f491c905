package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// Migrate applies the missing migrations. With check, it changes nothing and returns a migrate.Difference if the
// schema differs. With distribute, it also distributes the tables.
func Migrate(ctx context.Context, c MigrateConfig, check, distribute bool, out io.Writer) error {
	url := c.DatabaseURL.Reveal()
	var applied []string
	if check {
		state, err := postgres.Look(ctx, url)
		if err == nil {
			err = state.Err()
		}
		if err != nil {
			return err
		}
	} else {
		var err error
		if applied, err = postgres.Migrate(ctx, url); err != nil {
			return err
		}
		if err := postgres.MigrateJobs(ctx, url); err != nil {
			return err
		}
		if err := indexSearches(ctx, url, out); err != nil {
			return err
		}
	}
	for _, name := range applied {
		if _, err := fmt.Fprintln(out, "applied "+name); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(out, "the resource schema is up to date"); err != nil || check || !distribute {
		return err
	}
	return postgres.Distribute(ctx, url, out)
}

// indexSearches creates the search index if the database supports it.
func indexSearches(ctx context.Context, url string, out io.Writer) error {
	created, err := postgres.IndexSearches(ctx, url)
	switch {
	case errors.Is(err, postgres.ErrNoTrigrams):
		_, err = fmt.Fprintln(out, "the index of searches was not created: "+err.Error()+
			"; run create extension pg_trgm as a superuser, then run migrate again")
	case created:
		_, err = fmt.Fprintln(out, "created the index of searches")
	}
	return err
}
