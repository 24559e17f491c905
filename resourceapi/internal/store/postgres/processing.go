package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// Submissions with the status "accepted" wait for a worker. It finishes a batch of one workspace in one transaction: if
// the process stops at any point, either nothing or everything has happened, and two workers do not finish the same
// submission (E5).

// tries is the number of failures after which a submission is rejected. The nth failure is followed by a wait of n^4
// seconds, which leaves about four hours to fix the cause.
const tries = 10

// due is the condition that a submission waits for a worker. It is the condition of the index submissions_waiting,
// without the submissions that failed a short time ago.
const due = "status = 'accepted' and (retry_at is null or retry_at <= now())"

// untilNow is inMonths from since to now.
func untilNow(since time.Time) string { return inMonths(since, time.Now().Add(maxClockSkew)) }

// NextWaiting returns the workspace with the lowest id above after that has waiting submissions, or uuid.Nil. It
// ignores submissions that were accepted before the month of since.
func (e *Engage) NextWaiting(ctx context.Context, after uuid.UUID, since time.Time) (uuid.UUID, error) {
	next, err := oneRow(ctx, e.pool, pgx.ErrNoRows, pgx.RowTo[uuid.UUID],
		"select tenant_id from resource.submissions where tenant_id > $1 and "+due+untilNow(since)+
			" order by tenant_id limit 1", after)
	if errors.Is(err, pgx.ErrNoRows) {
		return uuid.Nil, nil
	}
	return next, err
}

// A waiting is a submission that is not finished.
type waiting struct {
	ID        uuid.UUID
	CreatedAt time.Time
}

// ProcessWaiting finishes submissions of a workspace that were accepted in the month of since or later, up to limit,
// and returns how many. If they cannot be finished together, it finishes those that can be finished alone, and the
// error has the causes of the others.
func (e *Engage) ProcessWaiting(
	ctx context.Context, workspaceID uuid.UUID, since time.Time, limit int,
) (finished int, err error) {
	all, err := allRows(ctx, e.pool, pgx.RowToStructByName[waiting],
		"select id, created_at from resource.submissions where tenant_id = $1 and "+due+untilNow(since)+notErased+
			" limit $2", workspaceID, limit)
	if err != nil || len(all) == 0 {
		return 0, outcome(err)
	}
	finished, err = e.finish(ctx, workspaceID, all, (*transaction).process)
	if err == nil {
		return finished, nil
	}
	var causes []error
	for _, one := range all {
		if ctx.Err() != nil {
			break
		}
		n, err := e.finish(ctx, workspaceID, []waiting{one}, (*transaction).process)
		if err != nil {
			causes = append(causes, err)
			n, err = e.finish(ctx, workspaceID, []waiting{one}, (*transaction).recordFailure)
		}
		if finished += n; err != nil {
			return finished, outcome(err)
		}
	}
	return finished, errors.Join(causes...)
}

// finish runs work for submissions that may have been finished meanwhile, and returns how many it has finished.
func (e *Engage) finish(
	ctx context.Context, workspaceID uuid.UUID, all []waiting, work func(*transaction, *batch),
) (int, error) {
	ctx, cancel := bounded(ctx, workTimeout)
	defer cancel()
	b := &batch{workspaceID: workspaceID, first: all[0].CreatedAt, last: all[0].CreatedAt}
	for _, one := range all {
		b.ids = append(b.ids, one.ID)
		if one.CreatedAt.Before(b.first) {
			b.first = one.CreatedAt
		}
		if one.CreatedAt.After(b.last) {
			b.last = one.CreatedAt
		}
	}
	if err := inBatch(ctx, e.pool, func(t *transaction) { work(t, b) }); err != nil {
		return 0, err
	}
	return len(b.taken), nil
}

// A batch is the submissions of one transaction.
type batch struct {
	workspaceID uuid.UUID
	ids         []uuid.UUID
	first, last time.Time           // the bounds of CreatedAt
	taken       []engage.Submission // those that are locked and not finished yet
}

