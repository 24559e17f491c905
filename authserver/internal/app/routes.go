package app

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/gorilla/mux"
	goredis "github.com/redis/go-redis/v9"
	"github.com/rs/cors"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server"
)

// methods maps each method of a path to its handler.
type methods = map[string]http.Handler

// metadataPaths are the paths where clients look for the metadata (RFC 8414, section 3; OpenID Connect Discovery, and
// both with the resource's path inserted or appended).
var metadataPaths = []string{
	"/.well-known/oauth-authorization-server",
	"/.well-known/oauth-authorization-server/v1",
	"/.well-known/oauth-authorization-server/mcp",
	"/.well-known/openid-configuration",
	"/.well-known/openid-configuration/v1",
	"/.well-known/openid-configuration/mcp",
	"/mcp/.well-known/oauth-authorization-server",
	"/mcp/.well-known/openid-configuration",
}

func flat(kind apierr.Kind, message string) http.Handler {
	return http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { apierr.Write(w, apierr.Flat, apierr.New(kind, message)) })
}

// handlers are the handlers of the routes.
type handlers struct {
	tokens                         token.Endpoints
	authorizeAlias, jwks, metadata http.Handler
	alive, ready                   http.Handler
	account                        map[string]methods // of workspaces
	withKeys                       func(http.Handler) http.Handler
	browser                        browser
	deprecated                     rest.Deprecations
}

