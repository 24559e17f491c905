package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
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

type webhookPage struct {
	Data []webhookRecord
	Meta struct {
		Count      int
		NextCursor string
	}
}

// developer creates a workspace with a member who holds all permissions.
func (s *service) developer() (uuid.UUID, header) {
	s.t.Helper()
	var all []perm.Permission
	for _, entry := range perm.All() {
		all = append(all, entry.ID)
	}
	workspaceID, user := s.member(all...)
	return workspaceID, as(s.PAT(workspaceID, user, all...).Reveal(), workspaceID).json()
}

func newWebhook(address string, types ...string) string {
	content, err := json.Marshal(map[string]any{"url": address, "types": types})
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(content)
}

func (s *service) addWebhook(h header, address string, types ...string) webhookRecord {
	s.t.Helper()
	a := s.do("POST", webhooksPath, h, newWebhook(address, types...))
	if a.Status != http.StatusCreated {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	var made webhookRecord
	a.decode(s.t, &made)
	return made
}

func TestWebhooks_AddReadAndDelete(t *testing.T) {
	s := newService(t)
	_, h := s.developer()
	body := newWebhook("https://hooks.example.invalid/a?key=1", "programme.created", "form.updated")
	a := s.do("POST", webhooksPath, h, body)
	var made webhookRecord
	a.decode(t, &made)
	if a.Status != http.StatusCreated || a.Header.Get("Location") != base+webhooksPath+"/"+made.ID ||
		made.URL != "https://hooks.example.invalid/a?key=1" || !made.Enabled || made.CreatedAt.IsZero() ||
		!slices.Equal(made.Types, []string{"programme.created", "form.updated"}) ||
		!strings.HasPrefix(made.Secret, "whsec_") {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	second := s.addWebhook(h, "https://hooks.example.invalid/b", webhook.EventTypes()...)
	for _, path := range []string{webhooksPath, webhooksPath + "/" + made.ID} {
		s.get(path, h).wants(t, http.StatusOK, made.ID).lacks(t, "ecret")
	}
	var page webhookPage
	s.get(webhooksPath+"?limit=1&fields=id", h).decode(t, &page)
	if page.Meta.Count != 1 || page.Data[0].ID != second.ID || page.Data[0].URL != "" || page.Meta.NextCursor == "" {
		t.Errorf("%+v", page)
	}
	s.get(webhooksPath+"?limit=1&cursor="+page.Meta.NextCursor, h).decode(t, &page)
	if page.Data[0].ID != made.ID {
		t.Errorf("%+v", page)
	}
	path := webhooksPath + "/" + made.ID
	if a := s.do("DELETE", path, h, ""); a.Status != http.StatusNoContent || a.Body != "" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	wantsRefused(t, s.do("DELETE", path, h, ""), http.StatusNotFound, "NOT_FOUND")
	wantsRefused(t, s.get(path, h), http.StatusNotFound, "NOT_FOUND")
	if got := s.Count(`select count(*) from account.audit_events where subject = $1
		and action in ('webhook.added', 'webhook.deleted') and detail = '{"host": "hooks.example.invalid"}'`,
		"webhook:"+made.ID); got != 2 {
		t.Errorf("%d events in the audit log", got)
	}
}

func TestWebhooks_RefuseWhatCallerMayNotRead(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.AccountAPIAccess, perm.ProgrammesRead)
	h := as(s.PAT(workspaceID, user, perm.AccountAPIAccess, perm.ProgrammesRead).Reveal(), workspaceID).json()
	narrow := as(s.PAT(workspaceID, user, perm.AccountAPIAccess).Reveal(), workspaceID).json()
	reader := as(s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal(), workspaceID).json()
	const address = "https://hooks.example.invalid/"
	s.addWebhook(h, address, "programme.created", "connection.ended")
	for _, c := range map[string]struct {
		as   header
		body string
	}{
		"a type that the user may not read":         {h, newWebhook(address, "programme.created", "form.created")},
		"a type that the credential may not read":   {narrow, newWebhook(address, "programme.created")},
		"the same, before the mistakes in the rest": {narrow, newWebhook("http://localhost", "programme.created")},
		"no account:api:access":                     {reader, newWebhook(address, "programme.created")},
	} {
		s.do("POST", webhooksPath, c.as, c.body).expect(t, 403, "FORBIDDEN", "")
	}
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		wantsRefused(t, s.do(method, webhooksPath+"/"+uuid.NewString(), reader, `{"enabled":true}`), 403, "FORBIDDEN")
	}
	wantsRefused(t, s.get(webhooksPath, reader), 403, "FORBIDDEN")
}

