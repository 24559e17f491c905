package app

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const erasuresPath = "/v1/engage/erasures"

// answered adds submissions of a form that were processed for one supporter, if it is not zero, or that wait.
func (s *service) answered(f formRecord, supporter uuid.UUID, email string, many int) {
	s.t.Helper()
	s.Exec(`insert into resource.submissions
		(id, tenant_id, form_id, token_id, answers, consents, trapped, created_at, status, supporter_id, finished_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(), jsonb_build_object('email', $4::text), '[]', false,
			now() - make_interval(secs => n), case when $3::uuid is null then 'accepted' else 'processed' end, $3,
			case when $3::uuid is not null then now() end
		from generate_series(1, $5) n`,
		f.workspaceID, f.ID, uuid.NullUUID{UUID: supporter, Valid: supporter != uuid.Nil}, email, many)
}

// supporter adds a supporter to the workspace of the form.
func (s *service) supporter(f formRecord, email string) uuid.UUID {
	s.t.Helper()
	id := uuid.New()
	s.Exec("insert into resource.supporters (id, tenant_id, email) values ($1, $2, $3)", id, f.workspaceID, email)
	return id
}

type erasureAnswer struct {
	ID                 uuid.UUID
	Status             string
	StatusURL          string `json:"statusUrl"`
	DeletedSubmissions int
}

// accepts checks that the answer accepts an erasure, and returns the path of its status.
func (s *service) accepts(a answer) string {
	s.t.Helper()
	e := decoded[erasureAnswer](s.t, a)
	path := erasuresPath + "/" + e.ID.String()
	a.wants(s.t, 202, `"status":"accepted"`, `"statusUrl":"`+base+path+`"`).header(s.t, "Location", base+path)
	return path
}

// erasure reads the status of an erasure.
func (s *service) erasure(path string, h header) erasureAnswer {
	s.t.Helper()
	return decoded[erasureAnswer](s.t, s.get(path, h).wants(s.t, 200))
}

// batches deletes batches of erasures until there are none, or until it has deleted so many.
func (s *service) batches(most int) {
	s.t.Helper()
	for range most {
		found := orFail(s.app.store.ProcessErasure(s.t.Context()))(s.t)
		if !found {
			return
		}
	}
}

func TestErase_ThousandSubmissionsAreErasedAtOnceAndMoreByTheWorker(t *testing.T) {
	s := newOwn(t)
	h := s.workspace()
	small, large := s.makeForm(h, allTypes), s.makeForm(h, allTypes)
	s.answered(small, uuid.Nil, "ada@example.org", 1000)
	s.answered(large, uuid.Nil, "ada@example.org", 1001)
	a := s.do("DELETE", small.own(), h, "")
	a.wants(t, 200).is(t, `{"deletedSubmissions":1000}`)
	keyed := h.with("Idempotency-Key", uuid.NewString())
	accepted := s.do("DELETE", large.own(), keyed, "")
	path := s.accepts(accepted)
	s.do("DELETE", large.own(), keyed, "").repeats(t, accepted)
	s.do("DELETE", large.own(), h, "").expect(t, 404, "NOT_FOUND", "")
	s.wantsErasure(path, h, "accepted", 0)
	s.batches(100)
	s.wantsErasure(path, h, "processed", 1001)
	s.wantsErasures("form.erased", 2)
	s.wantsRows(1, "account.audit_events", `detail = '{"submissions": 1001}'`)
	s.wantsRows(2001, "account.events", "type = 'submission.deleted'")
	s.wantsRows(2, "account.events", "type = 'form.deleted'")
	s.get(erasuresPath+"/"+uuid.NewString(), h).expect(t, 404, "NOT_FOUND", "")
	s.get(erasuresPath+"/x", h).expect(t, 404, "NOT_FOUND", "")
	elsewhere := s.workspace()
	s.get(path, elsewhere).expect(t, 404, "NOT_FOUND", "")
	less := s.holder(h.workspace(), perm.EngageWriteSubmissions)
	s.get(path, less).expect(t, 403, "FORBIDDEN", "")
	s.Exec("update resource.erasures set finished_at = now() - interval '31 days' where {mine}")
	s.get(path, h).expect(t, 404, "NOT_FOUND", "")
}

