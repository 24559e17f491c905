package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/signin/oidc"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/config/secretfile"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/server"
)

// A Config is the settings of authserver.
type Config struct {
	Listen               string            `env:"ALMONER_LISTEN" envDefault:"127.0.0.1:8081" doc:"Address and port to listen on."`
	BaseURL              string            `env:"ALMONER_BASE_URL,required,notEmpty" doc:"Public URL of the API, which is also the OAuth issuer, without a trailing slash."`
	AppURL               string            `env:"ALMONER_APP_URL,required,notEmpty" doc:"Public URL of sign-in, consent and settings, without a trailing slash."`
	DatabaseURL          credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty" doc:"PostgreSQL URL of a role that is a member of almoner_authserver; for migrate, of the owner of the database. It may name several hosts, like postgres://user:password@one,two/almoner?target_session_attrs=read-write."`
	RefreshDatabaseURL   credential.Secret `env:"ALMONER_REFRESH_DATABASE_URL" doc:"URL of the same PostgreSQL database for refreshes, with a role of its own that is a member of almoner_authserver, or with other nodes of a Citus cluster. A process then opens up to 8 more connections, and 8 to each host if the URL has several. Empty: ALMONER_DATABASE_URL."`
	RedisURL             credential.Secret `env:"ALMONER_REDIS_URL,required,notEmpty" doc:"URL of Redis 7 or newer, with AOF and maxmemory-policy noeviction. Name several nodes of a Redis Cluster, like redis://:password@host:6379?addr=second:6379&addr=third:6379, or several Sentinels, like redis://:sentinelpassword@host:26379/0?master_name=almoner&password=password&addr=second:26379&addr=third:26379. rediss:// uses TLS."`
	Keys                 credential.Secret `env:"ALMONER_KEYS,required,notEmpty" doc:"Keys of 32 bytes in base64url, newest first, separated by commas. They protect codes, refresh tokens, tickets and signing keys."`
	KeyMaxAge            time.Duration     `env:"ALMONER_KEY_MAX_AGE" envDefault:"720h" doc:"How long a key signs access tokens before the next one replaces it: 1h or longer, or 0 to replace keys only by command."`
	TrustedProxies       string            `env:"ALMONER_TRUSTED_PROXIES" doc:"Address ranges of trusted proxies, separated by commas. X-Forwarded-For is read only from them."`
	Notice               time.Duration     `env:"ALMONER_NOTICE" envDefault:"4s" doc:"How long the server keeps serving after SIGTERM, while /readyz returns 503 and each response closes its connection. Must be longer than load balancers need to notice and longer than they keep an idle connection. Maximum: 10s."`
	StoreWait            time.Duration     `env:"ALMONER_STORE_WAIT" envDefault:"0s" doc:"How long a request waits for a store that does not respond: up to 20s, for a machine that is often busy. 0: less than 300ms. More than a second also lengthens other waits for PostgreSQL."`
	Passkeys             bool              `env:"ALMONER_PASSKEYS" envDefault:"true" doc:"true: users can sign in with passkeys, on the host of ALMONER_APP_URL. Browsers support no passkeys for an IP address: there they are off."`
	UpstreamIssuer       string            `env:"ALMONER_UPSTREAM_ISSUER" doc:"Issuer of an OpenID Connect provider that users can sign in with. It must match the provider's issuer exactly."`
	UpstreamClientID     string            `env:"ALMONER_UPSTREAM_CLIENT_ID" doc:"Client id at the provider. The redirect URI is ALMONER_APP_URL/login/upstream/callback."`
	UpstreamClientSecret credential.Secret `env:"ALMONER_UPSTREAM_CLIENT_SECRET" doc:"Client secret at the provider."`
	UpstreamName         string            `env:"ALMONER_UPSTREAM_NAME" envDefault:"your organisation" doc:"Name of the provider, as shown on the button: Continue with NAME."`
	SMTPURL              credential.Secret `env:"ALMONER_SMTP_URL" doc:"Mail server: smtps://user:password@mail.example.org (TLS, port 465) or smtp://user:password@mail.example.org (STARTTLS, port 587). For a relay without encryption and password: smtp://relay:25?tls=none. Encode special characters of the password as in any URL. Empty: the deployment sends no mail."`
	MailFrom             string            `env:"ALMONER_MAIL_FROM" doc:"Sender of mails, an address with a name: Almoner <almoner@example.org>. Required with ALMONER_SMTP_URL."`
	ClientDomains        string            `env:"ALMONER_CLIENT_DOMAINS" envDefault:"claude.ai=claude,chatgpt.com=chatgpt,vscode.dev=other" doc:"Where client metadata documents may be hosted, separated by commas, each place with its platform (claude, chatgpt or other); none allows none. A place is a host (claude.ai), a path with everything below it (claude.ai/oauth/) or one document (claude.ai/oauth/client.json). Use a path if other parties can publish on the host."`
	ClientDocumentCA     string            `env:"ALMONER_CLIENT_DOCUMENT_CA" doc:"For development only: certificates in PEM to trust in addition to the system's when reading client metadata documents, which may then be on this machine. Refused unless ALMONER_BASE_URL and ALMONER_APP_URL are addresses of this machine."`
	WebhookCA            string            `env:"ALMONER_WEBHOOK_CA" doc:"For development only: the same setting as resourceapi's. Webhook endpoints may then be on this machine. Refused unless ALMONER_BASE_URL and ALMONER_APP_URL are addresses of this machine."`
	MetricsListen        string            `env:"ALMONER_METRICS_LISTEN" doc:"Address and port for Prometheus metrics, at /metrics. Use another port than ALMONER_LISTEN, and close it to the public. Empty: no metrics."`
	Profiles             string            `env:"ALMONER_PROFILES" doc:"Directory for profiles. On SIGUSR1 the process writes a memory profile and a CPU profile of the next 10 seconds there. Empty: no profiles."`
	LogLevel             slog.Level        `env:"ALMONER_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error."`
	RetentionSettings
	brand.Options
	brand.ContactOptions
	server.TraceSettings

	reading envconf.Reading
}

