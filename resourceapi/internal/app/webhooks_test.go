package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const webhooksPath = "/v1/webhooks"

type webhookRecord struct {
	ID             string
	URL            string
	Types          []string
	Enabled        bool
	DisabledReason string
	CreatedAt      time.Time
	Secret         string
}

func everyPermission() (all []perm.Permission) {
	for _, entry := range perm.All() {
		all = append(all, entry.ID)
	}
	return all
}

// developer creates a workspace and returns the headers of a member who holds all permissions.
func (s *service) developer() header {
	s.t.Helper()
	return s.newHolder(everyPermission()...)
}

// newDeveloper is newService with the headers of developer.
func newDeveloper(t *testing.T) (*service, header) {
	s := newService(t)
	return s, s.developer()
}

func newWebhook(address string, types ...string) string {
	content, _ := json.Marshal(map[string]any{"url": address, "types": types})
	return string(content)
}

func (s *service) addWebhook(h header, address string, types ...string) webhookRecord {
	s.t.Helper()
	a := s.do("POST", webhooksPath, h, newWebhook(address, types...)).wants(s.t, http.StatusCreated)
	return decoded[webhookRecord](s.t, a)
}

func TestWebhooks_AddReadAndDelete(t *testing.T) {
	s, h := newDeveloper(t)
	a := s.do("POST", webhooksPath, h, newWebhook(address+"a?key=1", "programme.created", "form.updated"))
	made := decoded[webhookRecord](t, a)
	a.wants(t, http.StatusCreated, `"secret":"whsec_`).header(t, "Location", base+made.path())
	if made.URL != address+"a?key=1" || !made.Enabled || made.CreatedAt.IsZero() ||
		!slices.Equal(made.Types, []string{"programme.created", "form.updated"}) {
		t.Fatal(a.Body)
	}
	second := s.addWebhook(h, address+"b", webhook.EventTypes()...)
	for _, path := range []string{webhooksPath, made.path()} {
		s.get(path, h).wants(t, http.StatusOK, made.ID).lacks(t, "ecret")
	}
	page := pageOf[webhookRecord](s, webhooksPath+"?limit=1&fields=id", h)
	if page.Data[0].ID != second.ID || page.Data[0].URL != "" || page.Meta.NextCursor == "" {
		t.Errorf("%+v", page)
	}
	page = pageOf[webhookRecord](s, webhooksPath+"?limit=1&cursor="+page.Meta.NextCursor, h)
	if page.Data[0].ID != made.ID {
		t.Errorf("%+v", page)
	}
	s.do("DELETE", made.path(), h, "").wants(t, http.StatusNoContent).is(t, "")
	s.do("DELETE", made.path(), h, "").refuses(t, http.StatusNotFound, "NOT_FOUND")
	s.get(made.path(), h).refuses(t, http.StatusNotFound, "NOT_FOUND")
	s.Wants(2, `select count(*) from account.audit_events where subject = $1
		and action in ('webhook.added', 'webhook.deleted') and detail = '{"host": "hooks.example.invalid"}'`,
		"webhook:"+made.ID)
}

func TestWebhooks_RefuseWhatCallerMayNotRead(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.AccountAPIAccess, perm.ProgrammesRead)
	h := s.holding(workspaceID, user, perm.AccountAPIAccess, perm.ProgrammesRead)
	narrow := s.holding(workspaceID, user, perm.AccountAPIAccess)
	s.addWebhook(h, address, "programme.created", "connection.ended")
	for _, c := range map[string]struct {
		as   header
		body string
	}{
		"a type that the user may not read":         {h, newWebhook(address, "programme.created", "form.created")},
		"a type that the credential may not read":   {narrow, newWebhook(address, "programme.created")},
		"the same, before the mistakes in the rest": {narrow, newWebhook("http://localhost", "programme.created")},
	} {
		s.do("POST", webhooksPath, c.as, c.body).expect(t, 403, "FORBIDDEN", "")
	}
}

