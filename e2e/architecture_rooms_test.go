package e2e

// rooms returns the packages that may import each library. A library that is not listed may not be imported: add it
// here first.
func rooms() map[string][]string {
	stores := "*/internal/store/postgres"
	forTests := []string{"authserver/internal/testing/...", stores + "/postgrestest"}
	return map[string][]string{
		"github.com/ory/fosite":  {"authserver/internal/oauth/engine"},
		"github.com/gorilla/mux": {"*/internal/app", "shared/rest"},
		"github.com/rs/cors":     {"*/internal/app"},
		"github.com/jackc/pgx": append(forTests, stores, "*/internal/app", "authserver/internal/backup",
			"shared/contract/standing", "shared/contract/webhook", "shared/config/secretfile", "shared/database/pg",
			"shared/server", "shared/database/retention", "shared/rest", "shared/database/migrate",
			"shared/devkit/testkit", "deploy/...", "e2e/..."),
		"github.com/pressly/goose":       {"shared/database/migrate", "shared/devkit/testkit"},
		"github.com/riverqueue/river":    {stores, "resourceapi/internal/worker", "authserver/internal/mail"},
		"github.com/wneessen/go-mail":    {"authserver/internal/mail"},
		"github.com/ccojocar/zxcvbn-go":  {"authserver/internal/signin/password"},
		"github.com/boombuler/barcode":   {"authserver/internal/signin/authenticator"},
		"github.com/pquerna/otp":         {"authserver/internal/signin/authenticator"},
		"github.com/emersion/go-smtp":    {"shared/devkit/mailbox", "authserver/..."},
		"github.com/emersion/go-message": {"shared/devkit/mailbox"},
		"github.com/go-redis/redis_rate": {"*/internal/store/redis"},
		"github.com/redis/go-redis": {
			"shared/config/redisurl", "shared/server", "*/internal/store/redis", "*/internal/app",
		},
		"github.com/go-jose/go-jose":           joseRooms(),
		"github.com/alexedwards/argon2id":      {"authserver/internal/signin/session", "deploy/local/demo"},
		"github.com/alexedwards/scs":           {"authserver/internal/signin/session"},
		"github.com/go-webauthn/webauthn":      {"authserver/internal/signin/passkey"},
		"github.com/coreos/go-oidc":            {"authserver/internal/signin/oidc"},
		"golang.org/x/oauth2":                  {"authserver/internal/signin/oidc", "shared/client/...", "e2e/..."},
		"golang.org/x/crypto/chacha20poly1305": {"shared/crypt/seal"},
		"golang.org/x/sync": {
			"authserver/internal/signin/oidc", "authserver/internal/oauth/clientmetadata",
			"authserver/internal/oauth/keyring", "resourceapi/internal/gate", "shared/database/pg",
		},
		"golang.org/x/sys": {"shared/net/web"},

		"github.com/klauspost/compress": {"shared/net/web"},
		"code.dny.dev/ssrf":             {"shared/net/publicnet"},
		"golang.org/x/time":             {"resourceapi/internal/gate"},
		"golang.org/x/net/idna":         {"shared/net/publicnet", "shared/contract/spelling", "shared/contract/displayname"},
		"golang.org/x/text":             {"shared/contract/spelling"},
		"github.com/standard-webhooks":  {"resourceapi/internal/delivery"},
		"golang.org/x/net/html":         {"authserver/internal/testing/browsertest", "authserver/internal/doctor"},
		"github.com/go-json-experiment/json": {
			"authserver/internal/endpoint/protocol/token", "authserver/internal/oauth/clientmetadata",
			"shared/contract/accesstoken", "shared/rest",
		},
		"github.com/alecthomas/kong":       {"*/cmd/*"},
		"github.com/caarlos0/env":          {"shared/config/envconf"},
		"github.com/hashicorp/go-envparse": {"shared/config/envconf"},
		"github.com/hashicorp/golang-lru": {
			"authserver/internal/app", "authserver/internal/oauth/clientmetadata", "authserver/internal/oauth/engine",
			"authserver/internal/signin/session", "authserver/internal/store/postgres",
			"resourceapi/internal/store/redis", "shared/contract/accesstoken",
		},
		"github.com/agnivade/levenshtein":       {"shared/config/envconf"},
		"github.com/santhosh-tekuri/jsonschema": {"e2e/harness"},
		"github.com/pb33f/libopenapi/datamodel": {"e2e/harness"},
		"github.com/goccy/go-yaml": {
			"shared/contract/openapi", "authserver/internal/admin", "resourceapi/internal/app",
		},
		"github.com/yuin/goldmark":            {"resourceapi/internal/endpoint/apidoc"},
		"github.com/IBM/pgxpoolprometheus":    {"shared/server"},
		"github.com/prometheus/client_golang": {"shared/server", "*/internal/app"},
		"github.com/go-logr/logr":             {"shared/server"},
		"go.opentelemetry.io/otel":            {"shared/server", "shared/net/web"}, // web uses only the ids
		"go.opentelemetry.io/contrib":         {"shared/server"},
		"go.opentelemetry.io/proto/otlp":      {"e2e/harness"},
		"google.golang.org/protobuf/proto":    {"e2e/harness"},
		"github.com/exaring/otelpgx":          {"shared/server"},
		"github.com/PuerkitoBio/goquery": {
			"authserver/internal/doctor", "authserver/internal/testing/browsertest", "e2e/...",
		},
		"github.com/chromedp":             {"e2e/..."},
		"pgregory.net/rapid":              {"e2e/..."},
		"github.com/modelcontextprotocol": {"resourceapi/internal/endpoint/mcp", "e2e/..."},
		"github.com/google/uuid":          {"authserver/...", "resourceapi/...", "shared/...", "deploy/...", "e2e/..."},
	}
}

// joseRooms are the packages that handle keys and tokens, and those that pass key sets on.
func joseRooms() []string {
	return []string{
		"shared/contract/accesstoken", "authserver/internal/oauth/keyring", "resourceapi/internal/gate",
		"authserver/internal/endpoint/api", "authserver/internal/oauth/clientmetadata",
		"authserver/internal/oauth/engine", "authserver/internal/endpoint/protocol/token",
	}
}
