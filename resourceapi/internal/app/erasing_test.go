package app

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const erasuresPath = "/v1/engage/erasures"

// answered adds submissions of a form that were processed for one supporter, if it is not zero, or that wait.
func (s *service) answered(workspaceID uuid.UUID, f formRecord, supporter uuid.UUID, email string, many int) {
	s.t.Helper()
	s.Exec(`insert into resource.submissions
		(id, tenant_id, form_id, token_id, answers, consents, trapped, created_at, status, supporter_id, finished_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(), jsonb_build_object('email', $4::text), '[]', false,
			now() - make_interval(secs => n), case when $3::uuid is null then 'accepted' else 'processed' end, $3,
			case when $3::uuid is not null then now() end
		from generate_series(1, $5) n`,
		workspaceID, f.ID, uuid.NullUUID{UUID: supporter, Valid: supporter != uuid.Nil}, email, many)
}

// supporter adds a supporter.
func (s *service) supporter(workspaceID uuid.UUID, email string) uuid.UUID {
	s.t.Helper()
	id := uuid.New()
	s.Exec("insert into resource.supporters (id, tenant_id, email) values ($1, $2, $3)", id, workspaceID, email)
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
	var e erasureAnswer
	a.decode(s.t, &e)
	path, ours := strings.CutPrefix(e.StatusURL, base)
	if a.Status != 202 || e.Status != "accepted" || !ours || path != erasuresPath+"/"+e.ID.String() ||
		a.Header.Get("Location") != e.StatusURL {
		s.t.Fatalf("%d %s %v", a.Status, a.Body, a.Header)
	}
	return path
}

// erasure reads the status of an erasure.
func (s *service) erasure(path string, h header) (e erasureAnswer) {
	s.t.Helper()
	a := s.get(path, h)
	if a.decode(s.t, &e); a.Status != 200 {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return e
}

// batches deletes batches of erasures until there are none, or until it has deleted so many.
func (s *service) batches(most int) {
	s.t.Helper()
	for range most {
		found, err := s.app.store.ProcessErasure(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		if !found {
			return
		}
	}
}

func TestErase_ThousandSubmissionsAreErasedAtOnceAndMoreByTheWorker(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.workspace()
	small, large := s.makeForm(h, allTypes), s.makeForm(h, allTypes)
	s.answered(workspaceID, small, uuid.Nil, "ada@example.org", 1000)
	s.answered(workspaceID, large, uuid.Nil, "ada@example.org", 1001)
	a := s.do("DELETE", formsPath+"/"+small.ID.String(), h, "")
	if a.Status != 200 || strings.TrimSpace(a.Body) != `{"deletedSubmissions":1000}` {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	keyed := h.with("Idempotency-Key", uuid.NewString())
	accepted := s.do("DELETE", formsPath+"/"+large.ID.String(), keyed, "")
	path := s.accepts(accepted)
	if again := s.do("DELETE", formsPath+"/"+large.ID.String(), keyed, ""); again.Body != accepted.Body ||
		again.Status != 202 || !again.replayed() {
		t.Errorf("the same key: %d %s", again.Status, again.Body)
	}
	s.do("DELETE", formsPath+"/"+large.ID.String(), h, "").expect(t, 404, "NOT_FOUND", "")
	if e := s.erasure(path, h); e.Status != "accepted" || e.DeletedSubmissions != 0 {
		t.Errorf("%+v", e)
	}
	s.batches(100)
	if e := s.erasure(path, h); e.Status != "processed" || e.DeletedSubmissions != 1001 {
		t.Errorf("%+v", e)
	}
	if s.erasures("form.erased") != 2 ||
		s.Count(`select count(*) from account.audit_events where {mine} and detail = '{"submissions": 1001}'`) != 1 {
		t.Error("not one audit event for each form")
	}
	s.wantsRows(2001, "account.events", "type = 'submission.deleted'")
	s.wantsRows(2, "account.events", "type = 'form.deleted'")
	s.get(erasuresPath+"/"+uuid.NewString(), h).expect(t, 404, "NOT_FOUND", "")
	s.get(erasuresPath+"/x", h).expect(t, 404, "NOT_FOUND", "")
	_, elsewhere := s.workspace()
	s.get(path, elsewhere).expect(t, 404, "NOT_FOUND", "")
	less := s.holder(workspaceID, perm.EngageWriteSubmissions)
	s.get(path, less).expect(t, 403, "FORBIDDEN", "")
	s.Exec("update resource.erasures set finished_at = now() - interval '31 days' where {mine}")
	s.get(path, h).expect(t, 404, "NOT_FOUND", "")
}

// From the answer on, a form that is erased in the background cannot be read in any way, nor answered, nor processed.
func TestErase_NothingOfFormCanBeReadWhileItIsErased(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	waiting := s.accepted(f)
	s.answered(workspaceID, f, s.supporter(workspaceID, "eve@example.org"), "eve@example.org", 1500)
	path := formsPath + "/" + f.ID.String()
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
	public := s.do(http.MethodGet, "/v1/engage/public/forms/"+f.EmbedKey, header{}, "")
	public.expect(t, 404, "NOT_FOUND", "")
	if err := s.kept().Process(t.Context(), workspaceID, waiting.ID); err != nil {
		t.Error(err)
	}
	s.wantsRows(0, "resource.supporters", "email = 'ada@example.org'")
	s.batches(100)
	if e := s.erasure(status, h); e.Status != "processed" || e.DeletedSubmissions != 1501 {
		t.Errorf("%+v", e)
	}
	if n := s.rows("resource.submissions", "") +
		s.rows("resource.forms", ""); n != 0 {
		t.Errorf("%d records remain", n)
	}
}

// A supporter who is erased in the background, and what was sent with the address, cannot be read from the answer on.
// What is sent with the address afterwards stays.
func TestErase_NothingOfSupporterCanBeReadWhileTheyAreErased(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	ada := s.supporter(workspaceID, "ada@example.org")
	s.answered(workspaceID, f, ada, "ada@example.org", 1200)
	s.answered(workspaceID, f, uuid.Nil, "Ada@example.org", 3)
	s.answered(workspaceID, f, uuid.Nil, "eve@example.org", 2)
	s.answered(workspaceID, f, s.supporter(workspaceID, "zoe@example.org"), "zoe@example.org", 4)
	status := s.accepts(s.do("POST", supportersPath+"/erase", h, `{"email":"ada@example.org"}`))
	later := s.accepted(f) // of ada@example.org
	path := formsPath + "/" + f.ID.String()
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
	if err := s.kept().Process(t.Context(), workspaceID, later.ID); err != nil {
		t.Fatal(err)
	}
	s.batches(100)
	if e := s.erasure(status, h); e.Status != "processed" || e.DeletedSubmissions != 1203 {
		t.Errorf("%+v", e)
	}
	s.get(path+"/submissions", h).has(t, `"count":7`)
	if a := s.get(supportersPath, h); strings.Count(a.Body, "ada@example.org") != 1 {
		t.Errorf("%s", a.Body)
	}
	if s.erasures("supporter.erased") != 1 {
		t.Error("not one audit event")
	}
	s.wantsRows(0, "resource.erasures", "addresses is not null")
}

// A worker that stops in the middle of a batch leaves it undone, another one goes on, and several at once count each
// submission once.
func TestErase_WorkersGoOnWhereOneStopped(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	s.answered(workspaceID, f, uuid.Nil, "ada@example.org", 3300)
	status := s.accepts(s.do("DELETE", formsPath+"/"+f.ID.String(), h, ""))
	s.batches(1)
	stopped, stop := context.WithCancel(t.Context())
	conn, err := pgx.Connect(stopped, s.Database.Resourceapi)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(stopped)) }()
	// The state of a worker that dies in a batch: it has the erasure's row, and its deletions are not committed.
	tx, err := conn.Begin(stopped)
	if err == nil {
		_, err = tx.Exec(stopped, "select from resource.erasures where tenant_id = $1 for update", workspaceID)
	}
	if err == nil {
		_, err = tx.Exec(stopped, `delete from resource.submissions where tenant_id = $1 and id in (
			select id from resource.submissions where tenant_id = $1 order by created_at limit 300)`, workspaceID)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.batches(10)
	if e := s.erasure(status, h); e.DeletedSubmissions != 500 {
		t.Errorf("two workers have one erasure: %+v", e)
	}
	stop()
	_ = conn.Close(context.WithoutCancel(stopped))
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { s.batches(20) })
	}
	group.Wait()
	await.True(t, "the erasure is processed", func() bool {
		s.batches(20)
		return s.erasure(status, h).Status == "processed"
	})
	if e := s.erasure(status, h); e.DeletedSubmissions != 3300 {
		t.Errorf("%+v", e)
	}
	if s.erasures("form.erased") != 1 || s.rows("resource.forms", "") != 0 {
		t.Error("the form is not erased once")
	}
	s.wantsRows(3300, "account.events", "type = 'submission.deleted'")
}

