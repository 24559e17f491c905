package demo

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/alexedwards/argon2id"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must, connect = testkit.Must, testkit.Connect

func newSeed(t testing.TB) Seed {
	t.Helper()
	dir, err := os.MkdirTemp("", "almoner-seed-")
	must(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := LoadSeed(filepath.Join(dir, "seed"))
	must(t, err)
	return s
}

// marked returns a seed, and a migrated database that belongs to its installation.
func marked(t *testing.T) (Seed, *pgx.Conn) {
	t.Helper()
	s, db := newSeed(t), connect(t, testkit.NewDatabase(t).Owner)
	must(t, mark(t.Context(), db, s))
	return s, db
}

func seedDemo(t testing.TB, db *pgx.Conn, s Seed, base string, now time.Time) Demo {
	t.Helper()
	d, err := Describe(s, base, "http://localhost:8081")
	must(t, err)
	must(t, Insert(t.Context(), db, s, &d, now))
	return d
}

const base = "http://localhost:8080"

// A planted is a demo in its database.
type planted struct {
	Demo
	url string
}

// shared returns the demo of the tests that change nothing.
var shared = testkit.Once(func(t testing.TB) planted {
	s, url := newSeed(t), testkit.NewDatabase(t).Owner
	db, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = db.Close(t.Context()) }()
	must(t, mark(t.Context(), db, s))
	return planted{seedDemo(t, db, s, base, time.Now()), url}
})

func value[T any](t *testing.T, db *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var out T
	if err := db.QueryRow(t.Context(), sql, args...).Scan(&out); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return out
}