func TestWebhooks_RefuseInvalid(t *testing.T) {
	s, h := newDeveloper(t)
	const types = `"types":["programme.created"]`
	for body, field := range map[string]string{
		`{` + types + `}`:                                                                       "url",
		`{"url":null,` + types + `}`:                                                            "url",
		`{"url":["https://a.example.invalid"],` + types + `}`:                                   "url",
		newWebhook("https://127.0.0.1/", "programme.created"):                                   "url",
		`{"url":"https://a.example.invalid/"}`:                                                  "types",
		`{"url":"https://a.example.invalid/","types":null}`:                                     "types",
		`{"url":"https://a.example.invalid/","types":"programme.created"}`:                      "types",
		`{"url":"https://a.example.invalid/","types":[1]}`:                                      "types",
		`{"url":"https://a.example.invalid/","types":[null]}`:                                   "types",
		newWebhook("https://a.example.invalid/", "programme.created", "programme.created"):      "types",
		`{"url":"https://a.example.invalid/",` + types + `,"secret":"whsec_x"}`:                 "secret",
		`{"url":"https://a.example.invalid/",` + types + `,"Url":"https://b.example.invalid/"}`: "Url",
		`{"url":"https://a.example.invalid/","url":"https://a.example.invalid/",` + types + `}`: "",
		`[]`: "",
	} {
		a := s.do("POST", webhooksPath, h, body)
		a.expect(t, 400, "VALIDATION_ERROR", "").has(t, `"`+field)
	}
	made := s.addWebhook(h, "https://a.example.invalid/", "programme.created")
	for _, body := range []string{
		`{}`, `{"enabled":"no"}`, `{"enabled":null}`, `{"enabled":true,"url":"https://b.example.invalid"}`,
	} {
		s.do("PATCH", made.path(), h, body).refuses(t, 400, "VALIDATION_ERROR")
	}
	s.wantsRows(1, "account.webhooks", "")
}

func TestWebhooks_LimitPerWorkspace(t *testing.T) {
	s, h := newDeveloper(t)
	other := s.developer()
	for i := range 20 {
		s.addWebhook(h, fmt.Sprint(address, i), "programme.created")
	}
	s.do("POST", webhooksPath, h, newWebhook(address+"21", "form.created")).refuses(t, 409, "CONFLICT")
	s.addWebhook(other, address, "programme.created")
}

func TestWebhooks_BelongToTheirWorkspace(t *testing.T) {
	s, h := newDeveloper(t)
	other := s.developer()
	made := s.addWebhook(h, address, "programme.created")
	test := decoded[struct{ ID string }](t, s.do("POST", made.path()+"/test", h, ""))
	resend := "/deliveries/" + test.ID + "/resend"
	for _, c := range [][2]string{
		{"GET", ""}, {"PATCH", ""}, {"DELETE", ""}, {"POST", "/test"}, {"GET", "/deliveries"}, {"POST", resend},
	} {
		s.do(c[0], made.path()+c[1], other, `{"enabled":false}`).expect(t, 404, "NOT_FOUND", "")
	}
	s.get(webhooksPath, other).lacks(t, made.ID)
	mine := s.addWebhook(other, address, "programme.created")
	s.do("POST", mine.path()+resend, other, "").refuses(t, 404, "NOT_FOUND")
}