// LoadConfig reads the settings (package envconf). Its error lists every mistake and quotes no value.
func LoadConfig(environ []string) (c Config, reading envconf.Reading, err error) {
	reading, err = envconf.Load(&c, environ)
	c.reading = reading
	return c, reading, err
}

const refreshSetting = "ALMONER_REFRESH_DATABASE_URL"

// databases returns the sources of the URLs of PostgreSQL.
func (c *Config) databases(log *slog.Logger) (all postgres.Sources) {
	file := c.reading.File("ALMONER_DATABASE_URL")
	all.Database = secretfile.Postgres("ALMONER_DATABASE_URL", file, c.DatabaseURL, log)
	if c.RefreshDatabaseURL != "" {
		all.Refreshes = secretfile.Postgres(refreshSetting, c.reading.File(refreshSetting), c.RefreshDatabaseURL, log)
	}
	return all
}

// minKeyAge is long enough that every verifier reads the next key before it signs.
const minKeyAge = time.Hour

// maxNotice, together with the 20 seconds in which requests in flight finish, stays within the time that process
// managers wait before they kill a process.
const maxNotice = 10 * time.Second

// Check reports the mistakes that the types cannot. envconf calls it.
func (c *Config) Check() []error {
	var m envconf.Checks
	m.Valid("ALMONER_BASE_URL", checkOrigin(c.BaseURL))
	m.Valid("ALMONER_APP_URL", checkOrigin(c.AppURL))
	c.checkStores(&m)
	_, err := seal.ParseKeys(c.Keys)
	m.Valid("ALMONER_KEYS:", err)
	m.Require(c.KeyMaxAge == 0 || c.KeyMaxAge >= minKeyAge, "ALMONER_KEY_MAX_AGE must be 0, or 1h or longer")
	m.Require(c.Notice >= 0 && c.Notice <= maxNotice, "ALMONER_NOTICE must be between 0 and 10s")
	m.Valid("ALMONER_STORE_WAIT", pg.CheckWait(c.StoreWait))
	m.Valid("ALMONER_METRICS_LISTEN", server.CheckMetricsAddress(c.MetricsListen, c.Listen))
	_, err = web.ParseProxies(c.TrustedProxies)
	m.Require(err == nil, "ALMONER_TRUSTED_PROXIES must be addresses or ranges like 10.0.0.0/8, separated by commas")
	m = append(m, c.RetentionSettings.Check()...)
	m = append(m, c.Options.Check()...)
	m = append(m, c.ContactOptions.Check()...)
	m = append(m, c.TraceSettings.Check()...)
	c.checkNetworks(&m)
	c.checkMail(&m)
	c.checkSignInMethods(&m)
	return m
}

