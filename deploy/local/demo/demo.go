// Package demo creates the demo data of `make run`.
//
// It consists of five workspaces, four users, four applications, 230 programmes and a public form, as section 8 of the
// contract lists them. The types mirror .almoner/demo.json. Their values are derived from the installation's seed, so
// they are the same at every start.
package demo

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// RedirectURI is the redirect URI of the demo applications. Nothing needs to listen there.
const RedirectURI = "http://127.0.0.1:8090/callback"

// A Demo is the content of demo.json.
type Demo struct {
	BaseURL    string                 `json:"baseUrl"`
	AppURL     string                 `json:"appUrl"`
	Resource   string                 `json:"resource"` // the REST API's identifier: {base_url}/v1
	Workspaces ByWorkspace[Workspace] `json:"tenants"`
	Users      Users                  `json:"users"`
	Tokens     Tokens                 `json:"personalAccessTokens"`
	Clients    Clients                `json:"clients"`
	Engage     Engage                 `json:"engage"`
	Mailbox    *Mailbox               `json:"mailbox,omitempty"` // set by the stack
}

// A Mailbox gets the mails of the deployment.
type Mailbox struct {
	URL string `json:"url"` // answers the mails as JSON, the newest first; ?to= selects those to one address
}

// ByWorkspace has a value for each of the demo workspaces, by their purpose.
type ByWorkspace[Value any] struct {
	Main               Value `json:"main"`
	Empty              Value `json:"empty"`
	ProgrammesDisabled Value `json:"programmesDisabled"`
	Unprovisioned      Value `json:"unprovisioned"`
	LLMDisabled        Value `json:"llmDisabled"`
}

// A Workspace is a demo workspace.
type Workspace struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Users are the demo users, by their role in main.
type Users struct {
	Owner     User `json:"owner"`
	Reader    User `json:"reader"`
	Registrar User `json:"registrar"`
	Outsider  User `json:"outsider"`
}

// A User can sign in with e-mail address and password.
type User struct {
	ID       string `json:"id"`
	Email    string `json:"email"`
	Password string `json:"password"`
}

// Tokens are personal access tokens; the first three are for main.
type Tokens struct {
	Owner     string              `json:"owner"`
	Reader    string              `json:"reader"`
	Registrar string              `json:"registrar"`
	OwnerIn   ByWorkspace[string] `json:"ownerIn"` // tokens of the owner
}

// Clients are the applications. All except the service belong to main.
type Clients struct {
	Confidential Client `json:"confidential"`
	Connector    Client `json:"connector"`
	MCP          Client `json:"mcp"`
	Service      Client `json:"service"` // may introspect tokens
}

// A Client is an application. A connector, a public client with PKCE, has a resource and a scope instead of a secret.
type Client struct {
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret,omitempty"`
	RedirectURI  string `json:"redirectUri,omitempty"`
	WorkspaceID  string `json:"tenantId,omitempty"`
	Resource     string `json:"resource,omitempty"`
	Scope        string `json:"scope,omitempty"`
}

// Engage is the public form of main.
type Engage struct {
	EmbedKey      string `json:"embedKey"`
	AllowedOrigin string `json:"allowedOrigin"`
}

