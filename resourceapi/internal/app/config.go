package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"time"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/server"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/mcp"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/redis"
)

// Config is the settings of `resourceapi serve`.
type Config struct {
	Listen       string            `env:"ALMONER_LISTEN" envDefault:"127.0.0.1:8082" doc:"Address and port to listen on."`
	BaseURL      string            `env:"ALMONER_BASE_URL,required,notEmpty" doc:"Public URL of the API, which is also the OAuth issuer, without a trailing slash."`
	DatabaseURL  credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty" doc:"PostgreSQL URL of a role that is a member of almoner_resourceapi."`
	Connections  int32             `env:"ALMONER_DATABASE_CONNECTIONS" envDefault:"16" doc:"Maximum number of PostgreSQL connections, 2 to 500. A quarter of them is for searches, and one for /readyz. With 2 or 3, these are two additional connections."`
	Keys         credential.Secret `env:"ALMONER_KEYS,required,notEmpty" doc:"Keys of 32 bytes in base64url, newest first, separated by commas. They protect cursors, the tokens of public forms and the secrets of webhooks."`
	RedisURL     credential.Secret `env:"ALMONER_REDIS_URL" doc:"URL of Redis, for limits that all processes share. Name several nodes of a Redis Cluster, like redis://:password@host:6379?addr=second:6379&addr=third:6379, or several Sentinels, like redis://:sentinelpassword@host:26379/0?master_name=almoner&password=password&addr=second:26379&addr=third:26379. rediss:// uses TLS. Without it, each process counts separately."`
	Proxies      string            `env:"ALMONER_TRUSTED_PROXIES" doc:"Address ranges of trusted proxies, separated by commas. X-Forwarded-For is read only from them."`
	Notice       time.Duration     `env:"ALMONER_NOTICE" envDefault:"4s" doc:"How long the server keeps serving after SIGTERM, while /readyz returns 503 and each response closes its connection. Must be longer than load balancers need to notice and longer than they keep an idle connection. Maximum: 10s."`
	StoreWait    time.Duration     `env:"ALMONER_STORE_WAIT" envDefault:"0s" doc:"How long a request waits for a store that does not respond: up to 20s, for a machine that is often busy. 0: less than 300ms. More than a second also lengthens other waits for PostgreSQL."`
	Worker       bool              `env:"ALMONER_WORKER" envDefault:"true" doc:"Whether serve also processes submissions and sends webhooks. If false, run resourceapi worker."`
	WorkerListen string            `env:"ALMONER_WORKER_LISTEN" doc:"Address and port where resourceapi worker serves /healthz and /readyz. Empty: it serves neither."`
	AppURL       string            `env:"ALMONER_APP_URL" doc:"Public URL of sign-in and settings, without a trailing slash. Pages of this origin may call the MCP endpoint."`
	MCPOrigins   string            `env:"ALMONER_MCP_ORIGINS" envDefault:"https://claude.ai,https://claude.com,https://chatgpt.com,https://vscode.dev,loopback" doc:"Origins whose pages may call the MCP endpoint, in addition to ALMONER_APP_URL, separated by commas; loopback means this machine, at any port."`
	Metrics      string            `env:"ALMONER_METRICS_LISTEN" doc:"Address and port for Prometheus metrics, at /metrics. Use another port than ALMONER_LISTEN, and close it to the public. Empty: no metrics."`
	Profiles     string            `env:"ALMONER_PROFILES" doc:"Directory for profiles. On SIGUSR1 the process writes a memory profile and a CPU profile of the next 10 seconds there. Empty: no profiles."`
	JWKSURL      string            `env:"ALMONER_JWKS_URL" doc:"URL of authserver's public keys. Default: ALMONER_BASE_URL/v1/account/oauth/jwks."`
	WebhookCA    string            `env:"ALMONER_WEBHOOK_CA" doc:"For development only: certificates in PEM to trust in addition to the system's when delivering webhooks, which may then go to this machine. Refused unless ALMONER_BASE_URL is an address of this machine."`
	RetentionSettings
	brand.Options
	server.TraceSettings

	reading    envconf.Reading
	searchTime time.Duration // limit of a search; 0 means the contract's
}

// LoadConfig reads the settings (package envconf). Its error lists every mistake and quotes no value.
func LoadConfig(environ []string) (c Config, reading envconf.Reading, err error) {
	reading, err = envconf.Load(&c, environ)
	c.reading = reading
	return c, reading, err
}

// Complete derives unset settings from others. It is called by envconf.
func (c *Config) Complete() {
	if c.JWKSURL == "" {
		c.JWKSURL = c.BaseURL + "/v1/account/oauth/jwks"
	}
}

// maxNotice and the 20 seconds in which requests in flight finish must fit into the grace period of the process
// manager.
const maxNotice = 10 * time.Second

