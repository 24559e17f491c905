package postgres

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

const dropSubmissionMonth = "select coalesce(resource.drop_submission_month(now()), -1)"

func retentionOfMonths(t *testing.T) *retentionTest {
	t.Helper()
	testkit.SkipIfDistributed(t, "partitions are created by hand")
	r := newRetentionTest(t)
	pastSubmissionMonths(r.Fixture)
	return r
}

// A month is dropped when retention has deleted its last submission, and not before.
func TestSubmissionMonths_EmptyMonthIsDropped(t *testing.T) {
	t.Parallel()
	r := retentionOfMonths(t)
	short, long, from := r.form(1), r.form(24), r.supporter()
	r.submissions(short, from, 20, "5 months 1 hour")
	r.submissions(short, from, 20, "4 months 1 hour")
	r.submissions(long, from, 1, "4 months 1 hour")
	r.submissions(short, from, 3, "1 hour")
	before := r.Count(submissionMonths)
	r.Exec("analyze resource.submissions")
	dropped := 0
	for r.Count(dropSubmissionMonth) == 0 { // the months that have never had a submission
		dropped++
	}
	if n := r.Count("select count(*) from resource.submissions"); n != 44 || dropped == 0 {
		t.Errorf("%d submissions are left, %d months were dropped", n, dropped)
	}
	r.deletes("submissions", 40)
	r.deletes("submissions", 0) // drops the month that has become empty
	if n := r.Count(submissionMonths); n != before-dropped-1 {
		t.Errorf("%d months are left of %d", n, before-dropped)
	}
	r.Wants(4, "select count(*) from resource.submissions")
}

// Due submissions are deleted by their ids in their months, without reading the others.
func TestSubmissionMonths_OnlyDueSubmissionsAreRead(t *testing.T) {
	t.Parallel()
	r := retentionOfMonths(t)
	short, long, from := r.form(1), r.form(24), r.supporter()
	r.Exec("alter table resource.submissions disable trigger user")
	for _, ago := range []string{"1 day", "80 days", "100 days", "130 days"} {
		r.submissions(long, from, 1500, ago)
	}
	r.submissions(short, from, 10, "100 days")
	r.Exec("analyze resource.submissions")
	owner := postgrestest.Connect(t, r.Database.Owner) // without the time limit of statements
	plan := explained(t, owner, oldSubmissions().Delete, []any{time.Now(), 500, r.workspace})
	read := regexp.MustCompile(`Seq Scan on submissions_\S+ .*actual`).FindAllString(plan, -1)
	if len(read) > 0 || !strings.Contains(plan, "Index Cond: ((tenant_id = ") {
		t.Errorf("%d partitions are read as a whole: %s", len(read), plan)
	}
	r.Wants(6000, "select count(*) from resource.submissions")
}

// While another session reads submissions, no month is dropped, and a request waits only a moment.
func TestSubmissionMonths_SubmissionsInUseAreNotDropped(t *testing.T) {
	t.Parallel()
	r := retentionOfMonths(t)
	before := r.Count(submissionMonths)
	reader := postgrestest.Connect(t, r.Database.Owner)
	orFail(reader.Exec(t.Context(), "begin; select count(*) from resource.submissions"))(t)
	testkit.Quick(t, 900*time.Millisecond, func() { // the time for which they are locked
		if n := r.Count(dropSubmissionMonth); n != -1 || r.Count(submissionMonths) != before {
			t.Errorf("%d months are left of %d", r.Count(submissionMonths), before)
		}
	})
	orFail(reader.Exec(t.Context(), "rollback"))(t)
	r.Wants(0, dropSubmissionMonth)
	r.Wants(before-1, submissionMonths)
}