// Describe returns the demo of an installation without the current tokens, which only its database knows.
func Describe(s Seed, baseURL, appURL string) (Demo, error) {
	workspace := func(key, name string) Workspace { return Workspace{ID: s.UUID("tenant " + key).String(), Name: name} }
	user := func(key string) User {
		return User{ID: s.UUID("user " + key).String(), Email: key + "@demo.almoner.example", Password: s.Password(key)}
	}
	d := Demo{
		BaseURL:  baseURL,
		AppURL:   appURL,
		Resource: baseURL + "/v1",
		Workspaces: ByWorkspace[Workspace]{
			Main:               workspace("main", "Tideway Community Trust"),
			Empty:              workspace("empty", "Fellside Young Carers"),
			ProgrammesDisabled: workspace("programmesDisabled", "Brook Street Advice"),
			Unprovisioned:      workspace("unprovisioned", "Friends of Lantern Hospice"),
			LLMDisabled:        workspace("llmDisabled", "Quayside Debt Support"),
		},
		Users: Users{
			Owner:     user("owner"),
			Reader:    user("reader"),
			Registrar: user("registrar"),
			Outsider:  user("outsider"),
		},
	}
	client := func(key, resource, scope string) Client {
		return Client{
			ClientID:    s.UUID("client " + key).String(),
			RedirectURI: RedirectURI,
			WorkspaceID: d.Workspaces.Main.ID,
			Resource:    resource,
			Scope:       scope,
		}
	}
	d.Clients = Clients{
		Confidential: client("confidential", "", ""),
		Connector:    client("connector", baseURL+"/v1", connectorPermissions().Scope()),
		MCP:          client("mcp", baseURL+"/mcp", readerPermissions().Scope()),
		Service:      Client{ClientID: s.UUID("client service").String()},
	}
	for key, c := range map[string]*Client{"confidential": &d.Clients.Confidential, "service": &d.Clients.Service} {
		secret, err := credential.ClientSecret.New(s.Reader("client secret " + key))
		if err != nil {
			return Demo{}, err
		}
		c.ClientSecret = secret.Reveal()
	}
	embedKey, err := credential.EmbedKey.New(s.Reader("embed key"))
	d.Engage = Engage{EmbedKey: embedKey.Reveal(), AllowedOrigin: AllowedOrigin}
	return d, err
}

func connectorPermissions() perm.Set { return perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite) }

// WriteFile writes demo.json atomically and readable only by its owner, since it contains passwords.
func (d Demo) WriteFile(path string) error {
	content, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return localstore.WriteWhole(path, string(content)+"\n")
}

// Insert writes the demo data, as the owner, to a database that Claim has accepted and the services have migrated, and
// adds the current tokens to d. A second call only replaces demo tokens that expired or were revoked, and updates the
// connectors to the installation's port.
func Insert(ctx context.Context, db *pgx.Conn, s Seed, d *Demo, now time.Time) error {
	if err := once(ctx, db, "account", func(tx pgx.Tx) error { return insertAccount(ctx, tx, s, *d) }); err != nil {
		return err
	}
	err := once(ctx, db, "programmes", func(tx pgx.Tx) error { return insertProgrammes(ctx, tx, s, *d, now) })
	if err != nil {
		return err
	}
	if err := once(ctx, db, "engage", func(tx pgx.Tx) error { return insertEngage(ctx, tx, s, *d) }); err != nil {
		return err
	}
	if err := followAddress(ctx, db, *d); err != nil {
		return err
	}
	return ensureTokens(ctx, db, s, d, now)
}

// ErrForeign means that a database holds other data than our demo, so nothing may be written to it.
var ErrForeign = errors.New("demo data is not written to it")

// Claim marks an empty database as the demo of this installation, or recognises its mark. It precedes the migrations,
// so that an interrupted first start can be continued. Any other database is ErrForeign.
func Claim(ctx context.Context, db *pgx.Conn, s Seed) error {
	var marked bool
	if err := db.QueryRow(ctx, "select to_regclass('demo.installation') is not null").Scan(&marked); err != nil {
		return fmt.Errorf("inspect the database: %w", err)
	}
	if !marked {
		return claimEmpty(ctx, db, s)
	}
	var fingerprint string
	if err := db.QueryRow(ctx, "select fingerprint from demo.installation").Scan(&fingerprint); err != nil {
		return fmt.Errorf("inspect the database: %w", err)
	}
	if fingerprint != s.Fingerprint() {
		return fmt.Errorf(
			"the database %s holds the demo of another .almoner directory, whose secrets are unknown here: bring "+
				"its seed file back, or name an empty database: %w",
			db.Config().Database, ErrForeign)
	}
	return nil
}

func claimEmpty(ctx context.Context, db *pgx.Conn, s Seed) error {
	// Objects of an extension, such as pg_stat_statements, are no data.
	var found string
	err := db.QueryRow(ctx, `
		select n.nspname || '.' || c.relname
		from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
		  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname not like 'pg\_toast%'
		  and not exists (
		    select from pg_depend d
		    where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
		limit 1`).Scan(&found)
	if err == nil {
		return fmt.Errorf(
			"the database %s is neither empty nor marked as Almoner's demo (it contains %s, for example): %w",
			db.Config().Database, found, ErrForeign)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("inspect the database: %w", err)
	}
	return mark(ctx, db, s)
}

