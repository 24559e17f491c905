package app

import (
	"context"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/authorize"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/signin"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// A browser holds the handlers of the pages: sign-in, consent, settings.
type browser struct {
	pages     *ui.Pages
	sessions  *session.Sessions
	passwords *session.Passwords
	authorize *authorize.Handler
	signIn    signin.Routes
	settings  settings.Routes
	notFound  http.Handler
}

type browserDeps struct {
	core
	counters session.RateCounter
	pages    *ui.Pages
	members  *membership.Service
	accounts *useraccount.Service

	offers *membership.AccessOffers // set by newBrowser

	// returns the name of the application that sent the user to a local path, or ""
	application func(ctx context.Context, path string) string

	// returns the choice of the workspace in the header of a page, or nil
	switcher func(r *http.Request, user session.CurrentUser, section string) (*ui.Switcher, error)
}

func newBrowser(d browserDeps) (browser, error) {
	var sessions *session.Sessions
	// Each sign-in page is preceded by the cookie of its browser: its forms, scripts and links can start logins.
	identify := func(w http.ResponseWriter, r *http.Request) { sessions.BindToBrowser(w, r) }
	d.pages = d.pages.Offering(d.config.offer(), identify).Navigating(settings.Sections(), settings.Subsections())
	attempts := session.NewAttempts(d.counters, d.log, d.now)
	passwords, err := session.NewPasswords(d.store, attempts, d.cost)
	if err != nil {
		return browser{}, err
	}
	tickets, err := consent.NewTickets(d.keys)
	if err != nil {
		return browser{}, err
	}
	sessions, err = session.New(session.Deps{
		Store:          d.store.SignIns,
		Rows:           d.store.Sessions(),
		OffersPasskeys: d.config.offersPasskeys(),
		Secure:         strings.HasPrefix(d.config.AppURL, "https://"),
		Keys:           d.keys,
		Now:            d.now,
		Log:            d.log,
		Unavailable: func(w http.ResponseWriter, r *http.Request) {
			settings.Unavailable(d.pages, sessions, w, r)
		},
	})
	if err != nil {
		return browser{}, err
	}
	if d.offers, err = membership.NewAccessOffers(d.store.Accounts, d.config.sendsMail(), d.keys); err != nil {
		return browser{}, err
	}
	account, err := newSettings(d, sessions, passwords, d.proxies)
	if err != nil {
		return browser{}, err
	}
	d.switcher = account.Switcher
	consents := &authorize.Handler{
		Requests: d.engine,
		Grants:   d.grants,
		Members:  d.store,
		Visitors: sessions,
		Tickets:  tickets,
		Offers:   d.offers,
		Attempts: connectionlog.NewRecorder(d.store.Logs, d.now, d.log),
		Pages:    d.pages,
		Issuer:   d.config.BaseURL,
		Log:      d.log,
		Now:      d.now,
	}
	d.application = consents.ApplicationAt
	signIn, err := newSignIn(d, sessions, passwords, attempts, d.proxies)
	if err != nil {
		return browser{}, err
	}
	return browser{
		pages:     d.pages,
		sessions:  sessions,
		passwords: passwords,
		authorize: consents,
		signIn:    signIn.Routes(),
		settings:  account.Routes(),
		notFound:  account.NotFound(),
	}, nil
}
