package app

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/gorilla/mux"
	"github.com/rs/cors"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/api"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server"
	"github.com/almonerhq/almoner/shared/server/inflight"
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

// newHandler makes the handler of every route.
func (a *App) newHandler() error {
	metadata, err := token.Metadata(a.config.BaseURL, a.config.AppURL, len(a.Documents.Domains) > 0)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	lists, err := rest.NewCursors(a.keys, "account cursor")
	if err != nil {
		return err
	}
	if a.Uses == nil {
		recorder := a.Store.NewUsageRecorder(a.log)
		a.Uses, a.endUses = recorder, recorder.Close
	}
	account := &api.Deps{
		Issuer:    a.config.BaseURL,
		Resource:  a.resources[0],
		Resources: a.resources,
		Keys:      a.Keyring.Public,
		Uses:      a.Uses,
		Bounds:    inflight.NewCredentials(0),
		Clients:   a.clients,
		Members:   a.members,
		Store: api.Store{
			Credentials:  a.Store.Grants,
			Applications: a.Store.Clients,
			People:       a.Store.Accounts,
			AnswerStore:  a.Store.Clients,
		},
		Variables: mux.Vars,
		Cursors:   lists,
		Now:       a.Now,
		Log:       a.log,
	}
	router := rest.NewRouter(rest.Deprecated())
	a.accountRoutes(router, account.Routes())
	a.documentRoutes(router, metadata)
	a.pageRoutes(router)
	nothing := flat(apierr.NotFound, "This path does not exist.")
	for _, prefix := range []string{"/v1/", "/.well-known/", "/mcp/"} {
		router.PathPrefix(prefix).Handler(nothing)
	}
	router.Handle("/register", flat(apierr.NotFound, "Open client registration is not supported. Register the client "+
		"in the settings of a workspace or by its API."))
	router.NotFoundHandler = a.Sessions.Load(a.settings.NotFound())
	a.Handler = a.watch.Observe(router, a.proxies, a.log, lastResort())
	return nil
}

// accountRoutes adds the routes of the account API. Unknown paths and wrong methods are refused before credentials are
// checked.
func (a *App) accountRoutes(router *mux.Router, account map[string]methods) {
	tokens := token.Endpoints{
		Issuer:   a.config.BaseURL,
		Resource: a.resources[0],
		Engine:   a.Engine,
		Grants:   a.Grants,
		Store:    a.Store,
		Keys:     a.Keyring.Public,
		Uses:     a.Uses,
		Failures: a.Failures,
		Proxies:  a.proxies,
		Now:      a.Now,
		Log:      a.log,
	}
	route := func(path string, byMethod methods) { router.Handle(path, web.Methods(byMethod, wrongMethod())) }
	// Clients that are web pages, such as MCP inspectors, exchange their codes themselves. These routes use no cookies.
	routeWithKeys := func(path string, byMethod methods) {
		for method, handler := range byMethod {
			byMethod[method] = a.withKeys(withoutSecrets(method, handler))
		}
		route(path, byMethod)
	}
	callableByPages := cors.New(cors.Options{
		AllowedOrigins: []string{"*"},
		AllowedMethods: []string{"POST"},
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{
			"Retry-After", "RateLimit", "RateLimit-Policy", "WWW-Authenticate", "Idempotency-Replayed",
			web.RequestIDHeader, apierr.CodeHeader,
		},
	})
	for path, handler := range map[string]http.Handler{
		"/v1/account/oauth/token":  tokens.Exchange(),
		"/token":                   tokens.Exchange(),
		"/v1/account/oauth/revoke": tokens.Revoke(),
	} {
		router.Handle(path, callableByPages.Handler(web.Methods(methods{"POST": a.withKeys(handler)}, wrongMethod())))
	}
	routeWithKeys("/v1/account/oauth/introspect", methods{"POST": tokens.Introspect()})
	route("/authorize", methods{"GET": redirectTo(a.config.AppURL + "/oauth/authorize")})
	for path, byMethod := range account {
		routeWithKeys(path, byMethod)
	}
	route("/healthz", methods{"GET": server.Alive()})
	route("/readyz", methods{"GET": http.HandlerFunc(a.ready)})
}

