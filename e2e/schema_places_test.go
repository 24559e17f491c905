package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A place says, for a table, what each list of the code does with it.
type place struct {
	nodes  string // copied, spread or first: its rows in a distributed database
	ends   string // what deletes its rows, or why they stay
	person string // what deletes or clears personal data in it, or why there is none
	reads  string // the services whose role may read it: A, R or AR
}

const (
	copied, spread, first = "copied to each node", "spread by workspace", "on the first node"

	byRetention = "retention"
	withUser    = "the deletion of the user"
	withSender  = "the erasure of a supporter"
	asRecord    = "an event stays as it was recorded, until retention"
	nothing     = "it has ids alone"
)

// places has every table. A new one is not distributed, not deleted and not erased by itself: enter it in the lists of
// the code (Distribute, retention.go, useraccounts.go, erasures.go), and then here.
var places = map[string]place{
	"account.access_requests":        {first, byRetention, withUser, "A"},
	"account.audit_events":           {first, byRetention, asRecord, "A"},
	"account.authenticators":         {first, "removed by the user", withUser, "A"},
	"account.ceremonies":             {first, byRetention, "it lasts minutes", "A"},
	"account.client_secrets":         {copied, "with the client", nothing, "A"},
	"account.connection_stops":       {spread, byRetention, nothing, "A"},
	"account.connector_policies":     {copied, "one for each workspace", nothing, "A"},
	"account.credential_networks":    {spread, byRetention, withUser, "AR"},
	"account.email_changes":          {first, byRetention, withUser, "A"},
	"account.endings":                {copied, "when it is done", nothing, "A"},
	"account.event_sequences":        {spread, "one for each workspace", nothing, ""},
	"account.events":                 {spread, byRetention, nothing, "A"},
	"account.finished_upgrades":      {first, "one for each upgrade", nothing, "A"},
	"account.grants":                 {spread, byRetention, nothing, "A"},
	"account.idempotency_keys":       {first, byRetention, withUser, "A"},
	"account.identities":             {first, "removed by the user", withUser, "A"},
	"account.invitation_messages":    {first, "when it no longer counts", "it has the hash of an address", "A"},
	"account.invitations":            {first, byRetention, withUser, "A"},
	"account.memberships":            {copied, "when it ends", nothing, "A"},
	"account.oauth_clients":          {copied, byRetention, nothing, "A"},
	"account.organisations":          {copied, "it stays", nothing, "A"},
	"account.passkeys":               {first, "removed by the user", withUser, "A"},
	"account.password_resets":        {first, byRetention, withUser, "A"},
	"account.personal_access_tokens": {copied, byRetention, "its name is the user's own, until retention", "A"},
	"account.recovery_codes":         {first, "with the authenticator", "with the authenticator", "A"},
	"account.retention_runs":         {first, "one for each kind", nothing, "A"},
	"account.sessions":               {first, byRetention, "ended with the sign-in, until retention", "A"},
	"account.sign_ins":               {first, byRetention, withUser, "A"},
	"account.signing_keys":           {copied, byRetention, nothing, "A"},
	"account.tenant_features":        {copied, "one for each feature of a workspace", nothing, "A"},
	"account.tenant_modules":         {copied, "one for each module of a workspace", nothing, "A"},
	"account.tenants":                {copied, "it stays", nothing, "A"},
	"account.token_uses":             {spread, "with the token", nothing, "A"},
	"account.unwanted_mails":         {first, "changed by the user", withUser, "A"},
	"account.usage":                  {spread, byRetention, "retention, once the user is deleted", "AR"},
	"account.usage_writers":          {first, byRetention, nothing, "AR"},
	"account.users":                  {copied, "it stays, without name and address", withUser, "A"},
	"account.webhook_deliveries":     {first, byRetention, nothing, "AR"},
	"account.webhook_keys":           {first, "one for each key", nothing, "AR"},
	"account.webhooks":               {first, "removed by its maker", nothing, "AR"},
	"resource.erasures":              {spread, byRetention, "cleared when it is done", "R"},
	"resource.forms":                 {copied, "it stays, without its texts", nothing, "R"},
	"resource.idempotency_keys":      {spread, byRetention, "it lasts a day", "R"},
	"resource.import_turns":          {first, "one for each workspace", nothing, "R"},
	"resource.imports":               {first, byRetention, "programmes are not about persons", "R"},
	"resource.list_locks":            {spread, "one for each list", nothing, "R"},
	"resource.programmes":            {spread, "it stays", "programmes are not about persons", "R"},
	"resource.retention_runs":        {first, "one for each kind", nothing, "R"},
	"resource.submissions":           {spread, byRetention, withSender, "R"},
	"resource.supporters":            {spread, byRetention, withSender, "R"},
	"resource.supporters_left":       {spread, byRetention, nothing, "R"},
}

// sources are the files of both services that have a list.
func sources(t *testing.T, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, service := range []string{"authserver", "resourceapi"} {
		for _, name := range names {
			content, err := os.ReadFile("../" + service + "/internal/store/postgres/" + name)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			all.Write(content)
		}
	}
	return all.String()
}