// take reads the submissions that are not finished, without decoding their answers. With a lock, it leaves out those
// that another transaction has locked. The statement finds them by their ids alone: with a condition on the status, it
// might read all that wait.
func (t *transaction) take(b *batch, lock string) {
	all := rowsOf(t, "take submissions", pgx.RowToStructByNameLax[engage.Submission], `
		select id, tenant_id as workspace_id, form_id as form, created_at, trapped, answers as stored_answers, status
		from resource.submissions where tenant_id = $1 and id = any($2)`+
		inMonths(b.first, b.last)+notErased+" order by created_at, id"+lock, b.workspaceID, b.ids)
	b.taken = slices.DeleteFunc(all, func(s engage.Submission) bool { return s.Status != engage.Accepted })
}

const locked = " for update skip locked"

// process finishes a batch, unless another process has one of the same workspace.
func (t *transaction) process(b *batch) {
	mine := false
	t.row("claim a workspace", "select pg_try_advisory_xact_lock(hashtextextended('submissions of ' || $1::text, 0))",
		b.workspaceID.String()).read(&mine)
	if !mine {
		return
	}
	// The senders' addresses are locked before the submissions, as an erasure does. Answers and fields never change.
	t.take(b, "")
	senders := t.sendersOf(b)
	var emails []string
	for _, one := range senders {
		emails = append(emails, one.Email)
	}
	t.lockAddresses(b.workspaceID, emails...)
	t.take(b, locked)
	results := make([]result, len(b.taken))
	supporters := t.ensureSupporters(b, senders)
	for i, s := range b.taken {
		if results[i] = (result{status: engage.Processed, supporter: supporters[s.ID]}); s.Trapped {
			results[i] = result{status: engage.Rejected, reasons: []string{engage.ReasonTrapped}}
		}
	}
	t.storeResults(b, results)
}

// recordFailure counts a failure of the one submission of a batch, and rejects it after the last try, without reading
// the answers, which may be the cause.
func (t *transaction) recordFailure(b *batch) {
	t.take(b, locked)
	if t.err != nil || len(b.taken) == 0 {
		return
	}
	months, failures := inMonths(b.first, b.last), 0
	t.row("count a failure", "select failures from resource.submissions where tenant_id = $1 and id = any($2)"+months,
		b.workspaceID, b.ids).read(&failures)
	if failures++; failures < tries {
		retryAt := t.now().Add(time.Duration(failures*failures*failures*failures) * time.Second)
		t.exec("count a failure", `update resource.submissions set failures = $3, retry_at = $4
			where tenant_id = $1 and id = any($2)`+months, b.workspaceID, b.ids, failures, retryAt)
		b.taken = nil
		return
	}
	t.storeResults(b, []result{{status: engage.Rejected, reasons: []string{engage.ReasonFailed}}})
}

// sendersOf finds the senders of submissions in their answers, by the ids of the submissions. A trapped submission has
// none.
func (t *transaction) sendersOf(b *batch) map[uuid.UUID]engage.Supporter {
	forms := map[uuid.UUID][]engage.Field{}
	for _, s := range b.taken {
		forms[s.Form] = nil
	}
	type form struct {
		ID     uuid.UUID
		Fields []engage.Field
	}
	for _, one := range rowsOf(t, "read the fields of forms", pgx.RowToStructByName[form],
		"select id, fields from resource.forms where tenant_id = $1 and id = any($2)",
		b.workspaceID, slices.Collect(maps.Keys(forms))) {
		forms[one.ID] = one.Fields
	}
	senders := map[uuid.UUID]engage.Supporter{}
	for _, s := range b.taken {
		if !s.Trapped {
			t.fail("read the answers of a submission", json.Unmarshal(s.StoredAnswers, &s.Answers))
			senders[s.ID] = engage.SupporterOf(forms[s.Form], s.Answers)
		}
	}
	return senders
}