func execute(t *testing.T, db *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestPlant_TokensHaveContractPermissions(t *testing.T) {
	t.Parallel()
	d, db := shared(t).Demo, connect(t, shared(t).url)
	own, registers := d.Tokens.OwnerIn, perm.NewSet(perm.AccountAPIAccess, perm.ProgrammesRead)
	for _, c := range []struct {
		name, token, workspace      string
		may                         perm.Set
		enabled, provisioned, llmOn bool
	}{
		{"owner", d.Tokens.Owner, d.Workspaces.Main.ID, perm.FullSet(), true, true, true},
		{"reader", d.Tokens.Reader, d.Workspaces.Main.ID, perm.NewSet(perm.ProgrammesRead), true, true, true},
		{"registrar", d.Tokens.Registrar, d.Workspaces.Main.ID, registers, true, true, true},
		{"main", own.Main, d.Workspaces.Main.ID, perm.FullSet(), true, true, true},
		{"empty", own.Empty, d.Workspaces.Empty.ID, perm.FullSet(), true, true, true},
		{"disabled", own.ProgrammesDisabled, d.Workspaces.ProgrammesDisabled.ID, perm.FullSet(), false, true, true},
		{"unprovisioned", own.Unprovisioned, d.Workspaces.Unprovisioned.ID, perm.FullSet(), true, false, true},
		{"llmDisabled", own.LLMDisabled, d.Workspaces.LLMDisabled.ID, perm.FullSet(), true, true, false},
	} {
		query := standing.Query{PATHash: credential.Hash(c.token), Module: "programmes"}
		got, err := standing.Read(t.Context(), db, query)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got.CredentialWorkspace.String() != c.workspace || got.Effective().Scope() != c.may.Scope() ||
			got.ModuleEnabled != c.enabled || got.ModuleProvisioned != c.provisioned || got.LLMIntegration != c.llmOn {
			t.Errorf("%s: %+v", c.name, got)
		}
		if !credential.PersonalAccessToken.Matches(c.token) {
			t.Errorf("%s: not formatted like a token", c.name)
		}
	}
	if d.Tokens.Owner == d.Tokens.OwnerIn.Main {
		t.Error("the owner's two tokens for main are the same, so revoking one would revoke both")
	}
}

func TestPlant_UsersCanSignIn(t *testing.T) {
	t.Parallel()
	d, db := shared(t).Demo, connect(t, shared(t).url)
	for _, user := range []User{d.Users.Owner, d.Users.Reader, d.Users.Registrar, d.Users.Outsider} {
		hash := value[string](t, db, "select password_hash from account.users where email = $1 and id = $2", user.Email,
			user.ID)
		if match, params, err := argon2id.CheckHash(user.Password, hash); !match || err != nil ||
			params.Memory != 19*1024 {
			t.Errorf("%s: %v, %v", user.Email, match, err)
		}
	}
	workspaces := value[[]uuid.UUID](t, db, "select array_agg(tenant_id) from account.memberships where user_id = $1",
		d.Users.Outsider.ID)
	if len(workspaces) != 1 || workspaces[0].String() != d.Workspaces.Empty.ID {
		t.Errorf("the outsider is a member of %v", workspaces)
	}
}

func TestPlant_SecondRunKeepsUserChanges(t *testing.T) {
	t.Parallel()
	s, db := marked(t)
	first := seedDemo(t, db, s, base, time.Now())
	execute(t, db, "update account.users set name = 'Changed' where id = $1", first.Users.Owner.ID)
	execute(t, db, "delete from account.memberships where user_id = $1", first.Users.Reader.ID)
	execute(t, db, "delete from resource.programmes where id = $1", s.UUID("programme 7"))
	execute(t, db,
		"insert into resource.programmes (id, tenant_id, name, status) values (gen_random_uuid(), $1, 'Mine', 'draft')",
		first.Workspaces.Main.ID)

	second := seedDemo(t, db, s, base, time.Now())
	if first != second {
		t.Error("the second start describes another demo")
	}
	name := value[string](t, db, "select name from account.users where id = $1", first.Users.Owner.ID)
	if name != "Changed" {
		t.Errorf("the owner's name is %s again", name)
	}
	memberships := "select count(*) from account.memberships where user_id = $1"
	if n := value[int](t, db, memberships, first.Users.Reader.ID); n != 0 {
		t.Error("a deleted membership is back")
	}
	if n := value[int](t, db, "select count(*) from resource.programmes where id = $1", s.UUID("programme 7")); n != 0 {
		t.Error("a deleted programme is back")
	}
	if n := value[int](t, db, "select count(*) from resource.programmes where name = 'Mine'"); n != 1 {
		t.Error("the user's programme is gone")
	}
}

func TestPlant_EndedTokenGetsASuccessor(t *testing.T) {
	t.Parallel()
	s, db := marked(t)
	now := time.Now()
	first := seedDemo(t, db, s, base, now)
	execute(t, db, "update account.personal_access_tokens set revoked_at = now() where hash = $1",
		credential.Hash(first.Tokens.Reader))

	second := seedDemo(t, db, s, base, now)
	if second.Tokens.Reader == first.Tokens.Reader || second.Tokens.Owner != first.Tokens.Owner {
		t.Error("only the revoked token should have a successor")
	}
	revoked := value[bool](t, db, "select revoked_at is not null from account.personal_access_tokens where hash = $1",
		credential.Hash(first.Tokens.Reader))
	if !revoked {
		t.Error("a revoked token is valid again")
	}
	later := seedDemo(t, db, s, base, now.Add(tokenLife))
	if later.Tokens.Owner == first.Tokens.Owner || later.Tokens.Reader == second.Tokens.Reader {
		t.Error("an expired token is described")
	}
	if again := seedDemo(t, db, s, base, now.Add(tokenLife)); again != later {
		t.Error("the next start replaces a successor")
	}
}

func TestPlant_ConnectorsFollowThePort(t *testing.T) {
	t.Parallel()
	s, db := marked(t)
	seedDemo(t, db, s, base, time.Now())
	d := seedDemo(t, db, s, "http://localhost:9000", time.Now())
	for _, c := range []Client{d.Clients.Connector, d.Clients.MCP} {
		got := value[string](t, db, "select resource from account.oauth_clients where id = $1", c.ClientID)
		if got != c.Resource {
			t.Errorf("registered for %s, described for %s", got, c.Resource)
		}
	}
}

func TestClaim_RefusesForeignDatabase(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	foreign := testkit.NewDatabase(t) // migrated, perhaps in use, and not ours
	if err := Claim(t.Context(), connect(t, foreign.Owner), s); !errors.Is(err, ErrForeign) {
		t.Errorf("a database with tables: %v", err)
	}
	n := value[int](t, connect(t, foreign.Owner), "select count(*) from pg_namespace where nspname = 'demo'")
	if n != 0 {
		t.Error("Claim has written to a refused database")
	}

	empty := emptyDatabase(t, foreign)
	for range 2 { // the second time it is recognised
		must(t, Claim(t.Context(), connect(t, empty), s))
	}
	if err := Claim(t.Context(), connect(t, empty), newSeed(t)); !errors.Is(err, ErrForeign) {
		t.Errorf("the demo of another seed: %v", err)
	}
}

// emptyDatabase empties a database in place, which the owner of its schemas may do.
func emptyDatabase(t *testing.T, db testkit.Database) string {
	t.Helper()
	execute(t, connect(t, db.Owner), "drop schema account, account_jobs, resource cascade")
	execute(t, connect(t, db.Superuser), `do $$ declare name text; begin
		for name in select tablename from pg_tables where schemaname = 'public' loop
					execute format('drop table public.%I', name);
				end loop;
	end $$`)
	return db.Owner
}

func TestImagine_ProgrammesAreVaried(t *testing.T) {
	t.Parallel()
	now := time.Now()
	names, moments, states := map[string]bool{}, map[time.Time]int{}, map[string]int{}
	for _, p := range imagine(newSeed(t), now) {
		names[p.Name] = true
		moments[p.Created]++
		states[p.Status]++
		if p.Created.After(now) || p.Updated.Before(p.Created) || p.Updated.After(now) || p.Summary == "" {
			t.Errorf("impossible: %+v", p)
		}
		if p.EndsOn != nil && p.EndsOn.Before(*p.StartsOn) {
			t.Errorf("ends before it starts: %+v", p)
		}
		if p.Status == "completed" && (p.EndsOn == nil || p.EndsOn.After(now)) {
			t.Errorf("completed before its end: %+v", p)
		}
	}
	if len(names) != programmeCount {
		t.Errorf("%d different names for %d programmes", len(names), programmeCount)
	}
	for _, status := range []string{"draft", "active", "completed", "archived"} {
		if states[status] < 5 {
			t.Errorf("%s: %d", status, states[status])
		}
	}
	if len(moments) == programmeCount || len(moments) < programmeCount/2 {
		t.Errorf("%d different times: some should be shared, most not", len(moments))
	}
}

func TestWriteFile_HasContractKeys(t *testing.T) {
	t.Parallel()
	d := shared(t).Demo
	d.Mailbox = &Mailbox{URL: "http://127.0.0.1:1/"} // as the stack of make run sets it
	path := filepath.Join(t.TempDir(), "demo.json")
	must(t, d.WriteFile(path))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	content, err := os.ReadFile(path)
	must(t, err)
	var keys struct {
		BaseURL, AppURL, Resource string
		Workspaces                map[string]map[string]string `json:"tenants"`
		Users                     map[string]map[string]string
		PersonalAccessTokens      struct {
			Owner, Reader, Registrar string
			OwnerIn                  map[string]string
		}
		Clients map[string]map[string]string
		Engage  map[string]string
		Mailbox map[string]string
	}
	must(t, json.Unmarshal(content, &keys))
	check := func(what string, got map[string]string, want ...string) {
		t.Helper()
		for _, key := range want {
			if got[key] == "" {
				t.Errorf("%s has no %s", what, key)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s has %d keys, want %v", what, len(got), want)
		}
	}
	for _, name := range []string{"main", "empty", "programmesDisabled", "unprovisioned", "llmDisabled"} {
		check("workspace "+name, keys.Workspaces[name], "id", "name")
	}
	for _, name := range []string{"owner", "reader", "registrar", "outsider"} {
		check("user "+name, keys.Users[name], "id", "email", "password")
	}
	check("mailbox", keys.Mailbox, "url")
	check("engage", keys.Engage, "embedKey", "allowedOrigin")
	check("ownerIn", keys.PersonalAccessTokens.OwnerIn, "main", "empty", "programmesDisabled", "unprovisioned",
		"llmDisabled")
	check("confidential", keys.Clients["confidential"], "clientId", "clientSecret", "redirectUri", "tenantId")
	check("connector", keys.Clients["connector"], "clientId", "redirectUri", "tenantId", "resource", "scope")
	check("mcp", keys.Clients["mcp"], "clientId", "redirectUri", "tenantId", "resource", "scope")
	check("service", keys.Clients["service"], "clientId", "clientSecret")
	if keys.Clients["mcp"]["resource"] != base+"/mcp" || keys.Resource != base+"/v1" ||
		keys.Clients["connector"]["resource"] != base+"/v1" {
		t.Error("a resource is wrong")
	}
}

// TestImagine_SameAtAllTimesOfDay checks that names and status do not depend on when the demo is created.
func TestImagine_SameAtAllTimesOfDay(t *testing.T) {
	t.Parallel()
	s, midnight := newSeed(t), time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	want := imagine(s, midnight)
	for hours := range 48 {
		for i, p := range imagine(s, midnight.Add(time.Duration(hours)*time.Hour+time.Minute)) {
			if p.Name != want[i].Name || p.Status != want[i].Status {
				t.Fatalf("after %d hours, programme %d is %s, %s; want %s, %s", hours, i, p.Name, p.Status,
					want[i].Name, want[i].Status)
			}
		}
	}
}

func TestLoadSeed_SecretsDependOnTheFile(t *testing.T) {
	dir := t.TempDir()
	load := func(name string) Seed {
		s, err := LoadSeed(filepath.Join(dir, name))
		must(t, err)
		return s
	}
	values := func(s Seed) map[string]string {
		return map[string]string{
			"fingerprint": s.Fingerprint(), "key": s.Key("a"), "another key": s.Key("b"), "hex": s.Hex("a"),
			"password": s.Password("a"), "uuid": s.UUID("a").String(), "another uuid": s.UUID("b").String(),
		}
	}
	first, second, other := values(load("seed")), values(load("seed")), values(load("other"))
	if !regexp.MustCompile(`^[a-z0-9]{5}(-[a-z0-9]{5}){3}$`).MatchString(first["password"]) {
		t.Error("the password has another form")
	}
	seen := map[string]string{}
	for name, value := range first {
		if second[name] != value || other[name] == value {
			t.Errorf("%s: the same at the second load: %v, different in another file: %v", name, second[name] == value,
				other[name] != value)
		}
		if before, ok := seen[value]; ok {
			t.Errorf("%s equals %s", name, before)
		}
		seen[value] = name
	}
}

func TestLoadSeed_FileIsPrivateAndDamagedOneIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	if _, err := LoadSeed(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	must(t, os.WriteFile(path, []byte("short\n"), 0o600))
	if _, err := LoadSeed(path); err == nil {
		t.Error("a damaged seed is accepted")
	}
}
