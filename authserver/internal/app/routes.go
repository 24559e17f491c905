package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/gorilla/mux"
	"github.com/rs/cors"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/api"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/authorize"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/signin"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/net/publicnet"
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
	if a.LastUse == nil {
		recorder := a.Store.LastUseRecorder(a.log)
		a.LastUse, a.endLastUse = recorder, recorder.Close
	}
	account := &api.Deps{
		Issuer:      a.config.BaseURL,
		Resource:    a.resources[0],
		Resources:   a.resources,
		Keys:        a.Keyring.Public,
		LastUse:     a.LastUse,
		Bounds:      inflight.NewCredentials(0),
		Clients:     a.clients,
		Members:     a.members,
		Connections: a.connections,
		Rehearsals:  a.rehearsals,
		LogReads:    a.logReads,
		Tokens:      pat.Tokens{Store: a.Store.Grants},
		Usage:       usage.Reader{Store: a.Store.Grants},
		Store: api.Store{
			Credentials:  a.Store.Grants,
			Applications: a.Store.Clients,
			People:       a.Store.Accounts,
			Events:       a.Store.Logs,
			AnswerStore:  a.Store.Clients,
		},
		Cursors: lists,
		Now:     a.Now,
		Log:     a.log,
	}
	a.Router = rest.NewRouter(rest.Deprecated())
	a.accountRoutes(a.Router, account.Routes())
	a.documentRoutes(a.Router, metadata)
	a.pageRoutes(a.Router)
	nothing := flat(apierr.NotFound, "This path does not exist.")
	for _, prefix := range []string{"/v1/", "/.well-known/", "/mcp/"} {
		a.Router.PathPrefix(prefix).Handler(nothing)
	}
	a.Router.Handle("/register", flat(apierr.NotFound, "Open client registration is not supported. Register the "+
		"client in the settings of a workspace or by its API."))
	a.Router.NotFoundHandler = a.Sessions.Load(a.settings.NotFound())
	lastResort := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		apierr.Write(w, apierr.Flat, apierr.Of(nil))
	})
	a.Handler = a.watch.Observe(a.Router, a.proxies, a.log, lastResort, a.usage)
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
		LastUse:  a.LastUse,
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

// newPages makes the handlers of the pages, and what they share.
func (a *App) newPages() error {
	c := a.config
	pages, err := ui.New(a.log)
	if err != nil {
		return err
	}
	pages.SetBrand(a.brand)
	pages.SetContact(a.config.ContactOptions.Read())
	// Each sign-in page is preceded by the cookie of its browser: its forms, scripts and links can start logins.
	identify := func(w http.ResponseWriter, r *http.Request) { a.Sessions.BindToBrowser(w, r) }
	a.pages = pages.With(c.offer(), settings.Sections(), identify)
	a.attempts = session.NewAttempts(redis.NewLoginCounters(a.Redis), a.log, a.Now)
	if a.Passwords, err = session.NewPasswords(a.Store, a.attempts, a.Cost); err != nil {
		return err
	}
	a.Sessions, err = session.New(session.Deps{
		Store:          a.Store.SignIns,
		Rows:           a.Store.Sessions(),
		OffersPasskeys: c.relyingParty() != nil,
		Secure:         strings.HasPrefix(c.AppURL, "https://"),
		Keys:           a.keys,
		Now:            a.Now,
		Log:            a.log,
		Unavailable: func(w http.ResponseWriter, r *http.Request) {
			settings.Unavailable(a.pages, a.Sessions, w, r)
		},
	})
	if err != nil {
		return err
	}
	ended := a.propagate(grant.MembershipOver)
	a.accounts = &useraccount.Service{
		Store:               a.Store,
		PropagateRevocation: ended,
		Random:              rand.Reader,
	}
	a.logReads = audit.NewReads()
	a.connections = &consent.Connections{
		Store: a.Store,
		PropagateRevocation: func(ctx context.Context, reason grant.Reason, ended []useraccount.EndedGrant) {
			a.propagate(reason)(ctx, ended)
		},
		Now: a.Now,
	}
	a.members = &membership.Service{
		Store:               a.Store,
		PropagateRevocation: ended,
		AppURL:              c.AppURL,
		Mails:               c.sendsMail(),
		Random:              rand.Reader,
	}
	if a.offers, err = membership.NewAccessOffers(a.Store.Accounts, c.sendsMail(), a.keys); err != nil {
		return err
	}
	for _, build := range []func() error{a.newSettings, a.newConsents, a.newSignIn} {
		if err := build(); err != nil {
			return err
		}
	}
	return nil
}