func (h handlers) router() http.Handler {
	router := mux.NewRouter().UseEncodedPath().SkipClean(true) // no redirects: a path is matched byte by byte
	router.Use(noteRoute(h.deprecated))
	h.accountRoutes(router)
	h.documentRoutes(router)
	h.pageRoutes(router)
	nothing := flat(apierr.NotFound, "This path does not exist.")
	for _, prefix := range []string{"/v1/", "/.well-known/", "/mcp/"} {
		router.PathPrefix(prefix).Handler(nothing)
	}
	router.Handle(
		"/register",
		flat(apierr.NotFound,
			"Open client registration is not supported. Register the client in the settings of a workspace or by "+
				"its API."),
	)
	router.NotFoundHandler = h.browser.sessions.Load(h.browser.notFound)
	return router
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

// accountRoutes adds the routes of the account API. Unknown paths and wrong methods are refused before credentials are
// checked.
func (h handlers) accountRoutes(router *mux.Router) {
	route := func(path string, byMethod methods) { router.Handle(path, web.Methods(byMethod, wrongMethod())) }
	// Clients that are web pages, such as MCP inspectors, exchange their codes themselves. These routes use no cookies.
	routeWithKeys := func(path string, byMethod methods) {
		for method, handler := range byMethod {
			byMethod[method] = h.withKeys(withoutSecrets(method, handler))
		}
		route(path, byMethod)
	}
	callableByPages := cors.New(cors.Options{
		AllowedOrigins: []string{"*"},
		AllowedMethods: []string{"POST"},
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{
			"Retry-After",
			"RateLimit",
			"RateLimit-Policy",
			"WWW-Authenticate",
			"Idempotency-Replayed",
			web.RequestIDHeader,
			apierr.CodeHeader,
		},
	})
	for path, handler := range map[string]http.Handler{
		"/v1/account/oauth/token":  h.tokens.Exchange(),
		"/token":                   h.tokens.Exchange(),
		"/v1/account/oauth/revoke": h.tokens.Revoke(),
	} {
		router.Handle(path, callableByPages.Handler(web.Methods(methods{"POST": h.withKeys(handler)}, wrongMethod())))
	}
	routeWithKeys("/v1/account/oauth/introspect", methods{"POST": h.tokens.Introspect()})
	route("/authorize", methods{"GET": h.authorizeAlias})
	for path, byMethod := range h.account {
		routeWithKeys(path, byMethod)
	}
	route("/healthz", methods{"GET": h.alive})
	route("/readyz", methods{"GET": h.ready})
}

// withoutSecrets compresses the responses of methods whose responses have no secret: those of POST may have a client
// secret, the link of an invitation, or what a token may do.
func withoutSecrets(method string, handler http.Handler) http.Handler {
	if method == http.MethodPost {
		return handler
	}
	return web.Compress(handler)
}

func (h handlers) documentRoutes(router *mux.Router) {
	readableByAll := cors.New(cors.Options{
		AllowedOrigins: []string{"*"},
		AllowedMethods: []string{"GET", "HEAD"},
		AllowedHeaders: []string{"*"},
	})
	route := func(path string, handler http.Handler) {
		router.Handle(path, readableByAll.Handler(web.Compress(web.Methods(methods{"GET": handler}, wrongMethod()))))
	}
	route("/v1/account/oauth/jwks", h.withKeys(h.jwks))
	route("/.well-known/jwks.json", h.withKeys(h.jwks)) // where libraries look that read no metadata
	for _, path := range metadataPaths {
		route(path, h.metadata)
	}
}

func (h handlers) pageRoutes(router *mux.Router) {
	b := h.browser
	refuse := http.HandlerFunc(b.pages.NotAllowed)
	route := func(path string, byMethod methods) {
		if _, opens := byMethod["GET"]; opens {
			router.Handle(path, web.Methods(byMethod, refuse))
		} else {
			router.Handle(path, web.Methods(byMethod, b.pages.NoPage(pageOf(path))))
		}
	}
	page := func(handler http.Handler) http.Handler { return b.sessions.Load(handler) }
	router.PathPrefix("/static/").Handler(web.Methods(methods{"GET": web.CompressPublic(b.pages.Static())}, refuse))
	for path, byMethod := range b.signIn {
		route(path, byMethod)
	}
	route("/oauth/authorize",
		methods{"GET": page(http.HandlerFunc(b.authorize.Page)), "POST": page(b.authorize.Answer())})
	route("/oauth/authorize/workspace", methods{"POST": page(b.authorize.Choose())})
	for path, byMethod := range b.settings {
		withSession := methods{}
		for method, handler := range byMethod {
			withSession[method] = page(handler)
		}
		route(path, withSession)
	}
}

// pageOf returns the page that has the form which is sent to path.
func pageOf(path string) string {
	if below, ok := strings.CutPrefix(path, "/settings/"); ok {
		section, _, _ := strings.Cut(below, "/")
		return "/settings/" + section
	}
	return "/settings/user" // which sends users who are not signed in to the sign-in page
}

func wrongMethod() http.Handler {
	return flat(apierr.MethodNotAllowed, "This path does not support this method.")
}

// partsOf returns the parts. Redis is reported but not required: without it, codes and refresh tokens get a 503, while
// sign-in, settings and introspection work. The same holds for the database of refreshes, whose check uses the pool of
// refreshes: a flood of refreshes delays the response by up to a second. probe and store.Ready have connections of
// their own, so that a flood of other requests neither delays nor fails the check.
func partsOf(store *postgres.Store, probe goredis.UniversalClient, ring *keyring.Keyring) server.Parts {
	parts := server.Parts{
		{Name: "postgres", Check: store.Ready, Required: true},
		{Name: "redis", Check: func(ctx context.Context) error { return probe.Ping(ctx).Err() }},
		{Name: "keys", Check: ring.Ready, Required: true},
	}
	if store.HasRefreshPool() {
		parts = append(parts, server.Part{Name: "refreshes", Check: store.PingRefreshes})
	}
	return parts
}

// ready reports whether the process can do its work.
func ready(log *slog.Logger, parts server.Parts) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.Leaving(r.Context()) {
			web.JSON(w, http.StatusServiceUnavailable, map[string]string{"status": "leaving"})
			return
		}
		status := http.StatusOK
		states := parts.States(r.Context(), func(part server.Part, err error) bool {
			log.WarnContext(r.Context(), "dependency unavailable", "part", part.Name, "error", err)
			if part.Required {
				status = http.StatusServiceUnavailable
			}
			return true
		})
		web.JSON(w, status, states)
	})
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
