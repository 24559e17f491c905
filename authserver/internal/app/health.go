package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/web"
)

// live reports that the process runs, whatever the state of its stores.
func live() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		web.JSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
}

// probeTime limits the check of one part.
const probeTime = time.Second

// A part is a dependency of requests.
type part struct {
	name    string
	check   func(context.Context) error
	decides bool // whether the process is not ready without it
}

// partsOf returns the parts. Redis is reported but not required: without it, codes and refresh tokens get a 503, while
// sign-in, settings and introspection work. The same holds for the database of refreshes, whose check uses the pool of
// refreshes: a flood of refreshes delays the response by up to a second. probe and store.Ready have connections of
// their own, so that a flood of other requests neither delays nor fails the check.
func partsOf(store *postgres.Store, probe goredis.UniversalClient, ring *keyring.Keyring) []part {
	parts := []part{
		{"postgres", store.Ready, true},
		{"redis", func(ctx context.Context) error { return probe.Ping(ctx).Err() }, false},
		{"keys", ring.Ready, true},
	}
	if store.HasRefreshPool() {
		parts = append(parts, part{"refreshes", store.PingRefreshes, false})
	}
	return parts
}

// ready reports whether the process can do its work.
func ready(log *slog.Logger, parts []part) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.Leaving(r.Context()) {
			web.JSON(w, http.StatusServiceUnavailable, map[string]string{"status": "leaving"})
			return
		}
		answer, status := map[string]string{}, http.StatusOK
		for _, p := range parts {
			// One for each part, so that a part that hangs does not use up the time of the others.
			ctx, cancel := context.WithTimeout(r.Context(), probeTime)
			err := p.check(ctx)
			cancel()
			answer[p.name] = "ok"
			if err == nil {
				continue
			}
			answer[p.name] = "does not answer"
			log.WarnContext(r.Context(), "dependency unavailable", "part", p.name, "error", err)
			if p.decides {
				status = http.StatusServiceUnavailable
			}
		}
		web.JSON(w, status, answer)
	})
}

// firstCheck returns the check that web.Serve makes before it listens. It fails while a required part does not respond.
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

// withKeys writes a 503 until the signing keys are loaded. Without them, a token could not be signed, and a valid token
// would look forged.
func withKeys(ring *keyring.Keyring, log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := ring.Ready(r.Context()); err != nil {
			log.ErrorContext(r.Context(), "signing keys not loaded", "error", err)
			apierr.Write(w, apierr.Flat,
				apierr.New(apierr.Unavailable, "The service is temporarily unavailable. Try again."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func lastResort() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		apierr.Write(w, apierr.Flat, apierr.Of(nil))
	})
}

// redirectTo redirects to target with the query of the request, for clients that guess URLs on the API's origin.
func redirectTo(target string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := target
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	})
}
