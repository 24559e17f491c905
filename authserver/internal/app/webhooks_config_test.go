package app_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A deployment with public URLs refuses the setting that allows webhook endpoints on this machine.
func TestConfig_WebhookCAIsForDevelopment(t *testing.T) {
	t.Parallel()
	good := app.Config{
		BaseURL:   "http://localhost:8080",
		AppURL:    "http://127.0.0.1:8081",
		Keys:      "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		WebhookCA: testkit.NewMetadataHost(t).PEM(),
	}
	if mistakes := good.Check(); len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	for name, spoil := range map[string]func(*app.Config){
		"ALMONER_WEBHOOK_CA contains":            func(c *app.Config) { c.WebhookCA = "no certificate" },
		"ALMONER_WEBHOOK_CA is for development":  func(c *app.Config) { c.BaseURL = "https://api.example.org" },
		"ALMONER_WEBHOOK_CA is for development:": func(c *app.Config) { c.AppURL = "https://localhost.example.org" },
	} {
		config := good
		spoil(&config)
		if mistakes := config.Check(); len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), name) {
			t.Errorf("%s: %v", name, mistakes)
		}
	}
}
