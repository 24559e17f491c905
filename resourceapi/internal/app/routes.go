package app

import (
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/redis"
)

// newRouter returns the router of all routes. A path must match exactly as sent: other spellings are neither cleaned
// nor redirected. Unknown paths and wrong methods are refused before the credential is checked (contract, section 6).
func newRouter(guard *gate.Gate, all []routes, deprecated rest.Deprecations) *mux.Router {
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	router.Use(noteRoute(deprecated))
	router.NotFoundHandler = refuse(guard, apierr.New(apierr.NotFound, "This path does not exist."))
	wrongMethod := refuse(
		guard,
		apierr.New(apierr.MethodNotAllowed, "This path does not support this method. The Allow header lists the "+
			"supported methods."),
	)
	for _, some := range all {
		for _, path := range slices.SortedFunc(maps.Keys(some), fixedFirst) {
			router.Handle(path, withPathValues(web.Methods(some[path], wrongMethod)))
		}
	}
	return router
}

// fixedFirst orders a path before those that have more {names}, since the router takes the first that matches.
func fixedFirst(a, b string) int {
	return cmp.Or(strings.Count(a, "{")-strings.Count(b, "{"), strings.Compare(a, b))
}

// probes returns the handler of a worker.
func probes(ready http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", server.Alive())
	mux.Handle("GET /readyz", ready)
	return mux
}

// noteRoute records the pattern of the matched route for logs and metrics, and announces deprecated operations.
func noteRoute(deprecated rest.Deprecations) mux.MiddlewareFunc {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if pattern, err := mux.CurrentRoute(r).GetPathTemplate(); err == nil {
				web.RecordRoute(r.Context(), pattern)
				deprecated.Announce(w.Header(), r.Method, pattern)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// withPathValues copies the path variables to the request with SetPathValue, so that endpoints do not depend on the
// router.
func withPathValues(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range mux.Vars(r) {
			r.SetPathValue(name, value)
		}
		next.ServeHTTP(w, r)
	})
}

func refuse(guard *gate.Gate, err error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guard.Refuse(w, r, err) })
}

// withSecurityHeaders sets the headers of every response: no content sniffing and no caching.
func withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// partsOfAPI returns the dependencies of the API. Redis is reported but not required: without it each process limits
// by itself. The keys of access tokens are required until they were read once. Later the cached ones are used
// (gate.Keys), but a new process that cannot reach the authorization server must not replace one that could. The
// authorization server in turn waits only for its stores.
func partsOfAPI(store *postgres.Store, keys *gate.Keys, limits *redis.Limits) server.Parts {
	parts := append(partsOfWorker(store), server.Part{Name: "keys", Check: keys.Ready, Required: true})
	if limits.AreShared() {
		parts = append(parts, server.Part{Name: "redis", Check: limits.Ping})
	}
	return parts
}

// partsOfWorker returns the dependencies of processing submissions.
func partsOfWorker(store *postgres.Store) server.Parts {
	return server.Parts{{Name: "postgres", Check: store.Ready, Required: true}}
}

// ready reports whether requests can be served.
func ready(guard *gate.Gate, log *slog.Logger, parts server.Parts) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.Leaving(r.Context()) {
			guard.Refuse(w, r, apierr.New(apierr.Unavailable, "This process is shutting down."))
			return
		}
		var refusal error
		states := parts.States(r.Context(), func(part server.Part, err error) bool {
			if part.Required {
				refusal = err
				return false
			}
			log.WarnContext(r.Context(), "dependency unavailable", "part", part.Name, "cause", err)
			return true
		})
		if refusal != nil {
			guard.Refuse(w, r, refusal)
			return
		}
		web.JSON(w, http.StatusOK, states)
	})
}
