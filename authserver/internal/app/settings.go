package app

import (
	"crypto/rand"
	"maps"
	"net/url"
	"slices"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings/apps"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings/assistants"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings/auditlog"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings/connectors"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings/developers"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings/members"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings/security"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings/user"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/web"
)

// SettingsSections returns the sections of the settings, in the order of the navigation.
func SettingsSections() []ui.Section {
	return []ui.Section{
		user.Section,
		members.Section,
		developers.Section,
		connectors.Section,
		assistants.Section,
		apps.Section,
		security.Section,
		auditlog.Section,
	}
}

// settingsSubsections returns the pages of the settings that have no link in the navigation.
func settingsSubsections() []ui.Section {
	return slices.Concat(members.Subsections(), developers.Subsections(), connectors.Subsections())
}

// hostOf returns the host name of a URL that Config.Check has accepted.
func hostOf(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return parsed.Hostname()
}

// newSettings returns the routes of the settings. Their sessions are not yet read.
func newSettings(
	d browserDeps,
	common *settings.Settings,
	passwords *session.Passwords,
	attempts *session.Attempts,
	proxies web.Proxies,
) (settings.Routes, error) {
	own, err := security.New(security.Deps{
		Settings:  common,
		Store:     d.store,
		Mails:     d.config.sendsMail(),
		Passkeys:  d.config.offersPasskeys(),
		Issuer:    d.config.UpstreamIssuer,
		Passwords: passwords,
		Cost:      d.cost,
		Attempts:  attempts,
		Auditor:   d.store,
		Proxies:   proxies,
		Host:      hostOf(d.config.AppURL),
		Random:    rand.Reader,
	})
	if err != nil {
		return nil, err
	}
	network, err := d.config.webhookNetwork()
	if err != nil {
		return nil, err
	}
	routes := settings.Routes{}
	for _, page := range []interface{ Routes() settings.Routes }{
		common,
		user.New(user.Deps{
			Settings: common,
			Users:    d.store,
			Accounts: d.accounts,
			Mails:    d.config.sendsMail(),
			Proxies:  proxies,
		}),
		developers.New(developers.Deps{
			Settings:  common,
			Store:     d.store,
			Grants:    d.grants,
			Passwords: passwords,
			Attempts:  attempts,
			Proxies:   proxies,
			BaseURL:   d.config.BaseURL,
			AppURL:    d.config.AppURL,
			Resources: d.resources,
			Network:   network,
		}),
		members.New(common, d.members, d.store),
		connectors.New(common, d.store, d.grants),
		assistants.New(common, d.store, d.config.BaseURL),
		apps.New(common, d.store, d.grants, d.config.BaseURL),
		own,
		auditlog.New(common, d.store),
	} {
		maps.Copy(routes, page.Routes())
	}
	return routes, nil
}
