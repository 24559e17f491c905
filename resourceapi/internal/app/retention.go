package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/envconf"
	"github.com/almonerhq/almoner/shared/pghealth"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// RetentionSettings say how many days records are kept after they have ended. The retentionMonths of a form determine
// how long its submissions are kept.
type RetentionSettings struct {
	ImportsDays    int `env:"ALMONER_RETENTION_IMPORTS_DAYS" envDefault:"90" doc:"Days that finished imports are kept, with their errors; 0 keeps them for ever."`
	SupportersDays int `env:"ALMONER_RETENTION_SUPPORTERS_DAYS" envDefault:"30" doc:"Days that supporters are kept after their last submission was deleted; 0 keeps them for ever."`
}

// maxRetentionDays is a hundred years.
const maxRetentionDays = 36_500

// Check reports the settings that are out of range. envconf calls it.
func (s RetentionSettings) Check() []error {
	var mistakes []error
	for name, days := range map[string]int{
		postgres.SettingImports:    s.ImportsDays,
		postgres.SettingSupporters: s.SupportersDays,
	} {
		if days < 0 || days > maxRetentionDays {
			mistakes = append(mistakes, fmt.Errorf("%s must be between 0 and %d", name, maxRetentionDays))
		}
	}
	return mistakes
}

func (s RetentionSettings) periods() postgres.RetentionPeriods {
	const day = 24 * time.Hour
	return postgres.RetentionPeriods{
		Imports:    time.Duration(s.ImportsDays) * day,
		Supporters: time.Duration(s.SupportersDays) * day,
	}
}

type retentionConfig struct {
	DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
	RetentionSettings
}

// A RetentionCommand is a command of `resourceapi retention`.
type RetentionCommand struct {
	Delete bool // the due records; otherwise they are only counted
	JSON   bool
}

// Run runs the command with the settings of environ and writes its result to out.
func (c RetentionCommand) Run(ctx context.Context, environ []string, out io.Writer) error {
	var config retentionConfig
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	store, err := postgres.OpenWithWait(ctx, config.DatabaseURL.Reveal(), retentionConnections, pghealth.CommandWait)
	if err != nil {
		return err
	}
	defer store.Close()
	records := store.Retention(config.periods())
	if c.Delete {
		deleted, err := records.DeleteAll(ctx)
		return errors.Join(err, c.write(out, deleted))
	}
	all, err := records.Show(ctx)
	if err != nil {
		return err
	}
	return c.write(out, all)
}

// retentionConnections is the smallest number of connections of a store.
const retentionConnections = 2

func (c RetentionCommand) write(out io.Writer, table interface{ Text(io.Writer) error }) error {
	if !c.JSON {
		return table.Text(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(table)
}
