package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
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

// addSubmission adds a form with an accepted submission, and returns the submission's id.
func (s *service) addSubmission(workspaceID uuid.UUID, email string) uuid.UUID {
	s.t.Helper()
	form, id := uuid.New(), uuid.New()
	s.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
		values ($1, $2, $1::uuid::text, 'x', '[]', '{}', gen_random_uuid())`, form, workspaceID)
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped)
		values ($1, $2, $3, gen_random_uuid(), jsonb_build_object('email', $4::text), '[]', false)`,
		id, workspaceID, form, email)
	return id
}

// finishSubmission finishes a submission with a new supporter.
func (s *service) finishSubmission(workspaceID, id uuid.UUID, email string) {
	s.t.Helper()
	supporter := uuid.New()
	s.Exec("insert into resource.supporters (id, tenant_id, email, name) values ($1, $2, $3, 'Ada Okafor')",
		supporter, workspaceID, email)
	s.Exec(`update resource.submissions set status = 'processed', supporter_id = $2, finished_at = now()
		where id = $1`, id, supporter)
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
		if err := json.Unmarshal(one.Event.Data, &data); err != nil {
			t.Fatal(err)
		}
		if data.ID == id {
			found = append(found, data)
		}
	}
	return found
}

// Only an endpoint that asked for it gets personal data, and no table has a copy of it.
func TestW8_PersonalDataIsSentAndNotStored(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	workspaceID, h := s.developer()
	types := []string{"submission.created", "submission.updated", "member.added", "member.removed"}
	s.includePersonalData(s.addWebhook(h, r.URL+"/personal", types...).ID)
	const email = "ada@example.org"
	id := s.addSubmission(workspaceID, email)
	within(t, "the created submission", func() bool { return len(r.data(t, id)) == 1 })
	s.finishSubmission(workspaceID, id, email)
	within(t, "the processed submission", func() bool { return len(r.data(t, id)) == 2 })
	got := r.data(t, id)
	if got[0].Submission == nil || got[0].Submission.ID != id || got[0].Submission.Answers["email"] != email ||
		got[0].Supporter != nil || got[1].Submission == nil || got[1].Supporter == nil ||
		got[1].Supporter.Email != email || got[1].Supporter.Name != "Ada Okafor" {
		t.Errorf("%+v", r.all())
	}
	user := s.User()
	s.Member(workspaceID, user, perm.ProgrammesRead)
	within(t, "the member", func() bool { return len(r.data(t, user)) == 1 })
	if got := r.data(t, user)[0].Member; got == nil || got.Email != user.String()+"@example.org" ||
		got.Name != "A Person" || got.UserID != user.String() {
		t.Errorf("%+v", got)
	}
	s.RemoveMember(workspaceID, user)
	within(t, "the removed member", func() bool { return len(r.data(t, user)) == 2 })
	if got := r.data(t, user)[1].Member; got != nil {
		t.Errorf("the removed member is sent: %+v", got)
	}
	for _, table := range []string{"account.webhook_deliveries", "account.events", "river.river_job",
		"account.audit_events"} {
		if n := s.Count("select count(*) from "+table+" o where o::text ilike '%' || $1 || '%'", email); n != 0 {
			t.Errorf("%d rows of %s have personal data", n, table)
		}
	}
	if strings.Contains(s.log.String(), email) {
		t.Error("personal data is in the log")
	}
}

// Personal data is omitted once it is no longer asked for, and when another user enables the endpoint.
func TestW8_PersonalDataNeedsUserWhoAskedForIt(t *testing.T) {
	r := newReceiver(t, nil)
	s := newWorker(t)
	workspaceID, h := s.developer()
	other := s.User()
	held := []perm.Permission{perm.AccountAPIAccess, perm.EngageReadSubmissions}
	s.Member(workspaceID, other, held...)
	others := as(s.PAT(workspaceID, other, held...).Reveal(), workspaceID).json()
	made := s.addWebhook(h, r.URL, "submission.created")
	path := webhooksPath + "/" + made.ID
	wants := func(what string, want bool) {
		t.Helper()
		id := s.addSubmission(workspaceID, "ada@example.org")
		within(t, what, func() bool { return len(r.data(t, id)) == 1 })
		a := s.get(path, h)
		if sent := r.data(t, id)[0].Submission != nil; sent != want ||
			strings.Contains(a.Body, `"includePersonalData":true`) != want {
			t.Errorf("%s: sent %v, %s", what, sent, a.Body)
		}
	}
	wants("not asked for", false)
	s.includePersonalData(made.ID)
	wants("asked for", true)
	s.do("PATCH", path, h, `{"enabled":true}`).wants(t, 200)
	wants("enabled by the same user", true)
	s.do("PATCH", path, others, `{"enabled":true}`).wants(t, 200)
	wants("enabled by another user", false)
	s.do("PATCH", path, h, `{"enabled":true}`).wants(t, 200)
	wants("enabled by the first user again", false)
	s.do("PATCH", path, others, `{"enabled":true}`).wants(t, 200)
	s.includePersonalData(made.ID)
	wants("asked for by the other user", true)
	// A process of the previous release changes only the user.
	s.Exec(`update account.webhooks
		set user_id = (select user_id from account.memberships where {mine} and user_id <> $1) where {mine}`, other)
	wants("enabled with the previous release", false)
	s.includePersonalData(made.ID)
	s.do("PATCH", path, h, `{"includePersonalData":false}`).wants(t, 200)
	wants("no longer asked for", false)
	s.wantsRows(1, "account.audit_events", "action = 'webhook.changed'")
}

// The page alone includes personal data, after a new authentication (contract, section 6a).
func TestWebhooks_NoCredentialIncludesPersonalData(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.developer()
	narrow := s.holder(workspaceID, perm.AccountAPIAccess)
	const address = "https://hooks.example.invalid/"
	refused := s.do("POST", webhooksPath, narrow, personalWebhook(address, "submission.created"))
	wantsRefused(t, refused, 403, "FORBIDDEN")
	made := s.addWebhook(h, address, "submission.created")
	path := webhooksPath + "/" + made.ID
	wantsRefused(t, s.do("PATCH", path, narrow, `{"includePersonalData":true}`), 403, "FORBIDDEN")
	wantsRefused(t, s.do("PATCH", path, h, `{"includePersonalData":true}`), 403, "FORBIDDEN")
	wantsRefused(t, s.do("PATCH", path, h, `{"enabled":true,"includePersonalData":true}`), 403, "FORBIDDEN")
	wantsRefused(t, s.do("POST", webhooksPath, h, personalWebhook(address, "submission.created")), 403, "FORBIDDEN")
	const asked = "select count(*) from account.webhooks where {mine} and personal_data_for is not null"
	if n := s.Count(asked); n != 0 {
		t.Errorf("%d endpoints get personal data", n)
	}
	s.includePersonalData(made.ID)
	s.do("PATCH", path, narrow, `{"includePersonalData":false}`).wants(t, 200) // omitting needs no permission
	if n := s.Count(asked); n != 0 {
		t.Errorf("%d endpoints get personal data", n)
	}
	for _, body := range []string{`{"includePersonalData":"yes"}`, `{"includePersonalData":null}`} {
		wantsRefused(t, s.do("PATCH", path, h, body), 400, "VALIDATION_ERROR")
	}
	body := strings.Replace(personalWebhook(address, "submission.created"), "true", "1", 1)
	wantsRefused(t, s.do("POST", webhooksPath, h, body), 400, "VALIDATION_ERROR")
}