// withoutSecrets compresses the responses of methods whose responses have no secret: those of POST may have a client
// secret, the link of an invitation, or what a token may do.
func withoutSecrets(method string, handler http.Handler) http.Handler {
	if method == http.MethodPost {
		return handler
	}
	return web.Compress(handler)
}

func (a *App) documentRoutes(router *mux.Router, metadata []byte) {
	readableByAll := cors.New(cors.Options{
		AllowedOrigins: []string{"*"},
		AllowedMethods: []string{"GET", "HEAD"},
		AllowedHeaders: []string{"*"},
	})
	route := func(path string, handler http.Handler) {
		router.Handle(path, readableByAll.Handler(web.Compress(web.Methods(methods{"GET": handler}, wrongMethod()))))
	}
	jwks := a.withKeys(token.Document(a.Keyring.JWKS))
	route("/v1/account/oauth/jwks", jwks)
	route("/.well-known/jwks.json", jwks) // where libraries that read no metadata look
	for _, path := range metadataPaths {
		route(path, token.Document(func() ([]byte, error) { return metadata, nil }))
	}
}

func (a *App) pageRoutes(router *mux.Router) {
	refuse := http.HandlerFunc(a.pages.NotAllowed)
	route := func(path string, byMethod methods) {
		if _, opens := byMethod["GET"]; opens {
			router.Handle(path, web.Methods(byMethod, refuse))
		} else {
			router.Handle(path, web.Methods(byMethod, a.pages.NoPage(pageOf(path))))
		}
	}
	page := a.Sessions.Load
	router.PathPrefix("/static/").Handler(web.Methods(methods{"GET": web.CompressPublic(a.pages.Static())}, refuse))
	for path, byMethod := range a.signIn.Routes() {
		route(path, byMethod)
	}
	route("/oauth/authorize",
		methods{"GET": page(http.HandlerFunc(a.consents.Page)), "POST": page(a.consents.Answer())})
	route("/oauth/authorize/workspace", methods{"POST": page(a.consents.Choose())})
	for path, byMethod := range a.settings.Routes() {
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

// parts returns what the process needs. Redis is reported but not required: without it, codes and refresh tokens get a
// 503, while sign-in, settings and introspection work. The same holds for the database of refreshes, whose check uses
// the pool of refreshes: a flood of refreshes delays the response by up to a second. a.probe and a.Store.Ready have
// connections of their own, so that a flood of other requests neither delays nor fails the check.
func (a *App) parts() server.Parts {
	parts := server.Parts{
		{Name: "postgres", Check: a.Store.Ready, Required: true},
		{Name: "redis", Check: func(ctx context.Context) error { return a.probe.Ping(ctx).Err() }},
		{Name: "keys", Check: a.Keyring.Ready, Required: true},
	}
	if a.Store.HasRefreshPool() {
		parts = append(parts, server.Part{Name: "refreshes", Check: a.Store.PingRefreshes})
	}
	return parts
}

// ready reports whether the process can do its work.
func (a *App) ready(w http.ResponseWriter, r *http.Request) {
	if web.Leaving(r.Context()) {
		web.JSON(w, http.StatusServiceUnavailable, map[string]string{"status": "leaving"})
		return
	}
	status := http.StatusOK
	states := a.parts().States(r.Context(), func(part server.Part, err error) bool {
		a.log.WarnContext(r.Context(), "dependency unavailable", "part", part.Name, "error", err)
		if part.Required {
			status = http.StatusServiceUnavailable
		}
		return true
	})
	web.JSON(w, status, states)
}

// withKeys writes a 503 until the signing keys are loaded. Without them, a token could not be signed, and a valid token
// would look forged.
func (a *App) withKeys(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.Keyring.Ready(r.Context()); err != nil {
			a.log.ErrorContext(r.Context(), "signing keys not loaded", "error", err)
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
