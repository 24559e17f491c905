package app_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
)

func TestCheck_ReportsMistakesInSignInSettings(t *testing.T) {
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
		"ALMONER_PASSKEYS":               func(c *app.Config) { c.AppURL = "https://192.0.2.1" },
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
