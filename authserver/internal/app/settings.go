package app

import (
	"crypto/rand"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/net/web"
)

// hostOf returns the host name of a URL that Config.Check has accepted.
func hostOf(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return parsed.Hostname()
}

// newSettings returns the pages of the settings. Their sessions are not yet read.
func newSettings(
	d browserDeps, sessions *session.Sessions, passwords *session.Passwords, proxies web.Proxies,
) (*settings.Settings, error) {
	network, err := d.config.webhookNetwork()
	if err != nil {
		return nil, err
	}
	return settings.New(settings.Deps{
		Store: settings.Store{
			Users:            d.store.Accounts,
			Workspaces:       d.store.Accounts,
			SignIns:          d.store.SignIns,
			Factors:          d.store.SignIns,
			PersonalTokens:   d.store.Grants,
			Applications:     d.store.Clients,
			WebhookEndpoints: d.store.Clients,
			WebhookChanges:   d.store.Clients,
			Connections:      d.store.Grants,
			Logs:             d.store.Logs,
		},
		Clients:   d.clients,
		Members:   d.members,
		Accounts:  d.accounts,
		Grants:    d.grants,
		Offers:    d.offers,
		Sessions:  sessions,
		Passwords: passwords,
		Pages:     d.pages,
		Keys:      d.keys,
		Proxies:   proxies,
		Network:   network,
		BaseURL:   d.config.BaseURL,
		AppURL:    d.config.AppURL,
		Host:      hostOf(d.config.AppURL),
		Issuer:    d.config.UpstreamIssuer,
		Resources: d.resources,
		Mails:     d.config.sendsMail(),
		Passkeys:  d.config.offersPasskeys(),
		Now:       d.now,
		Random:    rand.Reader,
		Log:       d.log,
	})
}