// Check reports mistakes that parsing does not find. It is called by envconf.
func (c *Config) Check() []error {
	const origin = " must be http:// or https:// and a host, without a path or a trailing slash"
	var m envconf.Checks
	m.Require(mcp.IsOrigin(c.BaseURL), "ALMONER_BASE_URL"+origin)
	m.Require(c.Notice >= 0 && c.Notice <= maxNotice, "ALMONER_NOTICE must be between 0 and 10s")
	m.Require(c.AppURL == "" || mcp.IsOrigin(c.AppURL), "ALMONER_APP_URL"+origin)
	_, err := mcp.ParseOrigins(c.MCPOrigins)
	m.Require(err == nil, "ALMONER_MCP_ORIGINS must be origins like https://app.example.org, or the word loopback, "+
		"separated by commas")
	m.Require(c.JWKSURL == "" || isHTTP(c.JWKSURL), "ALMONER_JWKS_URL must be an http:// or https:// URL")
	m.Require(c.Connections >= 2 && c.Connections <= 500, "ALMONER_DATABASE_CONNECTIONS must be between 2 and 500")
	m.Valid("ALMONER_STORE_WAIT", pg.CheckWait(c.StoreWait))
	m.Valid("ALMONER_METRICS_LISTEN", server.CheckMetricsAddress(c.Metrics, c.Listen, c.WorkerListen))
	_, err = web.ParseProxies(c.Proxies)
	m.Require(err == nil, "ALMONER_TRUSTED_PROXIES must be addresses or ranges like 10.0.0.0/8, separated by commas")
	m.Require(postgres.CheckURL(c.DatabaseURL.Reveal()) == nil,
		"ALMONER_DATABASE_URL must look like postgres://user:password@host:5432/almoner")
	_, err = redis.Connect(credential.Fixed(c.RedisURL), 0, slog.New(slog.DiscardHandler), time.Now)
	m.Valid("ALMONER_REDIS_URL:", err)
	_, err = seal.ParseKeys(c.Keys)
	m.Valid("ALMONER_KEYS:", err)
	m = append(m, c.checkWebhooks()...)
	m = append(m, c.RetentionSettings.Check()...)
	m = append(m, c.Options.Check()...)
	return append(m, c.TraceSettings.Check()...)
}

// checkWebhooks reports mistakes in the settings of webhooks.
func (c *Config) checkWebhooks() []error {
	var m envconf.Checks
	_, err := publicnet.TrustedPool(c.WebhookCA)
	m.Valid("ALMONER_WEBHOOK_CA", err)
	// With this setting, users can enter URLs of the local machine. A server that other machines can reach must not
	// call them.
	m.Require(c.WebhookCA == "" || publicnet.OnThisMachine(c.BaseURL),
		"ALMONER_WEBHOOK_CA is for development: ALMONER_BASE_URL must be an address of this machine")
	return m
}

func isHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// Migrate applies the missing migrations. With check, it changes nothing and returns a migrate.State if the
// schema differs. With distribute, it also distributes the tables.
func Migrate(ctx context.Context, environ []string, check, distribute bool, out io.Writer) error {
	var config struct {
		DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
	}
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	url := config.DatabaseURL.Reveal()
	return migrate.Command{
		Schema: "resource",
		State:  func() (migrate.State, error) { return postgres.Look(ctx, url) },
		Up: func() (applied []string, err error) {
			if applied, err = postgres.Migrate(ctx, url); err == nil {
				err = postgres.MigrateJobs(ctx, url)
			}
			if err == nil {
				err = indexSearches(ctx, url, out)
			}
			return applied, err
		},
		Distribute: func() error { return postgres.Distribute(ctx, url, out) },
	}.Run(check, distribute, out)
}

// indexSearches creates the search index if the database supports it.
func indexSearches(ctx context.Context, url string, out io.Writer) error {
	created, err := postgres.IndexSearches(ctx, url)
	switch {
	case errors.Is(err, postgres.ErrNoTrigrams):
		_, err = fmt.Fprintln(out, "the index of searches was not created: "+err.Error()+
			"; run create extension pg_trgm as a superuser, then run migrate again")
	case created:
		_, err = fmt.Fprintln(out, "created the index of searches")
	}
	return err
}

// RetentionSettings say how many days records are kept after they have ended. The retentionMonths of a form determine
// how long its submissions are kept.
type RetentionSettings struct {
	ImportsDays    int `env:"ALMONER_RETENTION_IMPORTS_DAYS" envDefault:"90" doc:"Days that finished imports are kept, with their errors; 0 keeps them for ever."`
	SupportersDays int `env:"ALMONER_RETENTION_SUPPORTERS_DAYS" envDefault:"30" doc:"Days that supporters are kept after their last submission was deleted; 0 keeps them for ever."`
}

// Check reports the settings that are out of range. envconf calls it.
func (r RetentionSettings) Check() []error {
	var m envconf.Checks
	for name, days := range map[string]int{
		postgres.ImportsSetting:    r.ImportsDays,
		postgres.SupportersSetting: r.SupportersDays,
	} {
		m.Require(days >= 0 && days <= retention.MaxDays,
			fmt.Sprintf("%s must be between 0 and %d", name, retention.MaxDays))
	}
	return m
}

// Retention deletes the due records, or only counts them unless deletes is true, and writes the result to out.
func Retention(ctx context.Context, environ []string, deletes, asJSON bool, out io.Writer) error {
	var config struct {
		DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
		RetentionSettings
	}
	if _, err := envconf.Load(&config, environ); err != nil {
		return err
	}
	store, err := openForCommand(ctx, config.DatabaseURL)
	if err != nil {
		return err
	}
	defer store.Close()
	records := store.Retention(retention.Days(config.ImportsDays), retention.Days(config.SupportersDays))
	if deletes {
		deleted, err := records.DeleteAll(ctx)
		return errors.Join(err, write(out, deleted, asJSON))
	}
	all, err := records.Show(ctx)
	if err != nil {
		return err
	}
	return write(out, all, asJSON)
}

// openForCommand opens the store of an operator's command, with the smallest number of connections.
func openForCommand(ctx context.Context, url credential.Secret) (*postgres.Store, error) {
	return postgres.Open(ctx, credential.Fixed(url), postgres.Limits{Connections: 2, Wait: pg.CommandWait})
}

// write writes the result of a command.
func write(out io.Writer, result interface{ Text(io.Writer) error }, asJSON bool) error {
	if !asJSON {
		return result.Text(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}
