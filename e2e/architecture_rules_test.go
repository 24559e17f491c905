package e2e

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

// The rules that architecture_test.go checks.

// domain returns the packages of plain Go: no I/O, and no library except uuid.
func domain() []string {
	return []string{
		"authserver/internal/account/audit", "authserver/internal/account/pat",
		"authserver/internal/account/useraccount", "authserver/internal/account/workspace",
		"authserver/internal/oauth/client", "authserver/internal/oauth/connectionlog",
		"authserver/internal/oauth/consent", "authserver/internal/oauth/grant", "authserver/internal/ratelimit",
		"authserver/internal/store", "resourceapi/internal/engage", "resourceapi/internal/programme",
	}
}

// supportForTests returns the packages that only tests may import.
func supportForTests() []string {
	return []string{
		"authserver/internal/testing/...", "resourceapi/internal/store/postgres/postgrestest", "shared/devkit/fuzzkit",
		"shared/devkit/testkit",
	}
}

func vagueNames() []string {
	return []string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "base", "lib"}
}

// crossesModules: the services share only HTTP and the contracts in shared, and shared imports no other module.
func crossesModules(importer, imported string) string {
	from, to := strings.SplitN(importer, "/", 2)[0], strings.SplitN(imported, "/", 2)[0]
	switch {
	case !isOurs(imported):
		return ""
	case importer == "shared/client" && imported != importer:
		return "the Go client has no dependencies of ours"
	case from == to || to == "shared":
		return ""
	}
	if from == "e2e" && to == "deploy" {
		return ""
	}
	return "the modules do not know each other"
}

// wings returns the folders of authserver's domain, each with the other folders that it may import.
func wings() map[string][]string {
	return map[string][]string{
		"authserver/internal/oauth":   {"authserver/internal/account", "authserver/internal/mail"},
		"authserver/internal/signin":  {"authserver/internal/account", "authserver/internal/mail"},
		"authserver/internal/account": {"authserver/internal/mail"},
		"authserver/internal/mail":    {"authserver/internal/account"},
	}
}

func wingOf(importPath string) string {
	for wing := range wings() {
		if matches(importPath, []string{wing + "/..."}) {
			return wing
		}
	}
	return ""
}

// crossesWings: oauth and signin may import account and mail, which may import neither.
func crossesWings(importer, imported string) string {
	from, to := wingOf(importer), wingOf(imported)
	if from == "" || to == "" || from == to || slices.Contains(wings()[from], to) {
		return ""
	}
	return path.Base(from) + " may not import " + path.Base(to)
}

// pointsUpOrSideways: cmd → app → endpoint → domain → shared. Only app may import stores. Test support builds the
// service with app.New, and so needs neither endpoints nor stores.
func pointsUpOrSideways(importer, imported string) string {
	endpoints := []string{"*/internal/endpoint/..."}
	isEndpoint, toEndpoint := matches(importer, endpoints), matches(imported, endpoints)
	fromApp, fromTests := matches(importer, []string{"*/internal/app"}), matches(importer, supportForTests())
	// The templates of the pages, and the parser of client credentials that three endpoints share.
	sharedByEndpoints := []string{"authserver/internal/endpoint/ui", "authserver/internal/endpoint/protocol/token"}
	// The doctor is not part of the service: it calls a service from outside.
	forCommands := []string{
		"*/internal/app", "authserver/internal/admin", "authserver/internal/backup", "authserver/internal/doctor",
	}
	stores := []string{"*/internal/store/postgres", "*/internal/store/redis"}
	switch {
	case !isOurs(imported):
		return ""
	case fromTests && (toEndpoint || matches(imported, stores)):
		return "test support builds the service with app.New"
	case fromTests:
		return ""
	case matches(imported, supportForTests()) && !strings.HasPrefix(importer, "e2e"):
		return "test support is for tests"
	case matches(imported, []string{"*/internal/app"}) && !matches(importer, []string{"*/cmd/..."}):
		return "only cmd may import app"
	case matches(importer, []string{"*/cmd/..."}) && matches(imported, []string{"*/internal/..."}) &&
		!matches(imported, forCommands):
		return "cmd may import app, admin, backup and doctor only"
	case matches(imported, stores) && !fromApp && !matches(importer, []string{"authserver/internal/admin"}):
		return "only app may import stores"
	case matches(importer, []string{"*/internal/endpoint/ui"}) && matches(imported, []string{"*/internal/..."}):
		return "pages may import shared only"
	case isEndpoint && toEndpoint && !slices.Contains(sharedByEndpoints, imported):
		return "endpoints may not import each other"
	case toEndpoint && !isEndpoint && !fromApp:
		return "only app may import endpoints"
	case matches(importer, domain()) && matches(imported, []string{"*/internal/..."}) && !matches(imported, domain()):
		return "the domain may import the domain and shared only"
	}
	return ""
}