// ensureSupporters returns the supporters of the senders, by the ids of the submissions. A sender with a known e-mail
// address is the existing supporter, who is not changed: the sender has not proved to be that person (E6).
func (t *transaction) ensureSupporters(b *batch, senders map[uuid.UUID]engage.Supporter) map[uuid.UUID]*uuid.UUID {
	var ids []uuid.UUID
	var emails, phones, names []string
	byEmail, supporters := map[string]*uuid.UUID{}, map[uuid.UUID]*uuid.UUID{}
	for _, s := range b.taken {
		one, ok := senders[s.ID]
		if !ok {
			continue
		}
		if known := byEmail[one.Email]; known != nil && one.Email != "" {
			supporters[s.ID] = known
			continue
		}
		id := uuid.Must(uuid.NewV7())
		ids, emails = append(ids, id), append(emails, one.Email)
		phones, names = append(phones, one.Phone), append(names, one.Name)
		supporters[s.ID], byEmail[one.Email] = &id, &id
	}
	if len(ids) == 0 {
		return supporters
	}
	// Citus counts the rows of a conflict as inserted, too, so the ids are returned.
	added := rowsOf(t, "add supporters", pgx.RowTo[uuid.UUID], `
		insert into resource.supporters (id, tenant_id, email, phone, name, canonical)
		select n.id, $1, nullif(n.email, ''), nullif(n.phone, ''), nullif(n.name, ''), true
		from unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) as n (id, email, phone, name)
		on conflict (tenant_id, email) do nothing returning id`, b.workspaceID, ids, emails, phones, names)
	if len(added) == len(ids) {
		return supporters
	}
	type known struct {
		ID    uuid.UUID
		Email string
	}
	for _, one := range rowsOf(t, "find supporters", pgx.RowToStructByName[known],
		"select id, email from resource.supporters where tenant_id = $1 and email = any($2)", b.workspaceID, emails) {
		*byEmail[one.Email] = one.ID
	}
	return supporters
}

// A result is what has become of a submission.
type result struct {
	status    engage.Status
	supporter *uuid.UUID // nil unless it is processed
	reasons   []string   // none if it is processed
}

// storeResults stores the results of a batch, whose submissions have no supporter and no reasons yet.
func (t *transaction) storeResults(b *batch, results []result) {
	n := len(b.taken)
	if t.err != nil || n == 0 {
		return
	}
	ids, created, supporters := make([]uuid.UUID, n), make([]time.Time, n), make([]*uuid.UUID, n)
	states, reasons, at := make([]string, n), make([]string, n), make([]time.Time, n)
	left := map[uuid.UUID]int{}
	for i, s := range b.taken {
		ids[i], created[i], supporters[i] = s.ID, s.CreatedAt, results[i].supporter
		content, err := json.Marshal(append([]string{}, results[i].reasons...))
		t.fail("encode the reasons of a submission", err)
		states[i], reasons[i] = string(results[i].status), string(content)
		left[s.Form]++
	}
	last := map[uuid.UUID]time.Time{}
	byBytes := func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }
	for _, form := range slices.SortedFunc(maps.Keys(left), byBytes) { // in one order, or two batches could deadlock
		last[form] = t.nextMoment(b.workspaceID, form.String(), left[form])
	}
	for i, s := range b.taken {
		left[s.Form]--
		at[i] = last[s.Form].Add(time.Duration(-left[s.Form]) * time.Microsecond)
	}
	t.exec("store the results of submissions", `
		update resource.submissions s set status = n.status, supporter_id = n.supporter_id, finished_at = n.at,
			reasons = n.reasons::jsonb -- Citus refuses jsonb_build_array here
		from unnest($2::uuid[], $3::timestamptz[], $4::text[], $5::uuid[], $6::text[], $7::timestamptz[])
			as n (id, accepted_at, status, supporter_id, reasons, at)
		where s.tenant_id = $1 and s.id = any($2) and s.id = n.id and s.created_at = n.accepted_at`+
		inMonths(b.first, b.last),
		b.workspaceID, ids, created, states, supporters, reasons, at)
}

// WaitingSubmissions counts the submissions that are not finished, except of forms that are being erased, and those of
// them that failed and wait for the next try. It returns how long the oldest of the others has been due.
func (s *Store) WaitingSubmissions(ctx context.Context) (all, failed int, oldest time.Duration, err error) {
	var seconds float64
	err = s.pool.QueryRow(ctx, `select count(*)::int, count(*) filter (where not (`+due+`))::int,
		extract(epoch from coalesce(now() - min(coalesce(retry_at, created_at)) filter (where `+due+`), '0'))::float8
		from resource.submissions where status = 'accepted' and not exists (select from resource.forms f
			where f.tenant_id = submissions.tenant_id and f.id = form_id and f.erased_at is not null)`).
		Scan(&all, &failed, &seconds)
	return all, failed, time.Duration(seconds * float64(time.Second)), outcome(err)
}
