// Package settings generates the documentation of the settings.
//
// The structs that the programs read are the only source. Files generates the table in deploy/SETTINGS.md and the names
// in shared/config/envconf that every program knows. `make generate` writes them, and a test in e2e checks that they
// are current.
package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore/child"
)

// A Run holds the settings of `make run`.
type Run struct {
	Port        int               `env:"PORT" envDefault:"8080" doc:"Port of the API. Sign-in and settings use the next port, resourceapi the one after, and the page of sent mails the fourth if it is free."`
	Home        string            `env:"ALMONER_HOME" doc:"Directory for all data. Default: .almoner in the checkout."`
	DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL" doc:"Use this PostgreSQL (15 or newer) instead of starting one. The database must be empty or contain this demo, and its user must be able to create roles."`
	RedisURL    credential.Secret `env:"ALMONER_REDIS_URL" doc:"Use this Redis (7 or newer) instead of starting one."`
}

// Check reports errors that the types cannot express. envconf calls it. It quotes no URL, because URLs contain
// passwords.
func (r *Run) Check() []error {
	var mistakes []error
	if r.Port < 1 {
		mistakes = append(mistakes, errors.New("PORT must be a number above 0, like PORT=9000"))
	}
	if r.DatabaseURL != "" && !isPostgresURL(r.DatabaseURL.Reveal()) {
		mistakes = append(mistakes,
			errors.New("ALMONER_DATABASE_URL must look like postgres://user:password@127.0.0.1:5432/name"))
	}
	if r.RedisURL != "" {
		client, err := redisurl.Open(r.RedisURL, redisurl.Limits{Connections: 1})
		if err != nil {
			return append(mistakes, errors.New("ALMONER_REDIS_URL must look like redis://:password@127.0.0.1:6379/0"))
		}
		_ = client.Close() // never used
	}
	return mistakes
}

// isPostgresURL reports whether text is a database URL in which the user can be replaced for the services.
func isPostgresURL(text string) bool {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "postgres" && parsed.Scheme != "postgresql" {
		return false
	}
	_, err = pgx.ParseConfig(text)
	return err == nil
}

// A Gateway holds the variables of deploy/gateway/Caddyfile, which Caddy reads itself.
type Gateway struct {
	APIHost      string `env:"GATEWAY_API_HOST" envDefault:"api.example.org" doc:"Host of ALMONER_BASE_URL."`
	AppHost      string `env:"GATEWAY_APP_HOST" envDefault:"app.example.org" doc:"Host of ALMONER_APP_URL."`
	TLS          string `env:"GATEWAY_TLS,required" doc:"An e-mail address, to get certificates by ACME, which needs port 80; or the certificate file for both hosts and its key file, separated by a space; or internal, for testing: certificates of Caddy's own authority."`
	Authservers  string `env:"GATEWAY_AUTHSERVERS" envDefault:"authserver-1:8081 authserver-2:8081" doc:"Addresses of the processes of authserver, separated by spaces."`
	Resourceapis string `env:"GATEWAY_RESOURCEAPIS" envDefault:"resourceapi-1:8082 resourceapi-2:8082" doc:"Addresses of the processes of resourceapi, separated by spaces."`
	HTTPPort     int    `env:"GATEWAY_HTTP_PORT" envDefault:"80" doc:"Port for http."`
	HTTPSPort    int    `env:"GATEWAY_HTTPS_PORT" envDefault:"443" doc:"Port for https."`
	Bind         string `env:"GATEWAY_BIND" doc:"Address to listen on. Empty: all."`
	Admin        string `env:"GATEWAY_ADMIN" envDefault:"off" doc:"Address for caddy reload, like unix//run/caddy/admin.sock. off: a change, or a new certificate file, needs a restart."`
	Tracing      string `env:"GATEWAY_TRACING" doc:"tracing: a trace begins at Caddy (docs/gateway.md). Empty: no traces."`
}

// A program is a program and the settings that it reads.
type program struct {
	name     string
	settings []envconf.Setting
}

// Files returns the generated files of the repository at root, by path relative to it, using the programs in the folder
// binaries.
func Files(ctx context.Context, root, binaries string) (map[string]string, error) {
	var services []program
	for _, name := range []string{"authserver", "resourceapi"} {
		out, err := exec.CommandContext(ctx, filepath.Join(binaries, name), "settings", "--json").Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, child.Cause(string(failed.Stderr)))
		}
		p := program{name: name}
		if err == nil {
			err = json.Unmarshal(out, &p.settings)
		}
		if err != nil {
			return nil, fmt.Errorf("%s settings: %w", name, err)
		}
		services = append(services, p)
	}
	const page = "deploy/SETTINGS.md"
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	all := append(slices.Clone(services), program{name: "make run", settings: envconf.Describe(Run{})},
		program{name: "gateway", settings: envconf.Describe(Gateway{})})
	text, err := between(string(content), "settings", table(all))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", page, err)
	}
	return map[string]string{page: text, "shared/config/envconf/names.txt": names(services)}, nil
}

// between puts rows between the two comments of a marker.
func between(text, marker, rows string) (string, error) {
	first, last := "<!-- "+marker+": written by make generate -->\n", "<!-- end of "+marker+" -->\n"
	before, rest, opened := strings.Cut(text, first)
	_, after, closed := strings.Cut(rest, last)
	if !opened || !closed {
		return "", fmt.Errorf("the comments around %s are missing", marker)
	}
	return before + first + rows + last + after, nil
}

// names returns the setting names of all programs, one on a line.
func names(programs []program) string {
	var all []string
	for _, p := range programs {
		for _, s := range p.settings {
			all = append(all, s.Name+"\n")
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "")
}

// table returns a row for each setting, sorted by name. Equal settings of several programs share a row.
func table(programs []program) string {
	type row struct{ name, doc, value, programs string }
	var rows []row
	for _, p := range programs {
		for _, s := range p.settings {
			next := row{"`" + s.Name + "`", s.Doc, value(s), p.name}
			if s.Secret {
				next.name += " (secret)"
			}
			isSame := func(r row) bool { return r.name == next.name && r.doc == next.doc && r.value == next.value }
			if same := slices.IndexFunc(rows, isSame); same >= 0 {
				rows[same].programs += ", " + p.name
				continue
			}
			rows = append(rows, next)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	var out strings.Builder
	write := func(cells ...string) { out.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	write("setting", "program", "default", "meaning")
	write("---", "---", "---", "---")
	for _, r := range rows {
		write(r.name, r.programs, r.value, strings.ReplaceAll(r.doc, "|", `\|`))
	}
	return out.String()
}

func value(s envconf.Setting) string {
	switch {
	case s.Required:
		return "required"
	case s.Default == "":
		return ""
	}
	return "`" + s.Default + "`"
}
