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

// alive reports that the process runs, whatever the state of its stores.
func alive() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		web.JSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
}

// probeTime is the time limit of the check of one part.
const probeTime = time.Second

// A part is a dependency of requests.
type part struct {
	name    string
	check   func(context.Context) error
	decides bool // whether the process is not ready without it
}

// partsOfAPI returns the dependencies of the API. Redis is reported but not required: without it each process limits
// by itself. The keys of access tokens are required until they were read once. Later the cached ones are used
// (package keys), but a new process that cannot reach the authorization server must not replace one that could. The
// authorization server in turn waits only for its stores.
func partsOfAPI(store *postgres.Store, source *keys.Source, limits *redis.Limits) []part {
	parts := append(partsOfWorker(store), part{"keys", source.Ready, true})
	if limits.AreShared() {
		parts = append(parts, part{"redis", limits.Ping, false})
	}
	return parts
}

// partsOfWorker returns the dependencies of processing submissions.
func partsOfWorker(store *postgres.Store) []part { return []part{{"postgres", store.Ready, true}} }

// ready reports whether requests can be served.
func ready(guard *gate.Gate, log *slog.Logger, parts []part) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.Leaving(r.Context()) {
			guard.Refuse(w, r, apierr.New(apierr.Unavailable, "This process is shutting down."))
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
				log.WarnContext(r.Context(), "dependency unavailable", "part", p.name, "cause", err)
			}
		}
		web.JSON(w, http.StatusOK, answer)
	})
}

// firstCheck returns the check that web.Serve makes before it listens: it fails while a required part does not
// respond.
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