// checkStores checks the URLs and does not connect.
func (c *Config) checkStores(m *envconf.Checks) {
	m.Require(postgres.CheckURL(c.DatabaseURL) == nil,
		"ALMONER_DATABASE_URL must look like postgres://user:password@host:5432/almoner")
	if c.RefreshDatabaseURL != "" {
		m.Valid(refreshSetting, postgres.CheckSameName(c.DatabaseURL, c.RefreshDatabaseURL))
	}
	if c.RedisURL == "" {
		return
	}
	rdb, err := redis.Connect(credential.Fixed(c.RedisURL), 0)
	m.Require(err == nil, "ALMONER_REDIS_URL must look like redis://:password@host:6379/0")
	if err == nil {
		_ = rdb.Close() // it has no connection
	}
}

// checkDevelopment reports a setting for development on a server that other machines can reach. With such a setting,
// URLs from users and requests may lead to this machine.
func (c *Config) checkDevelopment(m *envconf.Checks, setting, value string) {
	local := publicnet.OnThisMachine(c.BaseURL) && publicnet.OnThisMachine(c.AppURL)
	m.Require(value == "" || local,
		setting+" is for development: ALMONER_BASE_URL and ALMONER_APP_URL must be addresses of this machine")
}

// checkNetworks reports mistakes in the settings for metadata documents and webhooks.
func (c *Config) checkNetworks(m *envconf.Checks) {
	_, err := client.ParseDomains(c.ClientDomains)
	m.Valid("ALMONER_CLIENT_DOMAINS:", err)
	_, err = publicnet.TrustedPool(c.ClientDocumentCA)
	m.Valid("ALMONER_CLIENT_DOCUMENT_CA", err)
	c.checkDevelopment(m, "ALMONER_CLIENT_DOCUMENT_CA", c.ClientDocumentCA)
	_, err = publicnet.TrustedPool(c.WebhookCA)
	m.Valid("ALMONER_WEBHOOK_CA", err)
	c.checkDevelopment(m, "ALMONER_WEBHOOK_CA", c.WebhookCA)
}

// checkMail reports mistakes in the settings of mail.
func (c *Config) checkMail(m *envconf.Checks) {
	m.Require((c.SMTPURL == "") == (c.MailFrom == ""), "ALMONER_SMTP_URL and ALMONER_MAIL_FROM must be set together")
	if c.SMTPURL == "" || c.MailFrom == "" {
		return
	}
	_, err := mail.ParseServer(c.SMTPURL)
	m.Valid("ALMONER_SMTP_URL", err)
	_, err = mail.ParseFrom(c.MailFrom)
	m.Valid("ALMONER_MAIL_FROM", err)
}

// checkSignInMethods reports mistakes in the settings of the sign-in methods.
func (c *Config) checkSignInMethods(m *envconf.Checks) {
	if c.UpstreamIssuer == "" && c.UpstreamClientID == "" && c.UpstreamClientSecret == "" {
		return
	}
	m.Require(c.UpstreamIssuer != "" && c.UpstreamClientID != "" && c.UpstreamClientSecret != "",
		"ALMONER_UPSTREAM_ISSUER, ALMONER_UPSTREAM_CLIENT_ID and ALMONER_UPSTREAM_CLIENT_SECRET must be set together")
	m.Require(c.UpstreamIssuer == "" || oidc.Allowed(c.UpstreamIssuer),
		"ALMONER_UPSTREAM_ISSUER must be an https:// URL")
}

// sendsMail reports whether the deployment sends mail. Pages show links to their senders where it does not.
func (c *Config) sendsMail() bool { return c.SMTPURL != "" }

// relyingParty returns the relying party of passkeys, or nil if users cannot sign in with them: the setting is false,
// or the pages have no host name (Web Authentication Level 3, 5.1.3: an IP address is no valid domain).
func (c *Config) relyingParty() *passkey.RelyingParty {
	party, err := passkey.NewRelyingParty(c.AppURL, cmp.Or(c.BrandName, brand.DefaultName))
	if err != nil || !c.Passkeys {
		return nil
	}
	return party
}

// offer returns the methods that the sign-in page shows.
func (c *Config) offer() ui.Offer {
	offer := ui.Offer{Passkeys: c.relyingParty() != nil}
	if c.UpstreamIssuer != "" {
		offer.Upstream = c.UpstreamName
	}
	return offer
}

func checkOrigin(text string) error {
	parsed, err := url.Parse(text)
	switch {
	case err != nil || (parsed.Scheme != "https" && parsed.Scheme != "http") || parsed.Host == "":
		return errors.New("must be a URL like https://api.example.org")
	case strings.HasSuffix(text, "/") || parsed.RawQuery != "" || parsed.Fragment != "" || parsed.User != nil:
		return errors.New("must have no trailing slash, query, fragment or user name")
	}
	return nil
}

