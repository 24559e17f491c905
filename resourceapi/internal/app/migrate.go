package app

import (
	"context"
	"fmt"
	"io"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// Migrate brings the database to the newest schema, or, with check, changes nothing and fails with a migrate.Difference where it is another.
func Migrate(ctx context.Context, c MigrateConfig, check bool, out io.Writer) error {
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
	}
	for _, name := range applied {
		if _, err := fmt.Fprintln(out, "applied "+name); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out, "the resource schema is up to date")
	return err
}
