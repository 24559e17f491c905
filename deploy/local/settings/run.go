// Package settings answers: what may be set, in which program, and what does it mean?
//
// The structs that the programs read are the only source. What is written of them, the tables in deploy/README.md and the
// names in shared/envconf that every program knows, is generated (Files): `make generate` writes it, and a test in e2e sees
// that it is current.
package settings

import (
	"errors"

	"github.com/almonerhq/almoner/shared/credential"
)

// A Run is what `make run` is told.
type Run struct {
	Port        int               `env:"PORT" envDefault:"8080" doc:"Port of the API; sign-in and settings have the next one, resourceapi the one after that."`
	Home        string            `env:"ALMONER_HOME" doc:"Where everything is kept. Default: .almoner in the checkout."`
	DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL" doc:"Use this PostgreSQL (15 or newer) and start none. The database is empty or holds this demo, and its user may create roles."`
	RedisURL    credential.Secret `env:"ALMONER_REDIS_URL" doc:"Use this Redis (7 or newer) and start none."`
}

// Check reports what the types alone cannot. envconf calls it.
func (r *Run) Check() []error {
	if r.Port < 1 {
		return []error{errors.New("PORT is a number above 0, like PORT=9000")}
	}
	return nil
}