// RetentionSettings say how many days records are kept after they have ended.
type RetentionSettings struct {
	AuditDays         int `env:"ALMONER_RETENTION_AUDIT_DAYS" envDefault:"400" doc:"Days that events of the audit log are kept: 90 or more, or 0 to keep them for ever. The events of a month are deleted together, when the last of them is that old."`
	GrantsDays        int `env:"ALMONER_RETENTION_GRANTS_DAYS" envDefault:"90" doc:"Days that grants are kept after the end of their life, which is 30 or 90 days after the consent: 2 or more, or 0 to keep them for ever."`
	TokensDays        int `env:"ALMONER_RETENTION_TOKENS_DAYS" envDefault:"90" doc:"Days that personal access tokens are kept after they have expired, even if they were revoked or replaced; 0 keeps them for ever."`
	ClientsDays       int `env:"ALMONER_RETENTION_CLIENTS_DAYS" envDefault:"400" doc:"Days that applications are kept after they were deleted, so that the audit log can name them; 0 keeps them for ever. An application that has grants is kept until they are deleted."`
	KeysDays          int `env:"ALMONER_RETENTION_KEYS_DAYS" envDefault:"120" doc:"Days that removed signing keys are kept, without their private part: 91 or more, since access tokens live up to 90 days, or 0 to keep them for ever."`
	InvitationsDays   int `env:"ALMONER_RETENTION_INVITATIONS_DAYS" envDefault:"90" doc:"Days that invitations are kept after they were answered, withdrawn or expired; 0 keeps them for ever."`
	ConnectionLogDays int `env:"ALMONER_RETENTION_CONNECTION_LOG_DAYS" envDefault:"90" doc:"Days that the connection log keeps attempts that did not lead to a grant; 0 keeps them for ever."`
}

// Check reports the settings that are out of range. envconf calls it.
func (r RetentionSettings) Check() []error {
	var m envconf.Checks
	for _, one := range []struct {
		name          string
		days, atLeast int
	}{
		{postgres.SettingAuditEvents, r.AuditDays, 90},
		{postgres.SettingGrants, r.GrantsDays, 2},
		{postgres.SettingTokens, r.TokensDays, 1},
		{postgres.SettingClients, r.ClientsDays, 1},
		{postgres.SettingKeys, r.KeysDays, 91},
		{postgres.SettingInvitations, r.InvitationsDays, 1},
		{postgres.SettingConnectionLog, r.ConnectionLogDays, 1},
	} {
		m.Require(one.days == 0 || one.days >= one.atLeast && one.days <= retention.MaxDays,
			fmt.Sprintf("%s must be 0, or between %d and %d", one.name, one.atLeast, retention.MaxDays))
	}
	return m
}

func (r RetentionSettings) periods() postgres.RetentionPeriods {
	return postgres.RetentionPeriods{
		postgres.SettingAuditEvents:   retention.Days(r.AuditDays),
		postgres.SettingGrants:        retention.Days(r.GrantsDays),
		postgres.SettingTokens:        retention.Days(r.TokensDays),
		postgres.SettingClients:       retention.Days(r.ClientsDays),
		postgres.SettingKeys:          retention.Days(r.KeysDays),
		postgres.SettingInvitations:   retention.Days(r.InvitationsDays),
		postgres.SettingConnectionLog: retention.Days(r.ConnectionLogDays),
	}
}

// adminConfig is the settings of the administrator's commands. Keys are only needed for signing keys and mails, Redis
// only to propagate revocations, the URL of the pages only for links, and the URL of the API only for connectors.
type adminConfig struct {
	DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
	RedisURL    credential.Secret `env:"ALMONER_REDIS_URL"`
	Keys        credential.Secret `env:"ALMONER_KEYS"`
	SMTPURL     credential.Secret `env:"ALMONER_SMTP_URL"`
	AppURL      string            `env:"ALMONER_APP_URL"`
	BaseURL     string            `env:"ALMONER_BASE_URL"`
	RetentionSettings
}

