package app

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/invitation"
	upstreampages "github.com/almonerhq/almoner/authserver/internal/endpoint/oidclogin"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/passkeys"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/reauth"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/signin/webauthn"
	"github.com/almonerhq/almoner/shared/brand"
	"github.com/almonerhq/almoner/shared/web"
)

// signInMethods are the methods of sign-in and reauthentication besides the sign-in page's own form. A method that the
// deployment does not offer is nil and has no routes.
type signInMethods struct {
	again    *reauth.Handler
	passkeys *passkeys.Handler
	upstream *upstreampages.Handler
}

// offersPasskeys reports whether users can sign in with passkeys: the setting is true, and the pages have a host name
// (Web Authentication Level 3, 5.1.3: an IP address is no valid domain).
func (c *Config) offersPasskeys() bool {
	_, err := c.relyingParty()
	return c.Passkeys && err == nil
}

// relyingParty returns the relying party of passkeys.
func (c *Config) relyingParty() (*webauthn.RelyingParty, error) {
	return webauthn.New(c.AppURL, cmp.Or(c.BrandName, brand.DefaultName))
}

// offer returns the methods that the sign-in page shows.
func (c *Config) offer() ui.Offer {
	offer := ui.Offer{Passkeys: c.offersPasskeys()}
	if c.UpstreamIssuer != "" {
		offer.Upstream = c.UpstreamName
	}
	return offer
}

// passkeyAccounts returns the dependencies for creating accounts with a passkey, or nil if passkeys are off.
func (d browserDeps) passkeyAccounts() (*invitation.PasskeyDeps, error) {
	if !d.config.offersPasskeys() {
		return nil, nil
	}
	party, err := d.config.relyingParty()
	if err != nil {
		return nil, err
	}
	return &invitation.PasskeyDeps{
		Store:        d.store,
		RelyingParty: party,
		Ceremonies:   d.states,
	}, nil
}

// identifyBrowser is called with each sign-in page, before its forms, scripts and links can start logins.
func (d browserDeps) identifyBrowser(w http.ResponseWriter, r *http.Request) {
	d.states.BindToBrowser(w, r)
}

func newSignInMethods(
	d browserDeps,
	sessions *session.Sessions,
	passwords *session.Passwords,
	attempts *session.Attempts,
	devices *session.Devices,
	proxies web.Proxies,
) (signInMethods, error) {
	c := d.config
	ceremonies := d.states
	out := signInMethods{again: reauth.New(reauth.Deps{
		Methods:   d.store,
		Passkeys:  c.offersPasskeys(),
		Issuer:    c.UpstreamIssuer,
		Passwords: passwords,
		Attempts:  attempts,
		Sessions:  sessions,
		Devices:   devices,
		Auditor:   d.store,
		Codes:     d.store,
		Pages:     d.pages,
		Proxies:   proxies,
		Log:       d.log,
	})}
	if c.offersPasskeys() {
		party, err := c.relyingParty()
		if err != nil {
			return signInMethods{}, err
		}
		out.passkeys, err = passkeys.New(passkeys.Deps{
			Store:        d.store,
			Auditor:      d.store,
			RelyingParty: party,
			Issuer:       c.UpstreamIssuer,
			Ceremonies:   ceremonies,
			Sessions:     sessions,
			Attempts:     attempts,
			Pages:        d.pages,
			Proxies:      proxies,
			Application:  d.application,
			Switcher:     d.switcher,
			Keys:         d.keys,
			Now:          d.now,
			Log:          d.log,
		})
		if err != nil {
			return signInMethods{}, err
		}
	}
	if c.UpstreamIssuer != "" {
		provider := oidc.New(oidc.Settings{
			Issuer:       c.UpstreamIssuer,
			ClientID:     c.UpstreamClientID,
			ClientSecret: c.UpstreamClientSecret,
			RedirectURL:  c.AppURL + "/login/upstream/callback",
		}, d.now)
		var err error
		out.upstream, err = upstreampages.New(upstreampages.Deps{
			Identities: d.store,
			Provider:   provider,
			Name:       c.UpstreamName,
			Ceremonies: ceremonies,
			Sessions:   sessions,
			Attempts:   attempts,
			Pages:      d.pages,
			Proxies:    proxies,
			Switcher:   d.switcher,
			Passkeys:   c.offersPasskeys(),
			Keys:       d.keys,
			Now:        d.now,
			Log:        d.log,

			PropagateRevocation: d.endsGrant,
		})
		if err != nil {
			return signInMethods{}, err
		}
	}
	return out, nil
}

// routes mounts the routes of the offered methods. page reads the session of a request.
func (m signInMethods) routes(route func(path string, byMethod methods), page func(http.Handler) http.Handler) {
	get := func(path string, handler http.HandlerFunc) { route(path, methods{"GET": page(handler)}) }
	post := func(path string, handler http.Handler) { route(path, methods{"POST": page(handler)}) }
	route("/login/again", methods{"GET": page(http.HandlerFunc(m.again.Page)), "POST": page(m.again.Confirm())})
	if p := m.passkeys; p != nil {
		post("/login/passkey/options", p.SignInOptions())
		post("/login/passkey", p.SignIn())
		post("/login/again/passkey/options", p.AgainOptions())
		post("/login/again/passkey", p.Again())
		route("/settings/passkeys", methods{"GET": page(http.HandlerFunc(p.Page)), "POST": page(p.Add())})
		post("/settings/passkeys/options", p.AddOptions())
		post("/settings/passkeys/remove", p.Remove())
	}
	if u := m.upstream; u != nil {
		get("/login/upstream", u.Start)
		get("/login/again/upstream", u.Again)
		get("/login/upstream/callback", u.Callback)
		post("/login/upstream/confirm", u.Confirm())
		get("/settings/provider", u.Page)
		post("/settings/provider/unlink", u.Unlink())
	}
}

// checkSignInMethods reports mistakes in the settings of the sign-in methods.
func (c *Config) checkSignInMethods() []error {
	var mistakes []error
	if c.UpstreamIssuer == "" && c.UpstreamClientID == "" && c.UpstreamClientSecret == "" {
		return mistakes
	}
	if c.UpstreamIssuer == "" || c.UpstreamClientID == "" || c.UpstreamClientSecret == "" {
		mistakes = append(
			mistakes,
			errors.New(
				"ALMONER_UPSTREAM_ISSUER, ALMONER_UPSTREAM_CLIENT_ID and ALMONER_UPSTREAM_CLIENT_SECRET must be "+
					"set together",
			),
		)
	}
	if c.UpstreamIssuer != "" && !oidc.Allowed(c.UpstreamIssuer) {
		mistakes = append(mistakes, errors.New("ALMONER_UPSTREAM_ISSUER must be an https:// URL"))
	}
	return mistakes
}
