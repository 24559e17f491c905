package attack

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A target is a workspace that contains one of everything that an attacker could want.
type target struct {
	harness.TestWorkspace
	product *harness.Product
	person  *harness.Person // signed in

	programme, imported, form, embedKey, submission, status string
	app                                                     harness.ConfidentialApp
	connector                                               harness.Connector
	long, tokens                                            harness.Tokens // issued to the app and to the connector
	grant, personal, signIn, passkey                        string         // identifiers
	member, invitation, webhook                             string
	link                                                    string // token of the invitation's link
	// policy is the digest of the connector policy, as the policy page shows it.
	policy string
}

const site = "https://www.canal-lane.example"

func newTarget(t *testing.T, p *harness.Product) *target {
	t.Helper()
	e := &target{TestWorkspace: p.NewWorkspace(t), product: p}
	e.person = p.Person(t, e.Owner).SignedIn(t)
	api := p.In(e.Workspace, e.Token)
	text := func(answer harness.Answer, key string) string {
		value, _ := answer.Object(t)[key].(string)
		if value == "" {
			t.Fatalf("no %s:\n%s", key, answer)
		}
		return value
	}
	e.programme = text(api.JSON(t, http.MethodPost, harness.ListPath, map[string]any{"name": "Winter pantry"}), "id")
	e.imported = text(imported(t, api, "name\nSpring pantry\n"), "id")
	form := addForm(t, api, "Volunteer with us", "email", []string{site})
	e.form, e.embedKey = text(form, "id"), text(form, "embedKey")
	sent := e.submit(t, "ada@example.org").Wants(t, http.StatusAccepted)
	_, e.status, _ = strings.Cut(text(sent, "statusUrl"), "?token=")
	e.submission = text(sent, "id")
	e.app, e.connector = e.Confidential(t, "", harness.ReadProgrammes), e.Connector(t, harness.ReadProgrammes)
	e.long, e.tokens = e.app.Connect(t, e.person), e.connector.Connect(t, e.person)
	e.member = e.Member(t, harness.ReadProgrammes).ID
	invited := api.JSON(t, http.MethodPost, "/v1/account/tenants/"+e.Workspace.ID+"/invitations", map[string]any{
		"email": "ada@example.org", "permissions": []string{harness.ReadProgrammes},
	}).Wants(t, http.StatusCreated)
	e.invitation = text(invited, "id")
	e.webhook = text(api.JSON(t, http.MethodPost, "/v1/webhooks", map[string]any{
		"url": "https://hooks.example.invalid/", "types": []string{"programme.created"},
	}).Wants(t, http.StatusCreated), "id")
	_, e.link, _ = strings.Cut(text(invited, "url"), "?token=")
	e.grant = harness.GrantOf(t, e.tokens.AccessToken)
	e.personal = p.Database.Text(t, `select id::text from account.personal_access_tokens where tenant_id = $1`,
		e.Workspace.ID)
	e.signIn = p.Database.Text(t, `select id::text from account.sign_ins where user_id = $1`, e.Owner.ID)
	e.policy = e.person.Open(t, p.AppURL+"/settings/connectors?tenant="+e.Workspace.ID).WantsPage(t, http.StatusOK).
		Find(`input[name=seen]`).First().AttrOr("value", "")
	e.passkey = uuid.NewString()
	p.Database.Exec(t, `insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
			transports, backup_eligible, backed_up)
		values ($1::uuid, $2, 'Laptop', decode(md5($1::text), 'hex'), '\\x00', 0, '\\x00', '{}', false, false)`,
		e.passkey, e.Owner.ID)
	p.Database.Exec(t, `update account.sign_ins set second_factor_at = now() where id = $1`, e.signIn)
	await.True(t, "the submission is processed before the inventory is read", func() bool {
		status := api.Get(t, "/v1/engage/public/submissions/"+e.submission+"?token="+e.status)
		return status.Wants(t, http.StatusOK).Object(t)["status"] != "accepted"
	})
	return e
}

// addForm adds a form with one field, of which the type is also the name.
func addForm(t *testing.T, api harness.API, title, field string, origins []string) harness.Answer {
	t.Helper()
	return api.JSON(t, http.MethodPost, "/v1/engage/forms", map[string]any{
		"title": title, "allowedOrigins": origins,
		"fields": []map[string]any{{"name": field, "label": "About you", "type": field, "required": true}},
	}).Wants(t, http.StatusCreated)
}

