package app

import (
	"cmp"
	"crypto/rand"
	"errors"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/signin"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/brand"
)

// offersPasskeys reports whether users can sign in with passkeys: the setting is true, and the pages have a host name
// (Web Authentication Level 3, 5.1.3: an IP address is no valid domain).
func (c *Config) offersPasskeys() bool {
	_, err := c.relyingParty()
	return c.Passkeys && err == nil
}

// relyingParty returns the relying party of passkeys.
func (c *Config) relyingParty() (*passkey.RelyingParty, error) {
	return passkey.NewRelyingParty(c.AppURL, cmp.Or(c.BrandName, brand.DefaultName))
}

// offer returns the methods that the sign-in page shows.
func (c *Config) offer() ui.Offer {
	offer := ui.Offer{Passkeys: c.offersPasskeys()}
	if c.UpstreamIssuer != "" {
		offer.Upstream = c.UpstreamName
	}
	return offer
}

// newSignIn returns the pages of sign-in.
func newSignIn(
	d browserDeps, sessions *session.Sessions, passwords *session.Passwords, attempts *session.Attempts,
	proxies web.Proxies,
) (*signin.Handler, error) {
	c := d.config
	deps := signin.Deps{
		Store: signin.Store{
			Users:       d.store.Accounts,
			SignIns:     d.store.SignIns,
			Resets:      d.store.SignIns,
			Identities:  d.store.SignIns,
			Credentials: d.store.Grants,
			Logs:        d.store.Logs,
		},
		Accounts:            d.accounts,
		Members:             d.members,
		Offers:              d.offers,
		Mails:               c.sendsMail(),
		ProviderName:        c.UpstreamName,
		Passwords:           passwords,
		Attempts:            attempts,
		Sessions:            sessions,
		Pages:               d.pages,
		Proxies:             proxies,
		Switcher:            d.switcher,
		Application:         d.application,
		PropagateRevocation: d.grants.PropagateRevocation,
		Keys:                d.keys,
		Now:                 d.now,
		Random:              rand.Reader,
		Log:                 d.log,
	}
	if c.offersPasskeys() {
		party, err := c.relyingParty()
		if err != nil {
			return nil, err
		}
		deps.RelyingParty = party
	}
	if c.UpstreamIssuer != "" {
		deps.Provider = oidc.New(oidc.Settings{
			Issuer:       c.UpstreamIssuer,
			ClientID:     c.UpstreamClientID,
			ClientSecret: c.UpstreamClientSecret,
			RedirectURL:  c.AppURL + "/login/upstream/callback",
		}, d.now)
	}
	return signin.New(deps)
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
