package app

import (
	"context"
	"fmt"
	"log/slog"

	goredis "github.com/redis/go-redis/v9"
)

// LogLibraries makes what libraries say on their own part of the log, so that no plain text lies between its lines: Go's log
// package, and go-redis, whose complaints about connections come from the background. It is for the whole process.
func LogLibraries(log *slog.Logger) {
	slog.SetDefault(log)
	goredis.SetLogger(redisWords{log})
}

type redisWords struct{ log *slog.Logger }

// Printf is what go-redis calls. It says which address did not answer and why, and quotes no command.
func (w redisWords) Printf(ctx context.Context, format string, values ...any) {
	w.log.WarnContext(ctx, "go-redis: "+fmt.Sprintf(format, values...))
}