// submissionToken returns the token that the public form issues.
func (e *target) submissionToken(t *testing.T) string {
	t.Helper()
	form := e.product.API().With("Origin", site).Get(t, e.publicForm()).Wants(t, http.StatusOK).Object(t)
	token, _ := form["submissionToken"].(string)
	return token
}

func (e *target) publicForm() string { return "/v1/engage/public/forms/" + e.embedKey }

func (e *target) submit(t *testing.T, email string) harness.Answer {
	t.Helper()
	return e.product.API().With("Origin", site).JSON(t, http.MethodPost, e.publicForm()+"/submissions",
		map[string]any{"submissionToken": e.submissionToken(t), "answers": map[string]any{"email": email}})
}

// inventory returns all rows of the workspace and its owner from the database, without what background jobs change
// meanwhile.
func (e *target) inventory(t *testing.T) string {
	t.Helper()
	rows := func(table, where string, without ...string) string {
		columns := strings.Join(without, ",")
		return `select '` + table + `: ' || coalesce(string_agg(
			(to_jsonb(r) - '{` + columns + `}'::text[])::text, E'\n' order by to_jsonb(r)::text), '') as t
			from ` + table + ` r where ` + where
	}
	parts := []string{
		rows("resource.programmes", "tenant_id = $1"),
		rows("resource.forms", "tenant_id = $1"),
		rows("account.oauth_clients", "tenant_id = $1"),
		rows("resource.submissions", "tenant_id = $1", "status", "finished_at", "supporter_id"),
		rows("resource.imports", "tenant_id = $1", "status", "imported", "finished_at", "taken_at"),
		rows("account.client_secrets", "client_id in (select id from account.oauth_clients where tenant_id = $1)",
			"last_used_at"),
		rows("account.grants", "tenant_id = $1", "last_used_at", "used_at"),
		rows("account.personal_access_tokens", "tenant_id = $1"),
		rows("account.memberships", "tenant_id = $1 or user_id = $2"),
		rows("account.invitations", "tenant_id = $1"),
		rows("account.passkeys", "user_id = $2", "last_used_at"),
		rows("account.sign_ins", "user_id = $2", "last_seen_at"),
		rows("account.authenticators", "user_id = $2"),
		rows("account.recovery_codes", "user_id = $2"),
		rows("account.unwanted_mails", "user_id = $2"),
		rows("account.password_resets", "user_id = $2"),
		rows("account.users", "id = $2"),
		rows("account.tenants", "id = $1"),
		rows("account.tenant_features", "tenant_id = $1"),
		rows("account.connector_policies", "tenant_id = $1"),
		rows("resource.supporters", "tenant_id = $1"),
		rows("account.webhooks", "tenant_id = $1", "position", "tried_at", "next_try_at", "failures", "failing_since",
			"claimed_until", "slow", "mail_due", "added_mail_due"),
	}
	return e.product.Database.Text(t, `select string_agg(t, E'\n') from (`+strings.Join(parts, " union all ")+`) x
		where $1::uuid is not null and $2::uuid is not null`, e.Workspace.ID, e.Owner.ID)
}

// untouched ends the test if the inventory differs from was.
func (e *target) untouched(t *testing.T, was, by string) {
	t.Helper()
	if is := e.inventory(t); is != was {
		before := map[string]bool{}
		for line := range strings.Lines(was) {
			before[line] = true
		}
		for line := range strings.Lines(is) {
			if !before[line] {
				t.Errorf("%s changed this: %s", by, harness.Redact(line))
			}
		}
		t.Fatalf("%s changed something in the victim's workspace", by)
	}
}

// The causes of server errors are for the log: the response says only that an error occurred and names the request ID
// under which the log has the cause.

// canary is the error text of the broken store: a table name, an error and a value.
const canary = "canary in account.secret_relation, value of a stranger"

// breakStore makes every insert and update of the workspace's rows in these tables fail, as on a full disk.
func breakStore(t *testing.T, p *harness.Product, e *target, tables ...string) {
	t.Helper()
	name := "fault_" + strings.ReplaceAll(e.Workspace.ID, "-", "")
	p.Database.Define(t, `create function public.`+name+`() returns trigger language plpgsql as $$ begin
		if new.tenant_id = '`+e.Workspace.ID+`' then
					raise exception '`+canary+`'
						using errcode = 'disk_full', detail = '`+canary+`', hint = '`+canary+`';
				end if; return new; end $$`)
	for _, table := range tables {
		p.Database.Define(t, `create trigger `+name+` before insert or update on `+table+`
							for each row execute function public.`+name+`()`)
	}
}