func mark(ctx context.Context, db *pgx.Conn, s Seed) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, statement := range []string{
			"create schema demo",
			"create table demo.installation (fingerprint text not null, made_at timestamptz not null default now())",
			"create table demo.parts (name text primary key, made_at timestamptz not null default now())",
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("mark the database as a demo: %w", err)
			}
		}
		_, err := tx.Exec(ctx, "insert into demo.installation (fingerprint) values ($1)", s.Fingerprint())
		return err
	})
}

// once creates a part of the demo unless it was created before, so that the user's changes and deletions stay.
func once(ctx context.Context, db *pgx.Conn, part string, put func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "insert into demo.parts (name) values ($1) on conflict do nothing", part)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return put(tx)
	})
	if err != nil {
		return fmt.Errorf("demo data, %s: %w", part, err)
	}
	return nil
}

// seedLength is the length of a seed in bytes.
const seedLength = 32

// A Seed derives an installation's secrets (HKDF-SHA256, RFC 5869), with one label for each: keys, passwords, demo
// tokens and IDs. So a second start finds the same values without storing them elsewhere, and after removing the file
// the next installation shares nothing with the former one.
type Seed struct{ secret [seedLength]byte }

// LoadSeed reads the seed from the file, which the first call creates.
func LoadSeed(path string) (Seed, error) {
	var s Seed
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		_, _ = rand.Read(s.secret[:]) // never fails (crypto/rand)
		// Atomically: data encrypted under half a seed would be lost.
		return s, localstore.WriteWhole(path, base64.RawURLEncoding.EncodeToString(s.secret[:])+"\n")
	}
	if err != nil {
		return s, fmt.Errorf("read the seed: %w", err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(string(content)))
	if err != nil || len(raw) != seedLength {
		return s, fmt.Errorf("%s is not a seed of 32 bytes in base64url: restore the file, or remove it to start over",
			path)
	}
	copy(s.secret[:], raw)
	return s, nil
}

func (s Seed) derive(label string, size int) []byte {
	out, err := hkdf.Key(sha256.New, s.secret[:], nil, "almoner local "+label, size)
	if err != nil {
		panic(err) // only for more than 8160 bytes; every size here is a smaller constant
	}
	return out
}

// Fingerprint returns a name of the installation that reveals no secret.
func (s Seed) Fingerprint() string { return hex.EncodeToString(s.derive("fingerprint", 8)) }

// Key returns a key of 32 bytes in base64url, as ALMONER_KEYS expects it.
func (s Seed) Key(label string) string {
	return base64.RawURLEncoding.EncodeToString(s.derive("key "+label, 32))
}

// Hex returns a secret of 128 bits that needs no quoting.
func (s Seed) Hex(label string) string { return hex.EncodeToString(s.derive("hex "+label, 16)) }

// Password returns a password of 100 bits that is easy to read and type: four groups of five letters and digits.
func (s Seed) Password(label string) string {
	const letters = "abcdefghjkmnpqrstuvwxyz023456789" // 32 characters that are hard to confuse
	var out strings.Builder
	for i, b := range s.derive("password "+label, 20) {
		if i > 0 && i%5 == 0 {
			out.WriteByte('-')
		}
		out.WriteByte(letters[b%32])
	}
	return out.String()
}

// UUID returns an identifier.
func (s Seed) UUID(label string) uuid.UUID {
	id := uuid.UUID(s.derive("uuid "+label, 16))
	id[6] = id[6]&0x0f | 0x80 // version 8: custom (RFC 9562, section 5.8)
	id[8] = id[8]&0x3f | 0x80
	return id
}

// Reader returns a source of randomness for creating credentials.
func (s Seed) Reader(label string) io.Reader {
	return bytes.NewReader(s.derive("reader "+label, 4096))
}