// A stored answer is repeated to a caller who may still read the events, and a secret to its credential alone. What is
// stored contains no readable secret.
func TestWebhooks_RepeatNeedsPermissionAndForSecretsTheCredential(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.AccountAPIAccess, perm.ProgrammesRead)
	token := func(permissions ...perm.Permission) header {
		return s.holding(workspaceID, user, permissions...).with("Idempotency-Key", "once")
	}
	mine := token(perm.AccountAPIAccess, perm.ProgrammesRead)
	weaker, other := token(perm.AccountAPIAccess), token(perm.AccountAPIAccess, perm.ProgrammesRead)
	body := newWebhook(address, "programme.created")
	first := s.do("POST", webhooksPath, mine, body).wants(t, 201).header(t, "Idempotency-Replayed", "")
	path := decoded[webhookRecord](t, first).path()
	for _, c := range []struct {
		method, path, body string
		first              answer
		secret             bool
	}{
		{"POST", webhooksPath, body, first, true},
		{"POST", path + "/secret", "{}", s.do("POST", path+"/secret", mine, "{}"), true},
		{"PATCH", path, `{"enabled":true}`, s.do("PATCH", path, mine, `{"enabled":true}`), false},
	} {
		s.do(c.method, c.path, weaker, c.body).refuses(t, 403, "FORBIDDEN")
		if a := s.do(c.method, c.path, other, c.body); c.secret {
			a.refuses(t, 409, "CONFLICT")
		} else {
			a.repeats(t, c.first)
		}
		s.do(c.method, c.path, mine, c.body).repeats(t, c.first)
	}
	s.wantsRows(1, "account.webhooks", "")
	for table, column := range map[string]string{"resource.idempotency_keys": "body", "account.webhooks": "secret"} {
		s.Wants(0, "select count(*) from "+table+" where position($1::bytea in "+column+") > 0", []byte("whsec_"))
	}
	s.logLacks(decoded[webhookRecord](t, first).Secret)
	s.Exec(`update account.memberships set permissions = '{account:api:access}' where user_id = $1`, user)
	s.do("POST", webhooksPath, mine, body).refuses(t, 403, "FORBIDDEN")
	s.do("POST", path+"/secret", mine, "{}").refuses(t, 403, "FORBIDDEN")
	s.do("PATCH", path, mine, `{"enabled":true}`).refuses(t, 403, "FORBIDDEN")
}

func TestWebhooks_EnableAndDisable(t *testing.T) {
	s, h := newDeveloper(t)
	made := s.addWebhook(h, address, "submission.created")
	s.do("PATCH", made.path(), h, `{"enabled":false}`).has(t, `"enabled":false`, `"disabledReason":"user"`)
	limited := s.holder(h.workspace(), perm.AccountAPIAccess)
	s.do("PATCH", made.path(), limited, `{"enabled":true}`).refuses(t, 403, "FORBIDDEN")
	s.get(made.path(), h).has(t, `"enabled":false`)
	s.do("POST", made.path()+"/secret", limited, `{}`).refuses(t, 403, "FORBIDDEN")
	s.wantsRows(0, "account.webhooks", "former_secret is not null")
	s.do("PATCH", made.path(), h, `{"enabled":true}`).has(t, `"enabled":true`)
}

// An endpoint for all events gets types that were added after it: who changes it must be permitted to read these, too.
func TestWebhooks_AllTypesNeedEachPermission(t *testing.T) {
	s, h := newDeveloper(t)
	made := s.addWebhook(h, address, "submission.created")
	limited := s.holder(h.workspace(), perm.AccountAPIAccess, perm.EngageReadSubmissions)
	enable := func(h header) answer { return s.do("PATCH", made.path(), h, `{"enabled":true}`) }
	replace := func(h header) answer { return s.do("POST", made.path()+"/secret", h, `{}`) }
	enable(limited).wants(t, 200)
	replace(limited).wants(t, 200)
	s.Exec("update account.webhooks set all_types = true where {mine}")
	enable(limited).refuses(t, 403, "FORBIDDEN")
	replace(limited).refuses(t, 403, "FORBIDDEN")
	enable(h).wants(t, 200)
	replace(h).wants(t, 200)
}

// address is the URL of an endpoint that does not exist.
const address = "https://hooks.example.invalid/"

// path returns the path of the endpoint.
func (w webhookRecord) path() string { return webhooksPath + "/" + w.ID }

// disabled waits until an endpoint is disabled for the reason.
func (s *service) disabled(made webhookRecord, h header, reason string) {
	s.t.Helper()
	await.NoError(s.t, func() error {
		a := s.get(made.path(), h)
		if w := decoded[webhookRecord](s.t, a); a.Status != 200 || w.Enabled || w.DisabledReason != reason {
			return fmt.Errorf("not disabled for the reason %q: %d %s", reason, a.Status, a.Body)
		}
		return nil
	})
}
