package app

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/keyring"
	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/web"
)

func alive() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		web.JSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
}

const probeTime = time.Second

// ready says whether this process can do its work. Redis is reported but not required: without it codes and refresh tokens
// wait (503), while sign-in, settings and introspection go on.
func ready(log *slog.Logger, postgres func(context.Context) error, rdb goredis.UniversalClient, ring *keyring.Ring) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.Leaving(r.Context()) {
			web.JSON(w, http.StatusServiceUnavailable, map[string]string{"status": "leaving"})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), probeTime)
		defer cancel()
		_, noKey := ring.Current(ctx)
		checks := map[string]error{"postgres": postgres(ctx), "redis": rdb.Ping(ctx).Err(), "keys": noKey}
		answer, status := map[string]string{}, http.StatusOK
		for part, err := range checks {
			answer[part] = "ok"
			if err == nil {
				continue
			}
			answer[part] = "does not answer"
			log.WarnContext(r.Context(), "not ready", "part", part, "error", err)
			if part != "redis" {
				status = http.StatusServiceUnavailable
			}
		}
		web.JSON(w, status, answer)
	})
}

func lastResort() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		apierr.Write(w, apierr.Flat, apierr.Of(nil))
	})
}

// redirectTo sends the browser to target with the query that it came with, for clients that guess addresses on the API's origin.
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
