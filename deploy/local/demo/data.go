package demo

import (
	"context"
	_ "embed" // for the data
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/alexedwards/argon2id"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// passwordCost returns the parameters of authserver's password hashes: 19 MiB, two passes, one lane (OWASP's minimum
// for argon2id).
func passwordCost() *argon2id.Params {
	return &argon2id.Params{Memory: 19 * 1024, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}
}

func insertAccount(ctx context.Context, tx pgx.Tx, s Seed, d Demo) error {
	batch := &pgx.Batch{}
	queueWorkspaces(batch, s, d)
	if err := queuePeople(batch, d); err != nil {
		return err
	}
	queueClients(batch, d)
	return tx.SendBatch(ctx, batch).Close()
}

func queueWorkspaces(batch *pgx.Batch, s Seed, d Demo) {
	organisations := []string{"Tideway Community Trust", "Northern Lights Charities"}
	for i, name := range organisations {
		batch.Queue("insert into account.organisations (id, name) values ($1, $2)",
			s.UUID(fmt.Sprint("organisation ", i)), name)
	}
	for _, w := range []struct {
		workspace               Workspace
		organisation            int
		programmes, provisioned bool // whether the Programmes module is enabled and provisioned
		llm                     bool
	}{
		{d.Workspaces.Main, 0, true, true, true},
		{d.Workspaces.Empty, 1, true, true, true},
		{d.Workspaces.ProgrammesDisabled, 1, false, true, true},
		{d.Workspaces.Unprovisioned, 1, true, false, true},
		{d.Workspaces.LLMDisabled, 0, true, true, false},
	} {
		batch.Queue("insert into account.tenants (id, organisation_id, name) values ($1, $2, $3)",
			w.workspace.ID, s.UUID(fmt.Sprint("organisation ", w.organisation)), w.workspace.Name)
		for _, module := range perm.Modules() {
			programmes := module == perm.ProgrammesRead.Module()
			batch.Queue(
				"insert into account.tenant_modules (tenant_id, module, enabled, provisioned) values ($1, $2, $3, $4)",
				w.workspace.ID, module, !programmes || w.programmes, !programmes || w.provisioned)
		}
		batch.Queue(
			"insert into account.tenant_features (tenant_id, feature, enabled) values ($1, 'llm_integration', $2)",
			w.workspace.ID, w.llm)
	}
}

func readerPermissions() perm.Set { return perm.NewSet(perm.ProgrammesRead) }

func registrarPermissions() perm.Set { return perm.NewSet(perm.AccountAPIAccess, perm.ProgrammesRead) }

func (b ByWorkspace[Value]) all() []Value {
	return []Value{b.Main, b.Empty, b.ProgrammesDisabled, b.Unprovisioned, b.LLMDisabled}
}

// MarkProven returns SQL that makes a user's address a proven one. In the schema of an earlier release, which has no
// such column, it does nothing.
func MarkProven(user string) string {
	return fmt.Sprintf(`do $$ begin
		if exists (select from information_schema.columns
			where table_schema = 'account' and table_name = 'users' and column_name = 'email_proven_at') then
			update account.users set email_proven_at = now(), email_proven_by = 'operator' where id = '%s';
		end if;
	end $$`, uuid.MustParse(user))
}

func queuePeople(batch *pgx.Batch, d Demo) error {
	for _, person := range []struct {
		user       User
		name       string
		may        perm.Set
		workspaces []Workspace
	}{
		{d.Users.Owner, "Oluwaseun Adeyemi", perm.FullSet(), d.Workspaces.all()},
		{d.Users.Reader, "Rhiannon Pritchard", readerPermissions(), []Workspace{d.Workspaces.Main}},
		{d.Users.Registrar, "Callum MacAskill", registrarPermissions(), []Workspace{d.Workspaces.Main}},
		{d.Users.Outsider, "Priya Raghunathan", perm.FullSet(), []Workspace{d.Workspaces.Empty}},
	} {
		hash, err := argon2id.CreateHash(person.user.Password, passwordCost())
		if err != nil {
			return err
		}
		batch.Queue("insert into account.users (id, email, name, password_hash) values ($1, $2, $3, $4)",
			person.user.ID, person.user.Email, person.name, hash)
		batch.Queue(MarkProven(person.user.ID))
		for _, workspace := range person.workspaces {
			batch.Queue("insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)",
				workspace.ID, person.user.ID, person.may.Strings())
		}
	}
	return nil
}

const insertClient = `insert into account.oauth_clients
	(id, kind, tenant_id, name, redirect_uris, required_permissions, connector_platform, resource,
	 token_endpoint_auth_method, created_by)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

func queueClients(batch *pgx.Batch, d Demo) {
	redirect, connectors := []string{RedirectURI}, connectorPermissions().Strings()
	owner, c := d.Users.Owner.ID, d.Clients
	batch.Queue(insertClient, c.Confidential.ClientID, "confidential", c.Confidential.WorkspaceID, "Trustee dashboard",
		redirect, readerPermissions().Strings(), nil, nil, "client_secret_json", owner)
	batch.Queue(insertClient, c.Connector.ClientID, "connector", c.Connector.WorkspaceID, "ChatGPT for Tideway",
		redirect, connectors, "chatgpt", c.Connector.Resource, "none", owner)
	batch.Queue(insertClient, c.MCP.ClientID, "connector", c.MCP.WorkspaceID, "Claude for Tideway", redirect,
		readerPermissions().Strings(), "claude", c.MCP.Resource, "none", owner)
	batch.Queue(insertClient, c.Service.ClientID, "service", nil, "Case work sync", []string{}, []string{}, nil, nil,
		"client_secret_basic", nil)
	for id, secret := range map[string]string{
		c.Confidential.ClientID: c.Confidential.ClientSecret,
		c.Service.ClientID:      c.Service.ClientSecret,
	} {
		batch.Queue("insert into account.client_secrets (client_id, hash) values ($1, $2)", id, credential.Hash(secret))
	}
}

// followAddress updates the demo connectors' resource, which contains the address, after `make run` moved to another
// port, and their permissions, which an earlier version stored otherwise.
func followAddress(ctx context.Context, db *pgx.Conn, d Demo) error {
	for _, connector := range []Client{d.Clients.Connector, d.Clients.MCP} {
		_, err := db.Exec(ctx, `update account.oauth_clients set resource = $2, required_permissions = $3
				where id = $1 and (resource, required_permissions) is distinct from ($2, $3)`,
			connector.ClientID, connector.Resource, strings.Fields(connector.Scope))
		if err != nil {
			return fmt.Errorf("demo data, the connectors' address: %w", err)
		}
	}
	return nil
}

const (
	tokenLife = 90 * 24 * time.Hour // the longest of the three lifetimes (spec 2.1)
	// tokenSpare excludes a token that expires within the hour from the tokens that are printed.
	tokenSpare = time.Hour
)

// A token is a personal access token that the demo must have.
type token struct {
	label     string // label in the seed; successors are numbered
	user      User
	workspace Workspace
	may       perm.Set
	value     *string // where the token is stored
}

func (d *Demo) tokens() []token {
	t, users, out := d.Workspaces, d.Users, &d.Tokens
	all := perm.FullSet()
	return []token{
		{"owner", users.Owner, t.Main, all, &out.Owner},
		{"reader", users.Reader, t.Main, readerPermissions(), &out.Reader},
		{"registrar", users.Registrar, t.Main, registrarPermissions(), &out.Registrar},
		{"owner in main", users.Owner, t.Main, all, &out.OwnerIn.Main},
		{"owner in empty", users.Owner, t.Empty, all, &out.OwnerIn.Empty},
		{"owner in programmesDisabled", users.Owner, t.ProgrammesDisabled, all, &out.OwnerIn.ProgrammesDisabled},
		{"owner in unprovisioned", users.Owner, t.Unprovisioned, all, &out.OwnerIn.Unprovisioned},
		{"owner in llmDisabled", users.Owner, t.LLMDisabled, all, &out.OwnerIn.LLMDisabled},
	}
}

func ensureTokens(ctx context.Context, db *pgx.Conn, s Seed, d *Demo, now time.Time) error {
	for _, wanted := range d.tokens() {
		value, err := ensureToken(ctx, db, s, wanted, now)
		if err != nil {
			return fmt.Errorf("demo data, the personal access token of %s: %w", wanted.label, err)
		}
		*wanted.value = value
	}
	return nil
}

// ensureToken returns the first valid token among a token and its successors, or creates the next one.
func ensureToken(ctx context.Context, db *pgx.Conn, s Seed, wanted token, now time.Time) (string, error) {
	for number := 1; ; number++ {
		id := fmt.Sprintf("token %s %d", wanted.label, number)
		secret, err := credential.PersonalAccessToken.New(s.Reader(id))
		if err != nil {
			return "", err
		}
		var good bool
		err = db.QueryRow(ctx,
			"select revoked_at is null and expires_at > $2 from account.personal_access_tokens where hash = $1",
			credential.Hash(secret.Reveal()), now.Add(tokenSpare)).Scan(&good)
		if errors.Is(err, pgx.ErrNoRows) {
			_, err = db.Exec(ctx, `insert into account.personal_access_tokens
				(id, hash, user_id, tenant_id, name, permissions, created_at, expires_at)
				values ($1, $2, $3, $4, $5, $6, $7, $8)`,
				s.UUID(id), credential.Hash(secret.Reveal()), wanted.user.ID, wanted.workspace.ID,
				"Demo: "+wanted.label, wanted.may.Strings(), now, now.Add(tokenLife))
			return secret.Reveal(), err
		}
		if err != nil {
			return "", err
		}
		if good {
			return secret.Reveal(), nil
		}
	}
}

const (
	programmeCount = 230
	day            = 24 * time.Hour
)

//go:embed catalogue.json
var catalogueJSON []byte

// catalogue is what the programmes are made of.
var catalogue = readCatalogue()

type material struct {
	Places []string
	Themes []struct{ Names, Summaries []string } // kinds of programmes; * stands for a place
}

func readCatalogue() (read material) {
	if err := json.Unmarshal(catalogueJSON, &read); err != nil {
		panic(err) // the file is part of the program
	}
	return read
}

type programme struct {
	ID               uuid.UUID
	Name, Summary    string
	Status           string
	StartsOn, EndsOn *time.Time
	Created, Updated time.Time
}

func insertProgrammes(ctx context.Context, tx pgx.Tx, s Seed, d Demo, now time.Time) error {
	workspaceID, err := uuid.Parse(d.Workspaces.Main.ID)
	if err != nil {
		return err
	}
	programmes := imagine(s, now)
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"resource", "programmes"},
		[]string{"id", "tenant_id", "name", "summary", "status", "starts_on", "ends_on", "created_at", "updated_at"},
		pgx.CopyFromSlice(len(programmes), func(i int) ([]any, error) {
			p := programmes[i]
			return []any{
				p.ID, workspaceID, p.Name, p.Summary, p.Status, p.StartsOn, p.EndsOn, p.Created, p.Updated,
			}, nil
		}))
	return err
}

// imagine makes up a charity's programmes over the three years before the day of now (UTC), oldest first. They are the
// same in all installations except for IDs and dates, whatever the time of day.
func imagine(s Seed, now time.Time) []programme {
	now = now.Truncate(day)
	random := rand.New(rand.NewPCG(1834, 2026)) //nolint:gosec // demo data, not a secret
	places, themes := catalogue.Places, catalogue.Themes
	out := make([]programme, programmeCount)
	created := now.Add(-3 * 365 * day).Truncate(time.Second)
	step := 3 * 365 * day / programmeCount
	for i := range out {
		// Some were imported together and share a creation time, which pagination must handle.
		if i%23 > 4 || i%23 == 0 {
			created = now.Add(-3*365*day + time.Duration(i)*step + time.Duration(random.Int64N(int64(step)))).
				Truncate(time.Microsecond)
		}
		theme, place := themes[i%len(themes)], places[(i*17+i/len(places))%len(places)]
		p := programme{
			ID:      s.UUID(fmt.Sprint("programme ", i)),
			Name:    strings.ReplaceAll(theme.Names[i/len(themes)%len(theme.Names)], "*", place),
			Summary: strings.ReplaceAll(theme.Summaries[random.IntN(len(theme.Summaries))], "*", place),
			Created: created,
		}
		schedule(&p, random, now)
		out[i] = p
	}
	return out
}

// schedule gives a programme consistent dates and status.
func schedule(p *programme, random *rand.Rand, now time.Time) {
	age := now.Sub(p.Created)
	starts := p.Created.Add(time.Duration(7+random.IntN(90)) * day).Truncate(day)
	ends := starts.Add(time.Duration(60+random.IntN(500)) * day)
	p.StartsOn, p.EndsOn = &starts, &ends
	openEnded := random.IntN(5) == 0
	switch {
	case starts.After(now) || (age < 60*day && random.IntN(3) > 0):
		p.Status = "draft"
		if random.IntN(3) == 0 {
			p.StartsOn, p.EndsOn = nil, nil // not planned yet
		}
	case ends.After(now) || openEnded:
		p.Status = "active"
		if openEnded {
			p.EndsOn = nil
		}
	case age > 700*day && random.IntN(3) > 0:
		p.Status = "archived"
	default:
		p.Status = "completed"
	}
	p.Updated = p.Created.Add(time.Duration(random.Int64N(int64(age)))).Truncate(time.Microsecond)
}

// AllowedOrigin is the website that may embed the demo form. Nothing needs to listen there.
const AllowedOrigin = "http://127.0.0.1:8099"

// formJSON has the fields of the demo form, as resourceapi stores them.
//
//go:embed form.json
var formJSON []byte

func insertEngage(ctx context.Context, tx pgx.Tx, s Seed, d Demo) error {
	workspaceID, err := uuid.Parse(d.Workspaces.Main.ID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
		values ($1, $2, $3, 'Volunteer with us', $4, $5, $6)`,
		s.UUID("form"), workspaceID, d.Engage.EmbedKey, formJSON, []string{d.Engage.AllowedOrigin}, d.Users.Owner.ID)
	return err
}