// From the answer on, a form that is erased in the background cannot be read in any way, nor answered, nor processed.
func TestErase_NothingOfFormCanBeReadWhileItIsErased(t *testing.T) {
	s := newOwn(t)
	h, f := s.form()
	waiting := s.accepted(f)
	s.answered(f, s.supporter(f, "eve@example.org"), "eve@example.org", 1500)
	path := f.own()
	status := s.accepts(s.do("DELETE", path, h, ""))
	s.batches(1) // between two batches
	if e := s.erasure(status, h); e.Status != "accepted" || e.DeletedSubmissions == 0 || e.DeletedSubmissions > 1000 {
		t.Errorf("%+v", e)
	}
	if s.rows("resource.submissions", "") < 500 {
		t.Fatal("nothing is left to be read")
	}
	for _, p := range []string{
		path,
		path + "/submissions",
		path + "/submissions?updatedSince=2020-01-01T00:00:00Z",
		path + "/submissions/export?format=jsonl",
		submissionsPath + "/" + waiting.ID.String(),
	} {
		s.get(p, h).expect(t, 404, "NOT_FOUND", "")
	}
	s.do("PATCH", path, h, `{"enabled":true}`).expect(t, 404, "NOT_FOUND", "")
	s.do("DELETE", submissionsPath+"/"+waiting.ID.String(), h, "").expect(t, 404, "NOT_FOUND", "")
	s.get(formsPath, h).has(t, `"count":0`)
	s.get(f.path(), nil).expect(t, 404, "NOT_FOUND", "")
	orFail(s.kept().ProcessWaiting(t.Context(), h.workspace(), time.Time{}, 100))(t)
	s.wantsRows(0, "resource.supporters", "email = 'ada@example.org'")
	s.batches(100)
	s.wantsErasure(status, h, "processed", 1501)
	s.wantsRows(0, "resource.submissions", "")
	s.wantsRows(0, "resource.forms", "")
}

// A supporter who is erased in the background, and what was sent with the address, cannot be read from the answer on.
// What is sent with the address afterwards stays.
func TestErase_NothingOfSupporterCanBeReadWhileTheyAreErased(t *testing.T) {
	s := newOwn(t)
	h, f := s.form()
	ada := s.supporter(f, "ada@example.org")
	s.answered(f, ada, "ada@example.org", 1200)
	s.answered(f, uuid.Nil, "Ada@example.org", 3)
	s.answered(f, uuid.Nil, "eve@example.org", 2)
	s.answered(f, s.supporter(f, "zoe@example.org"), "zoe@example.org", 4)
	status := s.accepts(s.do("POST", supportersPath+"/erase", h, `{"email":"ada@example.org"}`))
	later := s.accepted(f) // of ada@example.org
	path := f.own()
	for _, query := range []string{"?limit=200", "?limit=200&updatedSince=2020-01-01T00:00:00Z"} {
		s.get(path+"/submissions"+query, h).has(t, `"count":7`)
	}
	export := s.get(path+"/submissions/export?format=jsonl", h)
	if n := strings.Count(export.Body, "\n"); n != 7 {
		t.Errorf("%d lines are exported", n)
	}
	s.get(supportersPath+"/"+ada.String(), h).expect(t, 404, "NOT_FOUND", "")
	s.do("DELETE", supportersPath+"/"+ada.String(), h, "").expect(t, 404, "NOT_FOUND", "")
	s.get(supportersPath, h).has(t, `"count":1`).lacks(t, "ada@")
	s.processOne(later.ID)
	s.batches(100)
	s.wantsErasure(status, h, "processed", 1203)
	s.get(path+"/submissions", h).has(t, `"count":7`)
	if a := s.get(supportersPath, h); strings.Count(a.Body, "ada@example.org") != 1 {
		t.Errorf("%s", a.Body)
	}
	s.wantsErasures("supporter.erased", 1)
	s.wantsRows(0, "resource.erasures", "addresses is not null")
}

// A worker that stops in the middle of a batch leaves it undone, another one goes on, and several at once count each
// submission once.
func TestErase_WorkersGoOnWhereOneStopped(t *testing.T) {
	s := newOwn(t)
	h, f := s.form()
	s.answered(f, uuid.Nil, "ada@example.org", 3300)
	status := s.accepts(s.do("DELETE", f.own(), h, ""))
	s.batches(1)
	// The state of a worker that dies in a batch: it has the erasure's row, and its deletions are not committed.
	s.Exec("begin")
	s.Exec("select from resource.erasures where {mine} for update")
	s.Exec(`delete from resource.submissions where {mine} and id in (
		select id from resource.submissions where {mine} order by created_at limit 300)`)
	s.batches(10)
	s.wantsErasure(status, h, "accepted", 500) // two workers do not have one erasure
	s.Exec("rollback")
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { s.batches(20) })
	}
	group.Wait()
	await.True(t, "the erasure is processed", func() bool {
		s.batches(20)
		return s.erasure(status, h).Status == "processed"
	})
	s.wantsErasure(status, h, "processed", 3300)
	s.wantsErasures("form.erased", 1)
	s.wantsRows(0, "resource.forms", "")
	s.wantsRows(3300, "account.events", "type = 'submission.deleted'")
}

// An erasure by e-mail address waits for a worker that has added the supporter and not committed it yet.
func TestErase_ByAddressWaitsForWorkerThatAddsTheSupporter(t *testing.T) {
	s := newOwn(t)
	h, f := s.form()
	s.accepted(f) // of ada@example.org
	// The worker stops between its insert and its commit: it waits for the list of the form, which this has locked.
	s.Exec("begin")
	s.Exec("select resource.next_moment($1, $2, 1)", f.workspaceID, f.ID.String())
	worked, erased := make(chan error, 1), make(chan answer, 1)
	go func() {
		for {
			n, err := s.kept().ProcessWaiting(t.Context(), h.workspace(), time.Time{}, 100)
			if n == 1 || t.Context().Err() != nil {
				worked <- err
				return
			}
		}
	}()
	s.awaitLocks(1) // of the worker, after its insert
	go func() {
		for {
			a := s.do("POST", supportersPath+"/erase", h, `{"email":"ada@example.org"}`)
			if a.Status != 503 || t.Context().Err() != nil { // 503: it waited for the limit, and did nothing
				erased <- a
				return
			}
		}
	}()
	s.awaitLocks(2) // the erasure waits for the worker
	s.Exec("rollback")
	must(t, <-worked)
	a := <-erased
	a.wants(t, 200).is(t, `{"deletedSubmissions":1}`)
	s.wantsRows(0, "resource.supporters", "")
	s.wantsRows(0, "resource.submissions", "")
}

