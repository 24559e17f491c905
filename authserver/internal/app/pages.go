package app

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/authorize"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/signin"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/net/publicnet"
)

// newPages makes the handlers of the pages, and what they share.
func (a *App) newPages() error {
	c := a.config
	pages, err := ui.New(a.log)
	if err != nil {
		return err
	}
	pages.SetBrand(a.brand)
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
		Switcher:            a.settings.Switcher,
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
