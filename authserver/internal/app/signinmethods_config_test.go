package app_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
)

func TestCheck_ReportsMistakesInSignInSettings(t *testing.T) {
	t.Parallel()
	good := app.Config{
		BaseURL:              "https://api.example.org",
		AppURL:               "https://app.example.org",
		Keys:                 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		Passkeys:             true,
		UpstreamIssuer:       "https://id.example.org",
		UpstreamClientID:     "almoner",
		UpstreamClientSecret: "secret",
	}
	if mistakes := good.Check(); len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	for name, spoil := range map[string]func(*app.Config){
		"ALMONER_UPSTREAM_CLIENT_SECRET": func(c *app.Config) { c.UpstreamClientSecret = "" },
		"ALMONER_UPSTREAM_CLIENT_ID":     func(c *app.Config) { c.UpstreamClientID = "" },
		"ALMONER_UPSTREAM_ISSUER":        func(c *app.Config) { c.UpstreamIssuer = "http://id.example.org" },
		"ALMONER_UPSTREAM_ISSUER, ":      func(c *app.Config) { c.UpstreamIssuer = "" },
	} {
		config := good
		spoil(&config)
		mistakes := config.Check()
		if len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), name) ||
			strings.Contains(mistakes[0].Error(), "secret") {
			t.Errorf("%s: %v", name, mistakes)
		}
	}
}

func TestPasskeys_AreOnByDefaultWhereBrowsersSupportThem(t *testing.T) {
	t.Parallel()
	config, _, err := app.LoadConfig(environ("ALMONER_NOTICE", "0s"))
	if err != nil || !config.Passkeys {
		t.Errorf("passkeys are off: %v", err)
	}
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": false} {
		s := serve(t, func(c *app.Config) {
			c.Passkeys = true
			c.AppURL = strings.Replace(c.AppURL, "localhost", host, 1)
		})
		page := s.browser().Get("/login")
		if got := strings.Contains(page.Body, "Sign in with a passkey"); got != want || page.Status != http.StatusOK {
			t.Errorf("%s offers passkeys: %t, want %t (%d)", host, got, want, page.Status)
		}
		if got := strings.Contains(page.Body, `autocomplete="username webauthn"`); got != want {
			t.Errorf("%s: autofill lists passkeys: %t, want %t", host, got, want)
		}
	}
}
