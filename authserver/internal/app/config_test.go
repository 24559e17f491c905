package app_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// environ returns valid settings with one of them replaced.
func environ(name, value string) []string {
	settings := map[string]string{
		"ALMONER_BASE_URL":     "https://api.example.org",
		"ALMONER_APP_URL":      "https://app.example.org",
		"ALMONER_DATABASE_URL": "postgres://x:hush@localhost/x",
		"ALMONER_REDIS_URL":    "redis://:hush@localhost:6379",
		"ALMONER_KEYS":         "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	}
	settings[name] = value
	var out []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		out = append(out, name+"="+settings[name])
	}
	return out
}

func TestLoadConfig_ChecksEverySetting(t *testing.T) {
	t.Parallel()
	if c, _, err := app.LoadConfig(environ("ALMONER_NOTICE", "0s")); err != nil || c.Listen != "127.0.0.1:8081" {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, wrong := range [][2]string{
		{"ALMONER_BASE_URL", ""},
		{"ALMONER_BASE_URL", "hush.example.org"},
		{"ALMONER_BASE_URL", "https://api.example.org/"},
		{"ALMONER_APP_URL", "https://u:hush@app.example.org"},
		{"ALMONER_DATABASE_URL", ""},
		{"ALMONER_DATABASE_URL", "postgres://hush:hush"},
		{"ALMONER_REFRESH_DATABASE_URL", "postgres://hush:hush"},
		{"ALMONER_REFRESH_DATABASE_URL", "postgres://hush:hush@localhost/other"},
		{"ALMONER_REDIS_URL", ""},
		{"ALMONER_REDIS_URL", "http://:hush@localhost"},
		{"ALMONER_KEYS", ""},
		{"ALMONER_KEYS", "hush"},
		{"ALMONER_KEY_MAX_AGE", "59m"},
		{"ALMONER_KEY_MAX_AGE", "hush"},
		{"ALMONER_RETENTION_AUDIT_DAYS", "89"},
		{"ALMONER_RETENTION_GRANTS_DAYS", "1"},
		{"ALMONER_RETENTION_KEYS_DAYS", "90"},
		{"ALMONER_RETENTION_TOKENS_DAYS", "-1"},
		{"ALMONER_RETENTION_CLIENTS_DAYS", "36501"},
		{"ALMONER_RETENTION_INVITATIONS_DAYS", "hush"},
		{"ALMONER_NOTICE", "11s"},
		{"ALMONER_NOTICE", "-1s"},
		{"ALMONER_STORE_WAIT", "200ms"},
		{"ALMONER_STORE_WAIT", "21s"},
		{"ALMONER_TRUSTED_PROXIES", "hush"},
		{"ALMONER_PASSKEYS", "hush"},
		{"ALMONER_LOG_LEVEL", "hush"},
		{"ALMONER_CLIENT_DOMAINS", "hush"},
		{"ALMONER_UPSTREAM_ISSUER", "http://hush"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "hush"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "hush"},
		{"OTEL_TRACES_SAMPLER_ARG", "2"},
		{"OTEL_TRACES_SAMPLER_ARG", "hush"},
	} {
		_, reading, err := app.LoadConfig(environ(wrong[0], wrong[1]))
		if err == nil || !strings.HasPrefix(reading.Mistakes[0], wrong[0]) || strings.Contains(err.Error(), "hush") ||
			strings.Contains(err.Error(), "\n  ALMONER_BASE") {
			t.Errorf("%s=%s: %v", wrong[0], wrong[1], err)
		}
	}
	_, reading, _ := app.LoadConfig(nil)
	if want := []string{
		"ALMONER_BASE_URL is not set", "ALMONER_APP_URL is not set", "ALMONER_DATABASE_URL is not set",
		"ALMONER_REDIS_URL is not set", "ALMONER_KEYS is not set",
	}; !slices.Equal(reading.Mistakes, want) {
		t.Errorf("%q", reading.Mistakes)
	}
}

// Check names each setting that is wrong, and no secret. A deployment with public URLs refuses the settings that trust
// certificates of this machine.
func TestCheck_ReportsMistakes(t *testing.T) {
	t.Parallel()
	certificate := testkit.NewMetadataHost(t).PEM()
	public := app.Config{
		BaseURL:              "https://api.example.org",
		AppURL:               "https://app.example.org",
		Keys:                 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		Passkeys:             true,
		UpstreamIssuer:       "https://id.example.org",
		UpstreamClientID:     "almoner",
		UpstreamClientSecret: "secret",
	}
	documents := app.Config{
		BaseURL:          "http://localhost:8080",
		AppURL:           "http://127.0.0.1:8081",
		Keys:             public.Keys,
		ClientDomains:    "claude.ai=claude,localhost:8443=other",
		ClientDocumentCA: certificate,
	}
	webhooks := documents
	webhooks.ClientDomains, webhooks.ClientDocumentCA, webhooks.WebhookCA = "", "", certificate
	for _, good := range []app.Config{public, documents, webhooks} {
		if mistakes := good.Check(); len(mistakes) > 0 {
			t.Fatal(mistakes)
		}
	}
	for _, c := range []struct {
		mistake string
		good    app.Config
		spoil   change
	}{
		{"ALMONER_UPSTREAM_CLIENT_SECRET", public, func(c *app.Config) { c.UpstreamClientSecret = "" }},
		{"ALMONER_UPSTREAM_CLIENT_ID", public, func(c *app.Config) { c.UpstreamClientID = "" }},
		{"ALMONER_UPSTREAM_ISSUER", public, func(c *app.Config) { c.UpstreamIssuer = "http://id.example.org" }},
		{"ALMONER_UPSTREAM_ISSUER, ", public, func(c *app.Config) { c.UpstreamIssuer = "" }},
		{"ALMONER_CLIENT_DOMAINS", documents, func(c *app.Config) { c.ClientDomains = "claude.ai" }},
		{"ALMONER_CLIENT_DOCUMENT_CA contains", documents, func(c *app.Config) { c.ClientDocumentCA = "none" }},
		{"ALMONER_CLIENT_DOCUMENT_CA is for development", documents, publicAPI},
		{"ALMONER_CLIENT_DOCUMENT_CA is for development", documents, publicApp},
		{"ALMONER_WEBHOOK_CA contains", webhooks, func(c *app.Config) { c.WebhookCA = "none" }},
		{"ALMONER_WEBHOOK_CA is for development", webhooks, publicAPI},
		{"ALMONER_WEBHOOK_CA is for development", webhooks, publicApp},
	} {
		config := c.good
		c.spoil(&config)
		mistakes := config.Check()
		if len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), c.mistake) ||
			strings.Contains(mistakes[0].Error(), "secret") {
			t.Errorf("got %v, want %s", mistakes, c.mistake)
		}
	}
}

func publicAPI(c *app.Config) { c.BaseURL = "https://api.example.org" }

func publicApp(c *app.Config) { c.AppURL = "https://localhost.example.org" }
