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
			"net/http", "os", "database/sql", "github.com/jackc/pgx/v5", "github.com/ory/fosite",
			"authserver/internal/oauth/engine", "authserver/internal/store/redis", "golang.org/x/crypto/bcrypt",
		},
		"authserver/internal/endpoint/protocol/authorize": {
			"authserver/internal/store/postgres", "authserver/internal/app", "authserver/internal/endpoint/signin",
			"github.com/ory/fosite", "github.com/gorilla/mux", "github.com/jackc/pgx/v5/pgxpool",
			"github.com/redis/go-redis/v9", "resourceapi/internal/gate", "authserver/internal/testing/fixture",
		},
		"authserver/internal/oauth/engine": {
			"authserver/internal/store/redis", "authserver/internal/endpoint/protocol/token",
			"github.com/redis/go-redis/v9", "deploy/local/demo",
		},
		"authserver/internal/store/postgres": {
			"authserver/internal/endpoint/protocol/token",
			"github.com/gorilla/mux",
			"github.com/redis/go-redis/v9",
		},
		"authserver/internal/endpoint/ui": {"authserver/internal/oauth/grant"},
		"authserver/internal/endpoint/settings": {
			"authserver/internal/endpoint/signin",
			"authserver/internal/store/postgres",
		},
		"authserver/internal/endpoint/signin": {"authserver/internal/endpoint/settings"},
		"authserver/cmd/authserver": {
			"authserver/internal/store/postgres",
			"authserver/internal/oauth/engine",
			"shared/devkit/testkit",
		},
		"resourceapi/internal/programme": {"net", "github.com/jackc/pgx/v5", "resourceapi/internal/gate"},
		"resourceapi/internal/gate": {
			"resourceapi/internal/store/postgres",
			"authserver/internal/oauth/grant",
			"github.com/modelcontextprotocol/go-sdk/auth",
		},
		"resourceapi/internal/endpoint/mcp": {"github.com/go-jose/go-jose"},
		"authserver/internal/account/workspace": {
			"authserver/internal/oauth/consent",
			"authserver/internal/signin/session",
		},
		"authserver/internal/signin/session": {"authserver/internal/oauth/grant"},
		"authserver/internal/oauth/keyring":  {"authserver/internal/signin/session"},
		"shared/client":                      {"shared/crypt/credential"},
		"shared/net/web":                     {"authserver/internal/app", "github.com/gorilla/mux", "github.com/nobody/knows"},
		"authserver/internal/testing/apitest": {
			"authserver/internal/endpoint/protocol/token",
			"authserver/internal/store/postgres",
			"authserver/internal/store/redis",
		},
		"deploy/local/stack": {"authserver/internal/app", "e2e/harness"},
		"e2e/harness":        {"authserver/internal/oauth/grant"},
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