// Admin creates the service of the administrator's commands. The caller must call done afterwards.
func Admin(ctx context.Context, environ []string, log *slog.Logger) (service *admin.Service, done func(), err error) {
	var config adminConfig
	reading, err := envconf.Load(&config, environ)
	if err != nil {
		return nil, nil, err
	}
	reading.Warn(log)
	revoke, closeRedis, err := propagateRevocation(config.RedisURL, log)
	if err != nil {
		return nil, nil, err
	}
	store, err := postgres.Open(ctx, postgres.Only(config.DatabaseURL), pg.CommandWait)
	if err != nil {
		return nil, nil, err
	}
	store.ServeCommands()
	done = func() {
		store.Close()
		closeRedis()
	}
	ring, err := useKeys(store, config)
	if err != nil {
		done()
		return nil, nil, err
	}
	var resources []string
	if config.BaseURL != "" {
		resources = perm.Identifiers(config.BaseURL)
	}
	connections := &consent.Connections{
		Store: store,
		PropagateRevocation: func(ctx context.Context, reason grant.Reason, ended []useraccount.EndedGrant) {
			revoke(ctx, admin.Revoked(ended, reason))
		},
		Now: time.Now,
	}
	return &admin.Service{
		Store:       store,
		Connections: connections,
		Rehearsals:  rehearsal.New(rehearsal.Rehearsals{Store: store, Connections: connections, Now: time.Now}),
		Clients: &client.Registry{
			Store: store.Clients,
			PropagateRevocation: func(ctx context.Context, ended []useraccount.EndedGrant) {
				revoke(ctx, admin.Revoked(ended, grant.ClientDeleted))
			},
			Now:    time.Now,
			Random: rand.Reader,
		},
		Keyring:             ring,
		AppURL:              config.AppURL,
		Resources:           resources,
		Retention:           store.Retention(config.RetentionSettings.periods()),
		PropagateRevocation: revoke,
	}, done, nil
}

// useKeys returns the keyring and makes the store seal secrets and queue mails, which the worker of a running process
// sends. It does nothing without the keys, and queues no mail without the settings of mail.
func useKeys(store *postgres.Store, config adminConfig) (*keyring.Keyring, error) {
	if config.Keys == "" {
		return nil, nil
	}
	keys, err := seal.ParseKeys(config.Keys)
	if err != nil {
		return nil, fmt.Errorf("ALMONER_KEYS: %w", err)
	}
	if err := sealSecrets(store, keys); err != nil {
		return nil, err
	}
	if config.SMTPURL != "" {
		if err := queueMail(store, keys, time.Now); err != nil {
			return nil, err
		}
	}
	return keyring.New(store.Grants, keys)
}

// propagateRevocation returns a function that revokes ended grants in Redis until Redis fails. Postgres refuses them in
// any case. Without a URL, it does nothing. done closes the connection.
func propagateRevocation(url credential.Secret, log *slog.Logger) (
	revoke func(context.Context, []grant.Grant), done func(), err error,
) {
	if url == "" {
		return func(context.Context, []grant.Grant) {}, func() {}, nil
	}
	rdb, err := redis.Connect(credential.Fixed(url), 0)
	if err != nil {
		return nil, nil, err
	}
	grants := redis.NewGrants(rdb)
	failed := false
	revoke = func(ctx context.Context, ended []grant.Grant) {
		if failed {
			return
		}
		if err := grants.RevokeAll(ctx, ended); err != nil {
			failed = true
			log.Warn("revocations not propagated to Redis; Postgres still refuses the grants", "error", err)
		}
	}
	return revoke, func() { _ = rdb.Close() }, nil // no commands are pending
}

// migration returns the database and the command that migrates it.
func migration(ctx context.Context, environ []string, out io.Writer) (credential.Secret, migrate.Command, error) {
	var config struct {
		DatabaseURL credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty"`
	}
	_, err := envconf.Load(&config, environ)
	url := config.DatabaseURL
	return url, migrate.Command{
		Schema:      "account",
		State:       func() (migrate.State, error) { return postgres.SchemaState(ctx, url) },
		Up:          func() ([]string, error) { return postgres.Migrate(ctx, url) },
		Distribute:  func() error { return postgres.Distribute(ctx, url, out) },
		Distributed: func() (bool, error) { return migrate.IsDistributed(ctx, url.Reveal()) },
	}, err
}

// Migrate brings the account schema up to date, as the options say.
func Migrate(ctx context.Context, environ []string, options migrate.Options, out io.Writer) error {
	_, command, err := migration(ctx, environ, out)
	if err != nil {
		return err
	}
	return command.Run(options, out)
}

// FinishUpgrade completes an upgrade after the last process of the previous release has ended.
func FinishUpgrade(ctx context.Context, environ []string, out io.Writer) error {
	url, command, err := migration(ctx, environ, out)
	if err == nil {
		err = command.Check()
	}
	duplicates := 0
	if err == nil {
		duplicates, err = postgres.FinishUpgrade(ctx, url)
	}
	if err == nil && duplicates > 0 {
		_, err = fmt.Fprintf(out, "users whose address has invisible characters or is another spelling of another "+
			"user's address: %d; to list them, run authserver admin users duplicates; its --help says what to do\n",
			duplicates)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "the upgrade is finished; the previous release no longer works with this database")
	return err
}