// F94: the lists of the code have every table.
func TestSchema_EveryTableHasItsPlace(t *testing.T) {
	t.Parallel()
	distribution := sources(t, "distribution.json")
	reference, byWorkspace := listsOf(distribution, "Reference"), listsOf(distribution, "ByWorkspace")
	retained := sources(t, "retention.go", "transactions.go", "requests.go")
	_, users, _ := strings.Cut(sources(t, "useraccounts.go"), "func (t *transaction) eraseUser(")
	erasures := sources(t, "erasures.go")
	tables := tablesWith[string](t, `concat(case when has_table_privilege('almoner_authserver', c.oid, 'select')
		then 'A' end, case when has_table_privilege('almoner_resourceapi', c.oid, 'select') then 'R' end)`)
	for table, reads := range tables {
		p, known := places[table]
		if !known {
			t.Errorf("%s is new: say in places what deletes it, and enter it in the lists of the code", table)
			continue
		}
		_, name, _ := strings.Cut(table, ".")
		for which, c := range map[string]struct{ want, has bool }{
			"Reference (Distribute)":   {p.nodes == copied, strings.Contains(reference, `"`+table+`"`)},
			"ByWorkspace (Distribute)": {p.nodes == spread, strings.Contains(byWorkspace, `"`+table+`"`)},
			"Retention (retention.go)": {p.ends == byRetention, mentions(retained, table)},
			"eraseUser (useraccounts.go)": {
				p.person == withUser, mentions(users, table) || strings.Contains(users, `"`+name+`"`),
			},
			"the erasures (erasures.go)": {p.person == withSender, mentions(erasures, table)},
		} {
			if c.want && !c.has {
				t.Errorf("%s is missing in %s", table, which)
			}
			if c.has && !c.want && strings.Contains(which, "Distribute") {
				t.Errorf("%s is in %s, but places says that it is %s", table, which, p.nodes)
			}
		}
		if reads != p.reads {
			t.Errorf("%s can be read by %q, want %q", table, reads, p.reads)
		}
	}
	for table := range places {
		if _, exists := tables[table]; !exists {
			t.Errorf("places has %s, which does not exist", table)
		}
	}
}

// tablesWith returns the tables of a new installation, each with the value of an SQL expression about c, its row in
// pg_class.
func tablesWith[T any](t *testing.T, expression string) map[string]T {
	t.Helper()
	db, err := pgx.Connect(t.Context(), testkit.NewDatabase(t).Owner)
	must(t, err)
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	rows, err := db.Query(t.Context(), `select c.oid::regclass::text, `+expression+` from pg_class c
		where c.relnamespace in ('account'::regnamespace, 'resource'::regnamespace)
			and c.relkind in ('r', 'p') and not c.relispartition`)
	must(t, err)
	all := map[string]T{}
	var table string
	var value T
	_, err = pgx.ForEachRow(rows, []any{&table, &value}, func() error {
		all[table] = value
		return nil
	})
	must(t, err)
	return all
}

// listsOf returns the source of the lists of strings that have a name.
func listsOf(source, name string) string {
	list := regexp.MustCompile(name + `": \[[^]]*\]`)
	return strings.Join(list.FindAllString(source, -1), "")
}

// mentions reports whether a source has the name of a table, not as the beginning of another one.
func mentions(source, table string) bool {
	for after := range strings.SplitSeq(source, table) {
		if after != source && (after == "" || !strings.ContainsAny(after[:1], "abcdefghijklmnopqrstuvwxyz_")) {
			return true
		}
	}
	return false
}

// keysWithoutWorkspace are the tables with tenant_id whose primary key does not contain it, each with the reason.
var keysWithoutWorkspace = map[string]string{
	"account.endings":                "a row is found by its id; every node of a distributed database has a copy",
	"account.oauth_clients":          "connectors have no workspace; every node of a distributed database has a copy",
	"account.personal_access_tokens": "tokens are found by their hash; every node of a distributed database has a copy",
}

// A distributed database needs the workspace in the primary key of a table that it distributes by workspace.
func TestSchema_KeysContainWorkspace(t *testing.T) {
	t.Parallel()
	keys := tablesWith[string](t, `case
		when not exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id') then 'none'
		when exists (select from pg_attribute a join pg_index i on i.indrelid = a.attrelid
			where a.attrelid = c.oid and a.attname = 'tenant_id' and i.indisprimary and a.attnum = any (i.indkey))
		then 'in the primary key' else 'outside' end`)
	for table, tenantID := range keys {
		if reason, listed := keysWithoutWorkspace[table]; (tenantID == "outside") != listed {
			t.Errorf("%s: tenant_id is %s; keysWithoutWorkspace says %q", table, tenantID, reason)
		}
	}
	if keys["account.grants"] != "in the primary key" || keys["resource.programmes"] != "in the primary key" {
		t.Errorf("only these tables were found: %v", keys)
	}
	for table := range keysWithoutWorkspace {
		if keys[table] == "" {
			t.Errorf("%s is listed and does not exist", table)
		}
	}
}

// A migration without a transaction is repeated as a whole when a step of it fails. If it built several indexes, one
// that does not get its lock would have the others built again, and a busy installation might never finish it.
func TestSchema_ConcurrentIndexesAreAloneInTheirFiles(t *testing.T) {
	t.Parallel()
	built := 0
	for _, service := range []string{"authserver", "resourceapi"} {
		all, err := filepath.Glob(filepath.Join("..", service, "internal/store/postgres/migrations", "*.sql"))
		must(t, err)
		for _, file := range all {
			content, err := os.ReadFile(file)
			must(t, err)
			begun := len(concurrentIndex.FindAll(content, -1))
			if built += begun; begun > 1 {
				t.Errorf("%s builds %d indexes: one for each file (package migrate)", filepath.Base(file), begun)
			}
		}
	}
	if built == 0 {
		t.Error("no migration builds an index concurrently, so the test proves nothing")
	}
}

var concurrentIndex = regexp.MustCompile(`(?i)create (unique )?index concurrently`)
