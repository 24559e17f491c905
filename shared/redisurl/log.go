package redisurl

import (
	"context"
	"fmt"
	"log/slog"

	goredis "github.com/redis/go-redis/v9"
)

// LogTo sends go-redis' background messages about connections to log, for the whole process.
func LogTo(log *slog.Logger) { goredis.SetLogger(words{log}) }

type words struct{ log *slog.Logger }

// Printf implements go-redis' logger. Messages contain addresses and causes, and no command.
func (w words) Printf(ctx context.Context, format string, values ...any) {
	w.log.WarnContext(ctx, "go-redis: "+fmt.Sprintf(format, values...))
}
