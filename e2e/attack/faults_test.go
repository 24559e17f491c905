package attack

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

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
		p.Database.Define(
			t,
			`create trigger `+name+` before insert or update on `+table+`
							for each row execute function public.`+name+`()`,
		)
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
	if err != nil {
		t.Fatal(err)
	}
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
