package app

import (
	"net/http"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/apidoc"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/mcp"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/programmes"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/wellknown"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// routes returns the router of all paths. A path must match exactly as sent: other spellings are neither cleaned nor
// redirected. Unknown paths and wrong methods are refused before the credential is checked (contract, section 6).
func routes(
	baseURL string,
	guard *gate.Gate,
	p *programmes.Endpoint,
	e *engageModule,
	a *mcp.Endpoint,
	docs *apidoc.Endpoint,
	ready http.Handler,
) http.Handler {
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)
	router.Use(noteRoute)
	router.NotFoundHandler = refuse(guard, apierr.New(apierr.NotFound, "This path does not exist."))
	wrongMethod := refuse(
		guard,
		apierr.New(apierr.MethodNotAllowed, "This path does not support this method. The Allow header lists the "+
			"supported methods."),
	)
	handle := func(path string, methods map[string]http.Handler) {
		router.Handle(path, withPathValues(web.Methods(methods, wrongMethod)))
	}

	handle(programmes.Path, map[string]http.Handler{"GET": p.List(), "POST": p.Create()})
	handle(programmes.Path+"/imports", map[string]http.Handler{"POST": p.Import()})
	handle(programmes.Path+"/imports/{id}", map[string]http.Handler{"GET": p.ReadImport()})
	handle(programmes.Path+"/{id}", map[string]http.Handler{"GET": p.Read(), "PATCH": p.Change()})
	handle(programmes.Path+"/{id}/transitions", map[string]http.Handler{"POST": p.Move()})

	e.route(handle)
	handle(
		mcp.Path,
		map[string]http.Handler{
			"POST":    a.Post(),
			"GET":     a.NoSession(),
			"DELETE":  a.NoSession(),
			"OPTIONS": a.Preflight(),
		},
	)

	for path, resource := range map[string]wellknown.Resource{
		wellknown.Path + "/v1":    wellknown.API,
		wellknown.Path + "/mcp":   wellknown.MCP,
		wellknown.Path:            wellknown.MCP,
		mcp.Path + wellknown.Path: wellknown.MCP,
	} {
		handle(path, map[string]http.Handler{
			"GET": wellknown.Document(baseURL, resource), "OPTIONS": wellknown.Preflight(),
		})
	}

	handle(apidoc.JSONPath, map[string]http.Handler{"GET": docs.JSON()})
	handle(apidoc.PagePath, map[string]http.Handler{"GET": docs.Page()})

	handle("/healthz", map[string]http.Handler{"GET": alive()})
	handle("/readyz", map[string]http.Handler{"GET": ready})
	return router
}

// probes returns the handler of a worker.
func probes(ready http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", alive())
	mux.Handle("GET /readyz", ready)
	return mux
}

// noteRoute records the pattern of the matched route for logs and metrics.
func noteRoute(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pattern, err := mux.CurrentRoute(r).GetPathTemplate(); err == nil {
			web.NoteRoute(r.Context(), pattern)
		}
		next.ServeHTTP(w, r)
	})
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

// lastResort responds in place of a handler that panicked.
func lastResort(guard *gate.Gate) http.Handler { return refuse(guard, apierr.Of(nil)) }

// withSecurityHeaders sets the headers of every response: no content sniffing and no caching.
func withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
