package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/database/retention"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// Migrate applies the missing migrations. With check, it changes nothing and returns a migrate.State if the
// schema differs. With distribute, it also distributes the tables.
func Migrate(ctx context.Context, environ []string, check, distribute bool, out io.Writer) error {
	var config struct {
		DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
	}
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	url := config.DatabaseURL.Reveal()
	return migrate.Command{
		Schema: "resource",
		State:  func() (migrate.State, error) { return postgres.Look(ctx, url) },
		Up: func() (applied []string, err error) {
			if applied, err = postgres.Migrate(ctx, url); err == nil {
				err = postgres.MigrateJobs(ctx, url)
			}
			if err == nil {
				err = indexSearches(ctx, url, out)
			}
			return applied, err
		},
		Distribute: func() error { return postgres.Distribute(ctx, url, out) },
	}.Run(check, distribute, out)
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

// RetentionSettings say how many days records are kept after they have ended. The retentionMonths of a form determine
// how long its submissions are kept.
type RetentionSettings struct {
	ImportsDays    int `env:"ALMONER_RETENTION_IMPORTS_DAYS" envDefault:"90" doc:"Days that finished imports are kept, with their errors; 0 keeps them for ever."`
	SupportersDays int `env:"ALMONER_RETENTION_SUPPORTERS_DAYS" envDefault:"30" doc:"Days that supporters are kept after their last submission was deleted; 0 keeps them for ever."`
}

// Check reports the settings that are out of range. envconf calls it.
func (r RetentionSettings) Check() []error {
	var m envconf.Checks
	for name, days := range map[string]int{
		postgres.ImportsSetting:    r.ImportsDays,
		postgres.SupportersSetting: r.SupportersDays,
	} {
		m.Require(days >= 0 && days <= retention.MaxDays,
			fmt.Sprintf("%s must be between 0 and %d", name, retention.MaxDays))
	}
	return m
}

// Retention deletes the due records, or only counts them unless deletes is true, and writes the result to out.
func Retention(ctx context.Context, environ []string, deletes, asJSON bool, out io.Writer) error {
	var config struct {
		DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
		RetentionSettings
	}
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	store, err := openForCommand(ctx, config.DatabaseURL)
	if err != nil {
		return err
	}
	defer store.Close()
	records := store.Retention(retention.Days(config.ImportsDays), retention.Days(config.SupportersDays))
	if deletes {
		deleted, err := records.DeleteAll(ctx)
		return errors.Join(err, write(out, deleted, asJSON))
	}
	all, err := records.Show(ctx)
	if err != nil {
		return err
	}
	return write(out, all, asJSON)
}

// openForCommand opens the store of an operator's command, with the smallest number of connections.
func openForCommand(ctx context.Context, url credential.Secret) (*postgres.Store, error) {
	return postgres.Open(ctx, credential.Fixed(url), postgres.Limits{Connections: 2, Wait: pg.CommandWait})
}

// write writes the result of a command.
func write(out io.Writer, result interface{ Text(io.Writer) error }, asJSON bool) error {
	if !asJSON {
		return result.Text(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}