func TestStoreErrors_AreLoggedNotReturned(t *testing.T) {
	p, e := newAttack(t)
	attempt, waiting := e.connector.Begin(), e.connector.Begin()
	code, page := attempt.Code(t, e.person), e.person.Consent(t, waiting.Query)
	key, token := keyOf(t, p, e.person), e.submissionToken(t)
	breakStore(t, p, e, "resource.programmes", "resource.imports", "resource.forms", "resource.submissions",
		"account.oauth_clients", "account.grants", "account.personal_access_tokens", "account.connector_policies")
	api, settings := p.In(e.Workspace, e.Token), func(path string, values url.Values) harness.Answer {
		return e.person.Submit(t, sent(t, p, path, e.Workspace.ID, key, values)).Answer
	}
	answers := map[string]harness.Answer{
		"create": api.JSON(t, http.MethodPost, harness.ListPath, map[string]any{"name": "Pantry"}),
		"change": api.JSON(t, http.MethodPatch, harness.ListPath+"/"+e.programme, map[string]any{"name": "Pantry"}),
		"move": api.JSON(t, http.MethodPost, harness.ListPath+"/"+e.programme+"/transitions",
			map[string]any{"to": "archived"}),
		"import":   api.Send(t, http.MethodPost, harness.ListPath+"/imports", "text/csv", "name\nPantry\n"),
		"form":     api.JSON(t, http.MethodPatch, "/v1/engage/forms/"+e.form, map[string]any{"enabled": false}),
		"register": e.Register(t, harness.ConfidentialBody(harness.ReadProgrammes)),
		"submit": p.API().With("Origin", site).JSON(t, http.MethodPost, e.publicForm()+"/submissions",
			map[string]any{"submissionToken": token, "answers": map[string]any{"email": "b@example.org"}}),
		"delete":       p.As(e.Token).Send(t, http.MethodDelete, e.Clients()+"/"+e.app.ClientID, "", ""),
		"exchange":     attempt.Post(t, attempt.CodeForm(code)),
		"refresh":      e.connector.Refresh(t, e.tokens.RefreshToken),
		"revoke":       e.app.Revoke(t, e.long.AccessToken),
		"approve":      page.Press(t, "approve").Answer,
		"token":        settings("/settings/developers/tokens", fields(e)["/settings/developers/tokens"]),
		"application":  settings("/settings/developers/apps", fields(e)["/settings/developers/apps"]),
		"disconnect":   settings("/settings/apps/disconnect", url.Values{"id": {e.grant}}),
		"revoke token": settings("/settings/developers/tokens/revoke", url.Values{"id": {e.personal}}),
		"policy":       settings("/settings/connectors/policy", fields(e)["/settings/connectors/policy"]),
	}
	causes := causesInLogs(t)
	for name, answer := range answers {
		id := answer.Header.Get("X-Request-Id")
		if answer.Status < 500 {
			t.Errorf("%s succeeds although the store is broken:\n%s", name, answer)
			continue
		}
		for _, word := range []string{
			"canary", "secret_relation", "a stranger", "SQLSTATE", "ERROR:", "pgconn", "postgres", "insert into",
			"goroutine", ".go:",
		} {
			if strings.Contains(string(answer.Body), word) {
				t.Errorf("%s returns %q to the caller:\n%s", name, word, answer)
			}
		}
		if !requestID.MatchString(id) || !strings.Contains(causes[id], "canary") {
			t.Errorf("%s: the cause is not in the log under the request's id %q:\n%s", name, id, answer)
		}
		if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") &&
			!strings.Contains(string(answer.Body), id) {
			t.Errorf("%s: the page does not show the request ID", name)
		}
	}
}

// causesInLogs returns the errors that the services have logged, by request ID.
func causesInLogs(t *testing.T) map[string]string {
	t.Helper()
	logs, err := harness.ReadLogs(shared(t).LogDir())
	must(t, err)
	out := map[string]string{}
	for line := range strings.Lines(string(logs)) {
		var entry struct {
			Level     string `json:"level"`
			RequestID string `json:"request_id"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "ERROR" {
			out[entry.RequestID] += line
		}
	}
	return out
}