func TestWebhooks_RefuseInvalid(t *testing.T) {
	s := newService(t)
	_, h := s.developer()
	const types = `"types":["programme.created"]`
	for body, field := range map[string]string{
		`{` + types + `}`:                                                                       "url",
		`{"url":null,` + types + `}`:                                                            "url",
		`{"url":["https://a.example.invalid"],` + types + `}`:                                   "url",
		newWebhook("https://127.0.0.1/", "programme.created"):                                   "url",
		newWebhook("https://2130706433/", "programme.created"):                                  "url",
		newWebhook("https://[::ffff:127.0.0.1]/", "programme.created"):                          "url",
		newWebhook("http://a.example.invalid/", "programme.created"):                            "url",
		newWebhook("https://a.example.invalid/#x", "programme.created"):                         "url",
		`{"url":"https://a.example.invalid/"}`:                                                  "types",
		`{"url":"https://a.example.invalid/","types":null}`:                                     "types",
		`{"url":"https://a.example.invalid/","types":"programme.created"}`:                      "types",
		`{"url":"https://a.example.invalid/","types":[1]}`:                                      "types",
		`{"url":"https://a.example.invalid/","types":[null]}`:                                   "types",
		newWebhook("https://a.example.invalid/"):                                                "types",
		newWebhook("https://a.example.invalid/", "programme.created", "programme.created"):      "types",
		newWebhook("https://a.example.invalid/", "programme.archived"):                          "types",
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
		wantsRefused(t, s.do("PATCH", webhooksPath+"/"+made.ID, h, body), 400, "VALIDATION_ERROR")
	}
	s.wantsRows(1, "account.webhooks", "")
}

func TestWebhooks_LimitPerWorkspace(t *testing.T) {
	s := newService(t)
	_, h := s.developer()
	_, other := s.developer()
	for i := range 20 {
		s.addWebhook(h, fmt.Sprintf("https://hooks.example.invalid/%d", i), "programme.created")
	}
	body := newWebhook("https://a.example.invalid/", "form.created")
	wantsRefused(t, s.do("POST", webhooksPath, h, body), 409, "CONFLICT")
	s.addWebhook(other, "https://hooks.example.invalid/", "programme.created")
}

func TestWebhooks_BelongToTheirWorkspace(t *testing.T) {
	s := newService(t)
	_, h := s.developer()
	_, other := s.developer()
	made := s.addWebhook(h, "https://hooks.example.invalid/", "programme.created")
	a := s.do("POST", webhooksPath+"/"+made.ID+"/test", h, "")
	var test struct{ ID string }
	a.decode(t, &test)
	path := webhooksPath + "/" + made.ID
	for _, c := range [][2]string{
		{"GET", path},
		{"PATCH", path},
		{"DELETE", path},
		{"POST", path + "/test"},
		{"GET", path + "/deliveries"},
		{"POST", path + "/deliveries/" + test.ID + "/resend"},
	} {
		s.do(c[0], c[1], other, `{"enabled":false}`).expect(t, 404, "NOT_FOUND", "")
	}
	s.get(webhooksPath, other).lacks(t, made.ID)
	mine := s.addWebhook(other, "https://hooks.example.invalid/", "programme.created")
	resend := webhooksPath + "/" + mine.ID + "/deliveries/" + test.ID + "/resend"
	wantsRefused(t, s.do("POST", resend, other, ""), 404, "NOT_FOUND")
}

