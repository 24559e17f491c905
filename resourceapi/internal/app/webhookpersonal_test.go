package app

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// personalWebhook is the body that adds an endpoint with personal data.
func personalWebhook(address string, types ...string) string {
	return strings.Replace(newWebhook(address, types...), "{", `{"includePersonalData":true,`, 1)
}

// includePersonalData does what the page of an endpoint does.
func (s *service) includePersonalData(id string) {
	s.t.Helper()
	s.Exec("update account.webhooks set personal_data_for = user_id where id = $1", id)
}

// eventData is the data of an event with personal data.
type eventData struct {
	ID         uuid.UUID
	Submission *struct {
		ID      uuid.UUID
		Answers map[string]string
	}
	Supporter *struct{ Email, Name string }
	Member    *struct{ UserID, Name, Email string }
}

// data returns what was received about one record, oldest first.
func (r *receiver) data(t *testing.T, id uuid.UUID) (found []eventData) {
	t.Helper()
	for _, one := range r.all() {
		var data eventData
		must(t, json.Unmarshal(one.Event.Data, &data))
		if data.ID == id {
			found = append(found, data)
		}
	}
	return found
}

// Only an endpoint that asked for it gets personal data, and no table has a copy of it, not even in what it answers
// to an event without it.
func TestW8_PersonalDataIsSentAndNotStored(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	h := s.developer()
	types := []string{"submission.created", "submission.updated", "member.added", "member.removed"}
	made := s.addWebhook(h, r.URL+"/personal/fixed", types...)
	s.includePersonalData(made.ID)
	const email = "ada@example.org"
	id, f := uuid.New(), s.makeForm(h, allTypes)
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, retry_at)
		values ($1, $2, $3, gen_random_uuid(), jsonb_build_object('email', $4::text, 'name', 'Ada Okafor'), '[]', false,
			'infinity')`, id, f.workspaceID, f.ID, email) // the worker leaves it
	await.True(t, "the created submission", func() bool { return len(r.data(t, id)) == 1 })
	s.Exec("update resource.submissions set retry_at = now() where id = $1", id)
	await.True(t, "the processed submission", func() bool { return len(r.data(t, id)) == 2 })
	got := r.data(t, id)
	if got[0].Submission == nil || got[0].Submission.ID != id || got[0].Submission.Answers["email"] != email ||
		got[0].Supporter != nil || got[1].Submission == nil || got[1].Supporter == nil ||
		got[1].Supporter.Email != email || got[1].Supporter.Name != "Ada Okafor" {
		t.Errorf("%+v", r.all())
	}
	user := s.User()
	s.Member(h.workspace(), user, perm.ProgrammesRead)
	await.True(t, "the member", func() bool { return len(r.data(t, user)) == 1 })
	if got := r.data(t, user)[0].Member; got == nil || got.Email != user.String()+"@example.org" ||
		got.Name != "A Person" || got.UserID != user.String() {
		t.Errorf("%+v", got)
	}
	s.RemoveMember(h.workspace(), user)
	await.True(t, "the removed member", func() bool { return len(r.data(t, user)) == 2 })
	if got := r.data(t, user)[1].Member; got != nil {
		t.Errorf("the removed member is sent: %+v", got)
	}
	s.do("POST", made.path()+"/test", h, "").wants(t, 202)
	s.until("the test event is sent", func() bool {
		return s.rows("account.webhook_deliveries", "cause = 'test' and status = 200") == 1
	})
	s.Wants(3, "select count(*) from account.webhook_deliveries where {mine} and personal")
	s.Wants(0, "select count(*) from account.webhook_deliveries where {mine} and response is not null")
	for _, table := range []string{"account.webhook_deliveries", "account.events", "account.audit_events"} {
		s.Wants(0, "select count(*) from "+table+" o where o::text ilike '%' || $1 || '%'", email)
	}
	s.logLacks(email)
}

// Personal data is omitted once it is no longer asked for, and when another user enables the endpoint. What an endpoint
// is sent then is tested with the store.
func TestW8_PersonalDataNeedsUserWhoAskedForIt(t *testing.T) {
	s, h := newDeveloper(t)
	other := s.User()
	s.Member(h.workspace(), other, perm.AccountAPIAccess, perm.EngageReadSubmissions)
	others := s.holding(h.workspace(), other, perm.AccountAPIAccess, perm.EngageReadSubmissions)
	made := s.addWebhook(h, address, "submission.created")
	wants := func(what string, want bool) {
		t.Helper()
		if a := s.get(made.path(), h); strings.Contains(a.Body, `"includePersonalData":true`) != want {
			a.fail(t, fmt.Sprintf("%s: %t", what, want))
		}
	}
	enable := func(h header) { t.Helper(); s.do("PATCH", made.path(), h, `{"enabled":true}`).wants(t, 200) }
	wants("not asked for", false)
	s.includePersonalData(made.ID)
	wants("asked for", true)
	enable(h)
	wants("enabled by the same user", true)
	enable(others)
	wants("enabled by another user", false)
	enable(h)
	wants("enabled by the first user again", false)
	enable(others)
	s.includePersonalData(made.ID)
	wants("asked for by the other user", true)
	// A process of the previous release changes only the user.
	s.Exec(`update account.webhooks
		set user_id = (select user_id from account.memberships where {mine} and user_id <> $1) where {mine}`, other)
	wants("enabled with the previous release", false)
	s.includePersonalData(made.ID)
	s.do("PATCH", made.path(), h, `{"includePersonalData":false}`).wants(t, 200)
	wants("no longer asked for", false)
	s.wantsRows(1, "account.audit_events", "action = 'webhook.changed'")
}

// The page alone includes personal data, after a new authentication (contract, section 6a).
func TestWebhooks_NoCredentialIncludesPersonalData(t *testing.T) {
	s, h := newDeveloper(t)
	narrow := s.holder(h.workspace(), perm.AccountAPIAccess)
	adding, made := personalWebhook(address, "submission.created"), s.addWebhook(h, address, "submission.created")
	s.do("POST", webhooksPath, narrow, adding).refuses(t, 403, "FORBIDDEN")
	s.do("POST", webhooksPath, h, adding).refuses(t, 403, "FORBIDDEN")
	patch := func(h header, body string) answer { t.Helper(); return s.do("PATCH", made.path(), h, body) }
	patch(narrow, `{"includePersonalData":true}`).refuses(t, 403, "FORBIDDEN")
	patch(h, `{"includePersonalData":true}`).refuses(t, 403, "FORBIDDEN")
	patch(h, `{"enabled":true,"includePersonalData":true}`).refuses(t, 403, "FORBIDDEN")
	s.wantsRows(0, "account.webhooks", "personal_data_for is not null")
	s.includePersonalData(made.ID)
	patch(narrow, `{"includePersonalData":false}`).wants(t, 200) // omitting needs no permission
	s.wantsRows(0, "account.webhooks", "personal_data_for is not null")
	patch(h, `{"includePersonalData":"yes"}`).refuses(t, 400, "VALIDATION_ERROR")
	patch(h, `{"includePersonalData":null}`).refuses(t, 400, "VALIDATION_ERROR")
	s.do("POST", webhooksPath, h, strings.Replace(adding, "true", "1", 1)).refuses(t, 400, "VALIDATION_ERROR")
}

// A receiver is a webhook endpoint on this machine.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	received []received
	answer   func(received) int // the status; nil for 204
}

// received is one request to a receiver.
type received struct {
	Path   string
	ID     string
	Header http.Header
	Body   string
	Event  struct {
		Type        string
		Timestamp   time.Time
		Data        json.RawMessage
		WorkspaceID string
		Sequence    int64
	}
}

func newReceiver(t *testing.T, answer func(received) int) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewTLSServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	content, _ := io.ReadAll(request.Body)
	got := received{Path: request.URL.Path, Header: request.Header, Body: string(content)}
	got.ID = request.Header.Get("webhook-id")
	_ = json.Unmarshal(content, &got.Event)
	r.mu.Lock()
	r.received = append(r.received, got)
	r.mu.Unlock()
	status := http.StatusNoContent
	if r.answer != nil {
		status = r.answer(got)
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "600")
	}
	if status >= 300 && status < 400 {
		w.Header().Set("Location", r.URL+"/elsewhere")
	}
	if strings.HasSuffix(got.Path, "/echo") {
		_, _ = w.Write(content)
		return
	}
	if strings.HasSuffix(got.Path, "/fixed") {
		_, _ = io.WriteString(w, "Received from ada@example.org.")
		return
	}
	w.WriteHeader(status)
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.received)
}

// types returns the types of what was received.
func (r *receiver) types() []string {
	out := []string{}
	for _, one := range r.all() {
		out = append(out, one.Event.Type)
	}
	return out
}

// trustsReceivers makes a service send webhooks to receivers, which all have one certificate.
func trustsReceivers(c *Config) {
	receiver := httptest.NewTLSServer(nil)
	defer receiver.Close()
	c.WebhookCA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}))
}

// retryNow makes the endpoints due now.
func (s *service) retryNow() { s.Exec("update account.webhooks set next_try_at = now() where {mine}") }

// failures reports whether an endpoint has this number of failures.
func (s *service) failures(n int) func() bool {
	return func() bool {
		return s.rows("account.webhooks", "failures = $1", n) == 1
	}
}

// signedWith reports whether the request has a signature of the secret.
func (r received) signedWith(t *testing.T, secret string) bool {
	t.Helper()
	return orFail(standardwebhooks.NewWebhook(secret))(t).Verify([]byte(r.Body), r.Header) == nil
}
