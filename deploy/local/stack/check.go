package stack

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// databaseWithin limits the response time of a database named by the options.
const databaseWithin = 5 * time.Second

// Check returns an error that would prevent Start and can be detected without starting anything: another stack in the
// same directory, a directory that is not writable, a port in use, or a given store that does not respond.
func Check(ctx context.Context, options Options) error {
	h, err := openHome(options.Home)
	if err != nil {
		return err
	}
	defer h.release()
	if _, err = choosePorts(options.Port); err != nil {
		return err
	}
	if options.RedisURL != "" {
		if err := askRedis(ctx, options.RedisURL); err != nil {
			return err
		}
	}
	if options.DatabaseURL == "" {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, databaseWithin)
	defer cancel()
	db, err := pgx.Connect(within, options.DatabaseURL)
	if err != nil {
		return (&Stack{options: options}).explainDatabase(withoutURL(err))
	}
	return db.Close(context.WithoutCancel(ctx))
}