// newRehearsals makes the rehearsals of the changes that the services make.
func (a *App) newRehearsals() *rehearsal.Rehearsals {
	return rehearsal.New(rehearsal.Rehearsals{
		Store:       a.Store,
		Members:     a.members,
		Connections: a.connections,
		Clients:     a.clients,
		DisableModule: func(ctx context.Context, workspaceID uuid.UUID, module string, event audit.Event) error {
			_, err := a.Store.SetModule(ctx, workspaceID, module, admin.ModuleChange{Enabled: new(bool)}, event)
			return err
		},
		Now: a.Now,
	})
}

// newSettings makes the pages of the settings. Their sessions are not yet read.
func (a *App) newSettings() error {
	trusted, err := publicnet.TrustedPool(a.config.WebhookCA)
	if err != nil {
		return fmt.Errorf("ALMONER_WEBHOOK_CA %w", err)
	}
	appURL, err := url.Parse(a.config.AppURL)
	if err != nil {
		return err
	}
	a.rehearsals = a.newRehearsals()
	a.settings, err = settings.New(settings.Deps{
		Store: settings.Store{
			Users:        a.Store.Accounts,
			Workspaces:   a.Store.Accounts,
			SignIns:      a.Store.SignIns,
			Grants:       a.Store.Grants,
			Applications: a.Store.Clients,
			Logs:         a.Store.Logs,
		},
		Clients:   a.clients,
		Members:   a.members,
		Accounts:  a.accounts,
		Grants:    a.Grants,
		Connected: a.connections,
		Rehearsed: a.rehearsals,
		Tokens:    pat.Tokens{Store: a.Store.Grants},
		Usage:     usage.Reader{Store: a.Store.Grants},
		Overviews: usage.Overviews{Store: a.Store.Grants, Now: a.Now},
		LogReads:  a.logReads,
		Offers:    a.offers,
		Sessions:  a.Sessions,
		Passwords: a.Passwords,
		Pages:     a.pages,
		Keys:      a.keys,
		Proxies:   a.proxies,
		Network:   publicnet.New(publicnet.Options{Trusted: trusted}),
		BaseURL:   a.config.BaseURL,
		AppURL:    a.config.AppURL,
		Host:      appURL.Hostname(),
		Issuer:    a.config.UpstreamIssuer,
		Resources: a.resources,
		Passkeys:  a.config.relyingParty() != nil,
		Now:       a.Now,
		Random:    rand.Reader,
		Log:       a.log,
	})
	return err
}

// newConsents makes the authorization endpoint.
func (a *App) newConsents() error {
	tickets, choices, err := consent.NewTickets(a.keys)
	a.consents = &authorize.Handler{
		Requests: a.Engine,
		Grants:   a.Grants,
		Store:    a.Store,
		Visitors: a.Sessions,
		Tickets:  tickets,
		Choices:  choices,
		Offers:   a.offers,
		Attempts: connectionlog.NewRecorder(a.Store.Logs, a.Now, a.log),
		Pages:    a.pages,
		Issuer:   a.config.BaseURL,
		Log:      a.log,
		Now:      a.Now,
	}
	return err
}

// newSignIn makes the pages of sign-in.
func (a *App) newSignIn() (err error) {
	c := a.config
	deps := signin.Deps{
		Store:               a.Store,
		Accounts:            a.accounts,
		Members:             a.members,
		Offers:              a.offers,
		RelyingParty:        c.relyingParty(),
		ProviderName:        c.UpstreamName,
		Passwords:           a.Passwords,
		Attempts:            a.attempts,
		Sessions:            a.Sessions,
		Pages:               a.pages,
		Proxies:             a.proxies,
		Place:               a.settings.Place,
		Application:         a.consents.ApplicationAt,
		PropagateRevocation: a.Grants.PropagateRevocation,
		Keys:                a.keys,
		Now:                 a.Now,
		Random:              rand.Reader,
		Log:                 a.log,
	}
	if c.UpstreamIssuer != "" {
		deps.Provider = oidc.New(oidc.Settings{
			Issuer:       c.UpstreamIssuer,
			ClientID:     c.UpstreamClientID,
			ClientSecret: c.UpstreamClientSecret,
			RedirectURL:  c.AppURL + "/login/upstream/callback",
		}, a.Now)
	}
	a.signIn, err = signin.New(deps)
	return err
}