// An erasure by e-mail address waits for a worker that has added the supporter and not committed it yet.
func TestErase_ByAddressWaitsForWorkerThatAddsTheSupporter(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	sent := s.accepted(f) // of ada@example.org
	// The worker stops between its insert and its commit: it waits for the list of the form, which this has locked.
	conn, err := pgx.Connect(t.Context(), s.Database.Resourceapi)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "select resource.next_moment($1, $2, 1)", workspaceID, f.ID.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	worked, erased := make(chan error, 1), make(chan answer, 1)
	go func() {
		for {
			err := s.kept().Process(t.Context(), workspaceID, sent.ID)
			if err == nil || t.Context().Err() != nil {
				worked <- err
				return
			}
		}
	}()
	waits := func(n int) func() bool {
		return func() bool {
			return s.Count(`select count(distinct pid) from `+testkit.Locks+` where not granted`) >= n
		}
	}
	await.True(t, "the worker waits after its insert", waits(1))
	go func() {
		for {
			a := s.do("POST", supportersPath+"/erase", h, `{"email":"ada@example.org"}`)
			if a.Status != 503 || t.Context().Err() != nil { // 503: it waited for the limit, and did nothing
				erased <- a
				return
			}
		}
	}()
	await.True(t, "the erasure waits for the worker", waits(2))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-worked; err != nil {
		t.Fatal(err)
	}
	a := <-erased
	if a.Status != 200 || strings.TrimSpace(a.Body) != `{"deletedSubmissions":1}` {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if n := s.rows("resource.supporters", "") +
		s.rows("resource.submissions", ""); n != 0 {
		t.Errorf("%d records remain", n)
	}
}