// Submissions of the last partition move to their months when these are made, without events and with their supporters.
func TestSubmissionMonths_LastPartitionIsEmptiedByMonth(t *testing.T) {
	t.Parallel()
	r := retentionOfMonths(t)
	// As if no process had made months for half a year.
	r.Exec(`do $$ declare first timestamptz; name text; begin
		select min(p.starts) into first from account.months_of('resource.submissions') p;
		for name in select p.name from account.months_of('resource.submissions') p where p.ends is not null loop
			execute format('drop table %s', name);
		end loop;
		alter table resource.submissions detach partition resource.submissions_9999;
		execute format('alter table resource.submissions attach partition resource.submissions_9999
			for values from (%L) to (maxvalue)', first);
	end $$`)
	form, from := r.form(24), r.supporter()
	for _, ago := range []string{"-130 days", "-20 days", "1 day", "70 days", "100 days"} {
		r.submissions(form, from, 3, ago)
	}
	events := r.Count("select count(*) from account.events")
	for range 2 { // a month that exists is not made again
		r.Exec("select resource.make_submission_months()")
	}
	if n, left := r.Count("select count(*) from resource.submissions where supporter_id = $1", from),
		r.Count("select count(*) from resource.submissions_9999"); n != 15 || left != 3 {
		t.Errorf("%d submissions, %d of them in the last partition", n, left)
	}
	if n := r.Count("select count(*) from account.events") - events; n != 0 {
		t.Errorf("%d events of submissions that only moved", n)
	}
	id := uuid.New()
	addSubmission(r.Fixture, r.workspace, form, id, "0")
	r.Exec("delete from resource.submissions where id = $1", id)
	if n := r.Count("select count(*) from account.events") - events; n != 2 {
		t.Errorf("%d events of a submission that was added and deleted", n)
	}
}

// While another session reads submissions, no month is added. A later call adds it.
func TestSubmissionMonths_MonthsAreAddedLaterIfSubmissionsAreInUse(t *testing.T) {
	t.Parallel()
	r := newRetentionTest(t)
	testkit.SkipIfDistributed(t, "the new table has no months yet")
	reader := postgrestest.Connect(t, r.Database.Owner)
	orFail(reader.Exec(t.Context(), "begin; select count(*) from resource.submissions"))(t)
	before := r.Count(submissionMonths)
	testkit.Quick(t, 900*time.Millisecond, func() { // the time for which they are locked
		r.deletes("submissions", 0)
		r.Exec("select resource.make_submission_months()")
	})
	r.Wants(before, submissionMonths)
	orFail(reader.Exec(t.Context(), "rollback"))(t)
	r.Exec("select resource.make_submission_months()")
	if n := r.Count(submissionMonths); n < before+2 {
		t.Errorf("%d months later", n)
	}
}

// A submission whose answers cannot be decoded does not hold up the others of its workspace, is tried again later and
// later, and is rejected after the last try.
func TestProcess_BrokenSubmissionIsRejectedInTheEnd(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID := w.Workspace()
	form := addForm(w, workspaceID)
	broken, whole := uuid.New(), uuid.New()
	addSubmission(w, workspaceID, form, broken, "0")
	addSubmission(w, workspaceID, form, whole, "0")
	w.Exec(`update resource.submissions set answers = '"no object"' where id = $1`, broken)
	finishes := func(want int, fails bool) {
		t.Helper()
		n, err := store.Engage().ProcessWaiting(t.Context(), workspaceID, time.Time{}, 100)
		if n != want || (err != nil) != fails {
			t.Fatalf("%d, %v, want %d", n, err, want)
		}
	}
	finishes(1, true)
	const inState = "select count(*) from resource.submissions where id = $1 and status = $2"
	w.Wants(1, inState, whole, "processed")
	again := []waiting{{whole, time.Now()}} // as if another process had found it before
	if n, err := store.Engage().finish(t.Context(), workspaceID, again, (*transaction).process); n != 0 || err != nil {
		t.Errorf("%d are finished twice, %v", n, err)
	}
	w.Wants(1, "select count(*) from resource.supporters where tenant_id = $1", workspaceID)
	for failures := 1; failures < tries; failures++ {
		w.Wants(1, inState+` and failures = $3
			and retry_at - now() between interval '1 second' * ($3 ^ 4 - 60) and interval '1 second' * $3 ^ 4`,
			broken, "accepted", failures)
		w.Exec("update resource.submissions set retry_at = now() + interval '1 hour' where id = $1", broken)
		finishes(0, false) // it is not due
		w.Exec("update resource.submissions set retry_at = now() where id = $1", broken)
		finishes(failures/(tries-1), true)
	}
	w.Wants(1, inState+" and reasons = to_jsonb(array[$3::text])", broken, "rejected", engage.ReasonFailed)
	finishes(0, false)
}
