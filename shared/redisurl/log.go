package redisurl

import (
	"context"
	"fmt"
	"log/slog"

	goredis "github.com/redis/go-redis/v9"
)

// LogTo makes go-redis' complaints about connections, which come from the background, lines of the log like any other.
// It is for the whole process.
func LogTo(log *slog.Logger) { goredis.SetLogger(words{log}) }

type words struct{ log *slog.Logger }

// Printf is what go-redis calls. It says which address did not answer and why, and quotes no command.
func (w words) Printf(ctx context.Context, format string, values ...any) {
	w.log.WarnContext(ctx, "go-redis: "+fmt.Sprintf(format, values...))
}