// wantsErasure checks the status of an erasure, and how many submissions it has deleted so far.
func (s *service) wantsErasure(path string, h header, status string, deleted int) {
	s.t.Helper()
	if e := s.erasure(path, h); e.Status != status || e.DeletedSubmissions != deleted {
		s.t.Errorf("%+v, want %s with %d submissions", e, status, deleted)
	}
}

const (
	submissionsPath = "/v1/engage/submissions"
	supportersPath  = "/v1/engage/supporters"
)

func TestErase_Draft(t *testing.T) {
	s, h := newEditor(t)
	elsewhere := s.editor()
	path := listPath + "/" + s.create(h, `{"name":"x"}`).ID.String()
	active := listPath + "/" + s.create(h, `{"name":"x","status":"active"}`).ID.String()
	s.do("DELETE", path, elsewhere, "").expect(t, 404, "NOT_FOUND", "")
	s.do("DELETE", active, h, "").expect(t, 409, "CONFLICT", "")
	keyed := h.with("Idempotency-Key", uuid.NewString())
	first := s.do("DELETE", path, keyed, "").wants(t, 204).is(t, "").header(t, "Idempotency-Replayed", "")
	s.do("DELETE", path, keyed, "").repeats(t, first)
	s.do("DELETE", path, h, "").expect(t, 404, "NOT_FOUND", "")
	s.wantsErasures("programme.erased", 1)
	s.wantsRows(1, "resource.programmes", "")
}

func TestErase_SubmissionFormAndSupporter(t *testing.T) {
	s, h := newWorkspace(t)
	elsewhere := s.workspace()
	f, other := s.makeForm(h, allTypes), s.makeForm(h, allTypes)
	id := s.accepted(f).ID
	s.accepted(f)
	s.accepted(f)
	s.accepted(other)
	s.processOne(id)
	path := submissionsPath + "/" + id.String()
	s.get(path, h).wants(t, 200, id.String(), `"status":"processed"`)
	s.get(path, elsewhere).expect(t, 404, "NOT_FOUND", "")
	people := s.get(supportersPath, h).wants(t, 200, `"email":"ada@example.org"`)
	person := supportersPath + "/" + decoded[paged[struct{ ID string }]](t, people).Data[0].ID
	s.get(person, h).wants(t, 200, `"email":"ada@example.org"`)
	for _, p := range []string{path, person, f.own()} {
		s.do("DELETE", p, elsewhere, "").expect(t, 404, "NOT_FOUND", "")
	}
	formsOnly := s.holder(h.workspace(), perm.EngageReadForms, perm.EngageWriteForms)
	s.do("DELETE", f.own(), formsOnly, "").expect(t, 403, "FORBIDDEN", "")
	s.do("DELETE", path, formsOnly, "").expect(t, 403, "FORBIDDEN", "")

	s.do("DELETE", path, h, "").wants(t, 204)
	s.do("DELETE", path, h, "").expect(t, 404, "NOT_FOUND", "")
	s.do("DELETE", f.own(), h, "").wants(t, 200).is(t, `{"deletedSubmissions":2}`)
	s.do("DELETE", f.own(), h, "").expect(t, 404, "NOT_FOUND", "")
	// The submission to the other form waits to be processed, and is of the same address.
	erase := func(body string) answer { t.Helper(); return s.do("POST", supportersPath+"/erase", h, body) }
	erase(`{"email":" ADA@example.org "}`).wants(t, 200).is(t, `{"deletedSubmissions":1}`)
	erase(`{"email":"ada@example.org"}`).wants(t, 200).is(t, `{"deletedSubmissions":0}`)
	for _, wrong := range []string{`{}`, `{"email":"x"}`, `{"email":7}`, `{"email":"a@b","x":1}`, ``} {
		erase(wrong).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.do("DELETE", person, h, "").expect(t, 404, "NOT_FOUND", "")
	s.wantsRows(0, "resource.submissions", "")
	s.wantsRows(0, "resource.supporters", "")
	for _, action := range []string{"submission.erased", "form.erased", "supporter.erased"} {
		s.wantsErasures(action, 1)
	}
}

// wantsErasures checks the number of audit events of an action, and that none has what was erased.
func (s *service) wantsErasures(action string, want int) {
	s.t.Helper()
	s.wantsRows(0, "account.audit_events", "detail::text ilike '%example.org%'")
	s.wantsRows(want, "account.audit_events", "action = $1", action)
}
