package app

import (
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/retention"
	"github.com/almonerhq/almoner/shared/standing"
)

// An Option replaces a part that New would create. Only tests use options: they build the same service with other
// clocks, another recorder, and cheap password hashes.
type Option func(*options)

type options struct {
	now      func() time.Time
	failures func() time.Time
	uses     UsageRecorder
	cost     session.Cost
}

// A UsageRecorder records that a credential was used.
type UsageRecorder interface {
	Record(s standing.Standing)
}

// WithClock sets the clock of the service. The stores keep their own clocks.
func WithClock(now func() time.Time) Option { return func(o *options) { o.now = now } }

// WithFailuresClock sets the clock of the limit of failed requests.
func WithFailuresClock(now func() time.Time) Option { return func(o *options) { o.failures = now } }

// WithPasswordCost sets the cost of the dummy password hash.
func WithPasswordCost(cost session.Cost) Option { return func(o *options) { o.cost = cost } }

// WithUsageRecorder replaces the recorder that writes to Postgres.
func WithUsageRecorder(r UsageRecorder) Option { return func(o *options) { o.uses = r } }

// Parts are the parts of the service that tests use directly.
type Parts struct {
	Store     *postgres.Store
	Redis     goredis.UniversalClient
	Grants    *grant.Service
	Engine    *engine.Engine
	Keyring   *keyring.Keyring
	Documents *clientmetadata.Resolver
	Sessions  *session.Sessions
	Passwords *session.Passwords
	Failures  *ratelimit.Limiter // its Share runs only in Serve
	Retention *retention.Store   // Serve calls its Run
}