// doesIO: the domain does no I/O.
func doesIO(importer, imported string) string {
	if !matches(importer, domain()) {
		return ""
	}
	parsers := []string{"net/url", "net/netip", "net/mail"} // they open no files or connections
	// The built-in texts of forms and the words of audit events are part of the program.
	withTexts := []string{"resourceapi/internal/engage", "authserver/internal/account/audit"}
	if imported == "embed" && slices.Contains(withTexts, importer) {
		return ""
	}
	for _, outside := range []string{
		"net", "os", "io/fs", "io/ioutil", "database/sql", "syscall", "html/template", "embed",
	} {
		if imported == outside ||
			(isStandard(imported) && strings.HasPrefix(imported, outside+"/") && !slices.Contains(parsers, imported)) {
			return "the domain does no I/O"
		}
	}
	if !isStandard(imported) && !isOurs(imported) && imported != "github.com/google/uuid" {
		return "the domain is plain Go"
	}
	return ""
}

// leavesItsRoom: each library may be imported only by the packages in rooms.
func leavesItsRoom(importer, imported string) string {
	if isStandard(imported) || isOurs(imported) {
		return ""
	}
	for library, allowed := range rooms() {
		if imported == library || strings.HasPrefix(imported, library+"/") {
			if matches(importer, allowed) {
				return ""
			}
			return fmt.Sprintf("%s belongs in %s", library, strings.Join(allowed, ", "))
		}
	}
	return "a library without an entry in rooms"
}

// Each of these imports violates a rule.
func TestArchitecture_RulesRejectViolations(t *testing.T) {
	t.Parallel()
	for importer, imports := range map[string][]string{
		"authserver/internal/oauth/grant": {
			"net/http", "os", "database/sql", "github.com/jackc/pgx/v5", "authserver/internal/oauth/engine",
			"authserver/internal/store/redis", "golang.org/x/crypto/bcrypt", "authserver/internal/signin/session",
		},
		"authserver/internal/endpoint/protocol/authorize": {
			"authserver/internal/store/postgres", "authserver/internal/app", "authserver/internal/endpoint/signin",
			"github.com/ory/fosite", "github.com/gorilla/mux", "github.com/jackc/pgx/v5/pgxpool",
			"resourceapi/internal/gate", "authserver/internal/testing/fixture",
		},
		"authserver/internal/store/postgres": {
			"authserver/internal/endpoint/protocol/token", "github.com/gorilla/mux", "github.com/redis/go-redis/v9",
		},
		"authserver/internal/endpoint/ui": {"authserver/internal/oauth/grant"},
		"authserver/cmd/authserver":       {"authserver/internal/store/postgres", "shared/devkit/testkit"},
		"authserver/internal/account/workspace": {
			"authserver/internal/oauth/consent", "authserver/internal/signin/session",
		},
		"shared/client":  {"shared/crypt/credential"},
		"shared/net/web": {"authserver/internal/app", "github.com/nobody/knows"},
		"authserver/internal/testing/apitest": {
			"authserver/internal/endpoint/protocol/token", "authserver/internal/store/postgres",
		},
		"deploy/local/stack": {"authserver/internal/app", "e2e/harness"},
	} {
		for _, imported := range imports {
			if forbidden(importer, imported) == "" {
				t.Errorf("%s may import %s", importer, imported)
			}
		}
	}
	if len(inspect([]goPackage{{ImportPath: "shared/util"}})) != 1 {
		t.Error("a package may be called util")
	}
}

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
			"shared/contract/standing", "shared/contract/usage", "shared/contract/webhook", "shared/config/secretfile",
			"shared/database/pg", "shared/server", "shared/database/retention", "shared/rest",
			"shared/database/migrate", "shared/devkit/testkit", "deploy/...", "e2e/..."),
		"github.com/pressly/goose":       {"shared/database/migrate", "shared/devkit/testkit"},
		"github.com/riverqueue/river":    {stores, "authserver/internal/mail"},
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
			"authserver/internal/oauth/keyring", "resourceapi/internal/gate", "resourceapi/internal/worker",
			"shared/database/pg",
		},
		"golang.org/x/sys": {"shared/net/web"},

		"github.com/klauspost/compress": {"shared/net/web"},
		"code.dny.dev/ssrf":             {"shared/net/publicnet"},
		"golang.org/x/time":             {"resourceapi/internal/gate"},
		"golang.org/x/net/idna": {
			"shared/net/publicnet", "shared/contract/spelling", "shared/contract/displayname",
		},
		"golang.org/x/text":            {"shared/contract/spelling"},
		"github.com/standard-webhooks": {"resourceapi/internal/delivery"},
		"golang.org/x/net/html":        {"authserver/internal/testing/browsertest", "authserver/internal/doctor"},
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
			"resourceapi/internal/store/redis", "shared/contract/accesstoken", "shared/contract/usage",
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
