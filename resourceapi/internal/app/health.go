package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/keys"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/redis"
)

// alive answers that the process runs, whatever becomes of its stores.
func alive() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		web.JSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
}

// probeTime is how long a part may take to say that it is well.
const probeTime = time.Second

// A part is something that requests need.
type part struct {
	name    string
	check   func(context.Context) error
	decides bool // whether no request can be served without it
}

// partsOfAPI are what answers of the API take. Redis is reported and not required: without it each process limits by
// itself. The keys of access tokens are required until they were read once: later the last ones serve on (package
// keys), but a new process that cannot reach authserver must not take the place of one that could. Authserver in turn
// waits for nobody but its stores.
func partsOfAPI(store *postgres.Store, source *keys.Source, limits *redis.Limits) []part {
	parts := append(partsOfWorker(store), part{"keys", source.Ready, true})
	if limits.AreShared() {
		parts = append(parts, part{"redis", limits.Answers, false})
	}
	return parts
}

// partsOfWorker are what processing submissions takes.
func partsOfWorker(store *postgres.Store) []part { return []part{{"postgres", store.Ready, true}} }

// ready answers whether requests can be served.
func ready(guard *gate.Gate, log *slog.Logger, parts []part) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.Leaving(r.Context()) {
			guard.Refuse(w, r, apierr.New(apierr.Unavailable, "This process is leaving."))
			return
		}
		answer := map[string]string{}
		for _, p := range parts {
			ctx, cancel := context.WithTimeout(r.Context(), probeTime)
			err := p.check(ctx)
			cancel()
			if err != nil && p.decides {
				guard.Refuse(w, r, err)
				return
			}
			answer[p.name] = "ok"
			if err != nil {
				answer[p.name] = "does not answer"
				log.WarnContext(r.Context(), "ready without a part", "part", p.name, "cause", err)
			}
		}
		web.JSON(w, http.StatusOK, answer)
	})
}

// firstCheck returns the check that web.Serve makes before it listens: it fails while a part that decides does not
// answer.
func firstCheck(parts []part) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, p := range parts {
			if !p.decides {
				continue
			}
			if err := p.check(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	}
}