// The stored answer of an Idempotency-Key contains no readable secret, and the repeated answer is the first one.
func TestWebhooks_RepeatedCreation(t *testing.T) {
	s := newService(t)
	_, h := s.developer()
	h = h.with("Idempotency-Key", "once")
	body := newWebhook("https://hooks.example.invalid/", "programme.created")
	first, second := s.do("POST", webhooksPath, h, body), s.do("POST", webhooksPath, h, body)
	if first.Status != 201 || second.Status != 201 || first.Body != second.Body ||
		first.Header.Get("Idempotency-Replayed") != "" || second.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d %s, %d %s", first.Status, first.Body, second.Status, second.Body)
	}
	var made webhookRecord
	first.decode(t, &made)
	s.wantsRows(1, "account.webhooks", "")
	for _, query := range []string{
		"select count(*) from resource.idempotency_keys where position($1::bytea in body) > 0",
		"select count(*) from account.webhooks where position($1::bytea in secret) > 0",
	} {
		if s.Count(query, []byte("whsec_")) != 0 {
			t.Error("a secret is stored in the clear")
		}
	}
	other := newWebhook("https://other.example.invalid/", "programme.created")
	wantsRefused(t, s.do("POST", webhooksPath, h, other), 409, "CONFLICT")
	if strings.Contains(s.log.String(), made.Secret) {
		t.Error("the secret is in the log")
	}
}

// A stored answer is repeated to a caller who may still read the events, and a secret to its credential alone.
func TestWebhooks_RepeatNeedsPermissionAndForSecretsTheCredential(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.AccountAPIAccess, perm.ProgrammesRead)
	token := func(permissions ...perm.Permission) header {
		return as(s.PAT(workspaceID, user, permissions...).Reveal(), workspaceID).json().with("Idempotency-Key", "once")
	}
	mine := token(perm.AccountAPIAccess, perm.ProgrammesRead)
	weaker, other := token(perm.AccountAPIAccess), token(perm.AccountAPIAccess, perm.ProgrammesRead)
	body := newWebhook("https://hooks.example.invalid/", "programme.created")
	first := s.do("POST", webhooksPath, mine, body)
	var made webhookRecord
	first.decode(t, &made)
	path := webhooksPath + "/" + made.ID
	secret := s.do("POST", path+"/secret", mine, "{}")
	enabled := s.do("PATCH", path, mine, `{"enabled":true}`)
	for _, c := range []struct {
		method, path, body string
		first              answer
		secret             bool
	}{
		{"POST", webhooksPath, body, first, true},
		{"POST", path + "/secret", "{}", secret, true},
		{"PATCH", path, `{"enabled":true}`, enabled, false},
	} {
		wantsRefused(t, s.do(c.method, c.path, weaker, c.body), 403, "FORBIDDEN")
		if a := s.do(c.method, c.path, other, c.body); c.secret {
			wantsRefused(t, a, 409, "CONFLICT")
		} else if a.Body != c.first.Body || a.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s %s, another token: %d %s", c.method, c.path, a.Status, a.Body)
		}
		if a := s.do(c.method, c.path, mine, c.body); a.Status/100 != 2 || a.Body != c.first.Body {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.Status, a.Body)
		}
	}
	s.Exec(`update account.memberships set permissions = '{account:api:access}' where user_id = $1`, user)
	wantsRefused(t, s.do("POST", webhooksPath, mine, body), 403, "FORBIDDEN")
	wantsRefused(t, s.do("POST", path+"/secret", mine, "{}"), 403, "FORBIDDEN")
	wantsRefused(t, s.do("PATCH", path, mine, `{"enabled":true}`), 403, "FORBIDDEN")
}

func TestWebhooks_EnableAndDisable(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.developer()
	made := s.addWebhook(h, "https://hooks.example.invalid/", "submission.created")
	path := webhooksPath + "/" + made.ID
	var now webhookRecord
	s.do("PATCH", path, h, `{"enabled":false}`).decode(t, &now)
	if now.Enabled || now.DisabledReason != "user" {
		t.Errorf("%+v", now)
	}
	limited := s.holder(workspaceID, perm.AccountAPIAccess)
	wantsRefused(t, s.do("PATCH", path, limited, `{"enabled":true}`), 403, "FORBIDDEN")
	s.get(path, h).decode(t, &now)
	if now.Enabled {
		t.Error("enabled by a member who may not read its events")
	}
	wantsRefused(t, s.do("POST", path+"/secret", limited, `{}`), 403, "FORBIDDEN")
	s.wantsRows(0, "account.webhooks", "former_secret is not null")
	s.do("PATCH", path, h, `{"enabled":true}`).decode(t, &now)
	if !now.Enabled {
		t.Errorf("%+v", now)
	}
}
