package pghealth

import (
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// RequirePrimary makes a connection to one of several servers fail at those that do not accept writes, unless the URL
// has target_session_attrs. Otherwise a service that lost the primary would read from a replica, which may lack the
// latest revocations.
func RequirePrimary(config *pgconn.Config) {
	other := func(f *pgconn.FallbackConfig) bool { return f.Host != config.Host || f.Port != config.Port }
	if config.ValidateConnect == nil && slices.ContainsFunc(config.Fallbacks, other) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}
