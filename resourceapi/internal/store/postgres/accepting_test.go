package postgres

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

func newSubmission(workspaceID, form uuid.UUID) engage.Submission {
	return engage.Submission{
		ID:          uuid.Must(uuid.NewV7()),
		WorkspaceID: workspaceID,
		Form:        form,
		Token:       uuid.New(),
		Answers:     engage.Answers{},
		Consents:    []engage.ConsentAnswer{},
	}
}

// Submissions that arrive while others are being stored share a transaction. In it, too, a token is used once (E3), and
// each submission has a time of its own, later than those before it (E7).
func TestAccept_TogetherStoresEachWithOwnOutcome(t *testing.T) {
	t.Parallel()
	w, store := ownStore(t)
	workspaceID := w.Workspace()
	form, e := addForm(w, workspaceID), store.Engage()
	token, answer := uuid.New(), rest.Answer{Status: 202}
	all := make([]engage.Submission, 30)
	for i := range all {
		if all[i] = newSubmission(workspaceID, form); i%10 == 0 {
			all[i].Token = token
		}
	}
	w.Exec("begin")
	w.Exec("select resource.next_moment($1, $2, 1)", workspaceID, form.String())
	var group sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[error]int{}
	for _, one := range all {
		group.Go(func() {
			_, err := e.Accept(t.Context(), rest.Key{}, one, answer)
			mu.Lock()
			defer mu.Unlock()
			outcomes[err]++
		})
	}
	await.True(t, "most wait for the first", func() bool {
		e.acceptors.mu.Lock()
		defer e.acceptors.mu.Unlock()
		a := e.acceptors.byForm[form]
		return a != nil && a.users == len(all)
	})
	w.Exec("rollback")
	group.Wait()
	if len(outcomes) != 2 || outcomes[nil] != 28 || outcomes[engage.ErrTokenUsed] != 2 {
		t.Fatalf("%v", outcomes)
	}
	w.Wants(28, "select count(distinct created_at) from resource.submissions where form_id = $1", form)
	if n := w.Count("select count(distinct xmin::text) from resource.submissions where form_id = $1", form); n > 10 {
		t.Errorf("%d transactions for 28 submissions", n)
	}
	later := newSubmission(workspaceID, form)
	orFail(e.Accept(t.Context(), rest.Key{}, later, answer))(t)
	w.Wants(28, `select count(*) from resource.submissions where form_id = $1
		and created_at < (select created_at from resource.submissions where id = $2)`, form, later.ID)
	if len(e.acceptors.byForm) != 0 {
		t.Error("a form without requests is remembered")
	}
}

// One submission that cannot be stored does not take others with it.
func TestAccept_BrokenSubmissionFailsAlone(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID := w.Workspace()
	form, e := addForm(w, workspaceID), store.Engage()
	broken, whole := newSubmission(workspaceID, form), newSubmission(workspaceID, form)
	broken.Answers = engage.Answers{"x": "\x00"} // jsonb does not accept it
	if _, err := e.acceptTogether(t.Context(), []engage.Submission{broken, whole}); err == nil {
		t.Fatal("it was stored")
	}
	w.Wants(0, "select count(*) from resource.submissions where form_id = $1", form)
	var group sync.WaitGroup
	for one, want := range map[*engage.Submission]bool{&broken: false, &whole: true} {
		group.Go(func() {
			if _, err := e.Accept(t.Context(), rest.Key{}, *one, rest.Answer{}); (err == nil) != want {
				t.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	w.Wants(1, "select count(*) from resource.submissions where form_id = $1", form)
}

func TestAccept_RefusesUsedTokenAndErasedForm(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID := w.Workspace()
	form, e := addForm(w, workspaceID), store.Engage()
	one := newSubmission(workspaceID, form)
	orFail(e.Accept(t.Context(), rest.Key{}, one, rest.Answer{}))(t)
	one.ID = uuid.Must(uuid.NewV7())
	if _, err := e.Accept(t.Context(), rest.Key{}, one, rest.Answer{}); !errors.Is(err, engage.ErrTokenUsed) {
		t.Errorf("a used token: %v", err)
	}
	gone := newSubmission(workspaceID, uuid.New())
	if _, err := e.Accept(t.Context(), rest.Key{}, gone, rest.Answer{}); !errors.Is(err, engage.ErrNotFound) {
		t.Errorf("a form that is erased: %v", err)
	}
	select {
	case <-e.Arrived():
	case <-time.After(time.Minute):
		t.Error("the worker is not told")
	}
}

// Citus refuses a generic plan of the function that locks a list. A batch is then repeated without one, and later ones
// have none. Another Postgres refuses a statement with the same SQLSTATE after a migration, which is for the caller to
// repeat.
func TestBatch_IsRepeatedWhereGenericPlansAreRefused(t *testing.T) {
	testkit.SkipIfDistributed(t, "the test imitates Citus")
	t.Parallel()
	w, store := ownStore(t)
	calls := 0
	batch := func() error {
		calls = 0
		return inBatch(t.Context(), store.pool, func(tx *transaction) {
			calls++
			tx.exec("lock a list", `do $$ begin
				if current_setting('plan_cache_mode') = 'force_generic_plan' then
					raise exception 'could not create distributed plan' using errcode = '0A000';
				end if; end $$`)
		})
	}
	if err := batch(); err == nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	w.Exec("create table public.pg_dist_partition ()") // of Citus
	for _, want := range []int{2, 1} {
		if err := batch(); err != nil || calls != want {
			t.Errorf("%d calls, want %d: %v", calls, want, err)
		}
	}
}
