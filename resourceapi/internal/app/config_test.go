package app

import (
	"encoding/pem"
	"io"
	"strings"
	"testing"
)

const goodKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func TestLoadConfig_ChecksEverySetting(t *testing.T) {
	good := map[string]string{
		"ALMONER_BASE_URL":     "http://localhost:8080",
		"ALMONER_DATABASE_URL": "postgres://x:hush@localhost/x",
		"ALMONER_KEYS":         goodKey,
	}
	environ := func(name, value string) []string {
		var out []string
		for n, v := range good {
			if n != name {
				out = append(out, n+"="+v)
			}
		}
		return append(out, name+"="+value)
	}
	c, _, err := LoadConfig(environ("ALMONER_JWKS_URL", ""))
	if err != nil || c.Listen != "127.0.0.1:8082" || c.JWKSURL != "http://localhost:8080/v1/account/oauth/jwks" ||
		c.Connections != 16 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, wrong := range []struct{ name, value string }{
		{"ALMONER_BASE_URL", ""},
		{"ALMONER_BASE_URL", "localhost:8080"},
		{"ALMONER_BASE_URL", "http://localhost:8080/"},
		{"ALMONER_BASE_URL", "http://localhost/api"},
		{"ALMONER_BASE_URL", "ftp://localhost"},
		{"ALMONER_BASE_URL", "http://u:hush@localhost"},
		{"ALMONER_BASE_URL", "http://localhost?x"},
		{"ALMONER_BASE_URL", "http://LOCALHOST"},
		{"ALMONER_KEYS", "hush"},
		{"ALMONER_KEYS", goodKey + ",hush"},
		{"ALMONER_DATABASE_URL", ""},
		{"ALMONER_DATABASE_URL", "postgres://hush:hush"},
		{"ALMONER_JWKS_URL", "file:///hush"},
		{"ALMONER_DATABASE_CONNECTIONS", "1"},
		{"ALMONER_DATABASE_CONNECTIONS", "hush"},
		{"ALMONER_REDIS_URL", "hush"},
		{"ALMONER_TRUSTED_PROXIES", "hush"},
		{"ALMONER_WORKER", "hush"},
		{"ALMONER_APP_URL", "http://localhost:8081/"},
		{"ALMONER_MCP_ORIGINS", "https://claude.ai,hush"},
		{"ALMONER_MCP_ORIGINS", "https://claude.ai/"},
		{"ALMONER_MCP_ORIGINS", "*"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "hush"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "hush"},
		{"OTEL_TRACES_SAMPLER_ARG", "2"},
		{"OTEL_TRACES_SAMPLER_ARG", "hush"},
	} {
		_, _, err := LoadConfig(environ(wrong.name, wrong.value))
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s=%s: %v", wrong.name, wrong.value, err)
		}
	}
	err = Migrate(t.Context(), nil, true, false, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "ALMONER_DATABASE_URL") {
		t.Errorf("%v", err)
	}
}

// A deployment with a public URL refuses the setting that allows webhook endpoints on this machine.
func TestConfig_WebhookCAIsForDevelopment(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	good := Config{WebhookCA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}))}
	for base, accepted := range map[string]bool{
		"http://localhost:8080":         true,
		"http://127.0.0.1:8080":         true,
		"http://[::1]:8080":             true,
		"https://api.example.org":       false,
		"https://localhost.example.org": false,
		"http://10.0.0.1":               false,
	} {
		c := good
		c.BaseURL = base
		if mistakes := c.checkWebhooks(); accepted != (len(mistakes) == 0) {
			t.Errorf("%s: %v", base, mistakes)
		}
	}
	bad := Config{BaseURL: "http://localhost:8080", WebhookCA: "no certificate"}
	if mistakes := bad.checkWebhooks(); len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), "no PEM") {
		t.Errorf("%v", mistakes)
	}
}
