package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An erasure of many submissions is accepted in one transaction, after which nothing of it can be read: a form or a
// supporter has erased_at, and every statement that reads submissions has the condition notErased. A worker then
// deletes the submissions in batches, each in a transaction of its own that counts them in the erasure's row, and the
// form or the supporter with the last batch. If a worker stops, another one continues, and the erasure is
// counted and recorded once.

const (
	maxErasures   = 20    // of a workspace that are not finished; each read of submissions leaves out all of them
	erasedAtOnce  = 500   // submissions of a batch
	comparedOnce  = 2_000 // submissions of a batch that are compared with an address
	erasuresTried = 8     // erasures that a worker looks at to find one that no other worker has
)

// keepErasures is how long the status of a finished erasure can be read (contract, section 6a).
const keepErasures = 30 * 24 * time.Hour

// notErased is the condition, preceded by "and", that a submission of the workspace $1 is in no running erasure.
var notErased = `
	and not array[form_id, supporter_id] && array(
		select unnest(running.subjects) from resource.erasures running where running.tenant_id = $1
		and running.status = 'accepted')
	and (supporter_id is not null or not exists (
		select from resource.erasures running where running.tenant_id = $1 and running.status = 'accepted'
		and running.accepted_at >= created_at and ` +
	hasAddress("answers", "running.addresses") + `))`

// An erasureRow is an erasure of a form or a supporter, as stored.
type erasureRow struct {
	ID, TenantID uuid.UUID
	Kind         string
	Subjects     []uuid.UUID // a form, or the supporters of one person
	Addresses    []string    // the spellings of the person's address
	UserID       uuid.UUID   // who asked for it
	RequestID    string
	Deleted      int
	AcceptedAt   time.Time
	SearchedID   uuid.UUID
}

// target returns the table of the erased records, and a condition that selects their submissions. $2 has the Subjects.
func (e *erasureRow) target() (table, submissions string) {
	if e.Kind == engage.ErasedForm {
		return "resource.forms", "form_id = any($2)"
	}
	return "resource.supporters", "supporter_id = any($2)"
}

// recordErasure adds an event to the audit log of the workspace, without what was erased.
func (t *transaction) recordErasure(
	workspaceID, by uuid.UUID, kind string, id uuid.UUID, submissions int, request string,
) {
	t.exec("record an erasure", "select account.record_erasure($1, $2, $3, $4, $5, $6, $7)",
		uuid.Must(uuid.NewV7()), workspaceID, by, kind, id, submissions, request)
}

// RecordExport records in the audit log of the workspace that the user by exports the submissions of a form.
func (e *Engage) RecordExport(ctx context.Context, workspaceID, by, form uuid.UUID, format string) error {
	return e.exec(ctx, "record an export", "select account.record_export($1, $2, $3, $4, $5, $6)",
		uuid.Must(uuid.NewV7()), workspaceID, by, form, map[string]string{"format": format}, web.RequestID(ctx))
}

// EraseSubmission implements engage.Writer.
func (w *writing) EraseSubmission(ctx context.Context, workspaceID, id, by uuid.UUID) error {
	t, deleted := w.transaction(ctx), int64(0)
	for _, months := range monthsOf(id) {
		if deleted == 0 {
			deleted = t.exec("erase a submission",
				"delete from resource.submissions where tenant_id = $1 and id = $2"+months+notErased, workspaceID, id)
		}
	}
	t.require(deleted > 0, engage.ErrNoSubmission)
	t.recordErasure(workspaceID, by, "submission", id, 0, web.RequestID(ctx))
	return t.err
}

// EraseForm implements engage.Writer. The form is locked first, so that no submission arrives meanwhile.
func (w *writing) EraseForm(ctx context.Context, workspaceID, id, by uuid.UUID) (engage.Erasure, error) {
	t := w.transaction(ctx)
	t.form("", formSQL+" for update", workspaceID, id)
	e := erasureRow{
		TenantID:  workspaceID,
		Kind:      engage.ErasedForm,
		Subjects:  []uuid.UUID{id},
		UserID:    by,
		RequestID: web.RequestID(ctx),
	}
	if t.countUpTo(e) > engage.MaxErasedAtOnce {
		// The time is a parameter: a distributed Postgres does not accept now() in coalesce.
		t.exec("close a form that is erased", `update resource.forms set erased_at = $3, version = version + 1,
			disabled_at = coalesce(disabled_at, $3) where tenant_id = $1 and id = $2`, workspaceID, id, time.Now())
		return t.acceptErasure(e)
	}
	t.deleteBatch(&e, engage.MaxErasedAtOnce)
	return t.finishErasure(e)
}

// EraseSupporter implements engage.Writer. Earlier releases stored one supporter for each spelling of an address: all
// of them are erased.
func (w *writing) EraseSupporter(ctx context.Context, workspaceID, id, by uuid.UUID) (engage.Erasure, error) {
	t, email := w.transaction(ctx), ""
	found := t.row("find a supporter", `select coalesce(email, '') from resource.supporters
		where tenant_id = $1 and id = $2 and erased_at is null`, workspaceID, id).find(&email)
	t.require(found, engage.ErrNoSupporter)
	email = spelling.Key(email)
	person := t.lockPerson(workspaceID, email)
	locked := t.exec("lock a supporter", `select from resource.supporters
		where tenant_id = $1 and id = $2 and erased_at is null for update`, workspaceID, id)
	t.require(locked > 0, engage.ErrNoSupporter) // else erased meanwhile
	others := slices.DeleteFunc(person, func(one uuid.UUID) bool { return one == id })
	return t.erasePerson(workspaceID, append([]uuid.UUID{id}, others...), email, by)
}

// EraseAddress implements engage.Writer.
func (w *writing) EraseAddress(
	ctx context.Context, workspaceID uuid.UUID, email string, by uuid.UUID,
) (engage.Erasure, error) {
	t := w.transaction(ctx)
	return t.erasePerson(workspaceID, t.lockPerson(workspaceID, email), email, by)
}

// lockAddresses makes the transaction the only one of the workspace that adds or erases the supporters with these
// addresses, of which "" is none. Without it, an erasure would not find a supporter whom a worker has added and not
// committed yet. It comes before the locks of submissions. The locks are taken in one order, so that two workers do not
// wait for each other.
func (t *transaction) lockAddresses(workspaceID uuid.UUID, emails ...string) {
	t.exec("lock addresses", `
		select pg_advisory_xact_lock(key) from (
			select distinct hashtextextended('address ' || $1::text || ' ' || email, 0) as key
			from unnest($2::text[]) email where email <> '' order by key) keys`, workspaceID.String(), emails)
}

// lockPerson locks an address in its canonical spelling, unless it is empty, and then locks and returns its supporters.
// Earlier releases stored one supporter for each spelling. The index supporters_as_typed contains only these rows.
func (t *transaction) lockPerson(workspaceID uuid.UUID, email string) (person []uuid.UUID) {
	if email == "" {
		return nil
	}
	t.lockAddresses(workspaceID, email)
	person = t.otherSupporters(workspaceID, email)
	var id uuid.UUID
	if t.row("find a supporter", "select id from resource.supporters where tenant_id = $1 and email = $2 for update",
		workspaceID, email).find(&id) {
		person = append(person, id)
	}
	return person
}

// otherSupporters locks and returns the supporters whose address is stored in another spelling.
func (t *transaction) otherSupporters(workspaceID uuid.UUID, email string) (others []uuid.UUID) {
	for _, one := range rowsOf(t, "find a supporter", pgx.RowToStructByNameLax[engage.StoredSupporter], `
		select id, email from resource.supporters
		where tenant_id = $1 and email <> $2 and canonical is null
			and (octet_length(email) <> length(email) or strpos(email, 'xn--') > 0)
		order by created_at, id for update`, workspaceID, email) {
		if spelling.Key(*one.Email) == email {
			others = append(others, one.ID)
		}
	}
	return others
}

// erasePerson erases supporters, who are locked, and the submissions without a supporter that have the address.
func (t *transaction) erasePerson(
	workspaceID uuid.UUID, person []uuid.UUID, email string, by uuid.UUID,
) (engage.Erasure, error) {
	e := erasureRow{
		TenantID:  workspaceID,
		Kind:      engage.ErasedSupporter,
		Subjects:  person,
		UserID:    by,
		RequestID: web.RequestID(t.ctx),
	}
	if email != "" {
		e.Addresses = spelling.Spellings(email)
	}
	linked := t.countUpTo(e)
	unlinked, few := t.unlinked(workspaceID, e.Addresses)
	if !few || linked+len(unlinked) > engage.MaxErasedAtOnce {
		t.exec("hide a supporter who is erased", `update resource.supporters set erased_at = now(), email = null,
			phone = null, name = null where tenant_id = $1 and id = any($2)`, workspaceID, person)
		return t.acceptErasure(e)
	}
	e.Deleted = int(t.exec("erase what was sent with an address", `delete from resource.submissions
		where tenant_id = $1 and id = any($2) and supporter_id is null`, workspaceID, unlinked))
	t.deleteBatch(&e, engage.MaxErasedAtOnce)
	if t.err == nil && e.Deleted == 0 && len(person) == 0 {
		return engage.Erasure{Kind: e.Kind, Status: engage.Processed}, nil // nothing was erased
	}
	return t.finishErasure(e)
}

// maxCompared is the number of submissions without a supporter up to which a request compares them with an address.
const maxCompared = 10_000

// unlinked returns the submissions with one of the addresses that were rejected or not processed yet, at most one more
// than a request erases. few is false if the workspace has too many to compare.
func (t *transaction) unlinked(workspaceID uuid.UUID, addresses []string) (ids []uuid.UUID, few bool) {
	if len(addresses) == 0 {
		return nil, true
	}
	t.row("find what was sent with an address", `
		with unlinked as materialized (
			select id, answers from resource.submissions
			where tenant_id = $1 and supporter_id is null`+notErased+` limit $3
		)
		select array(select u.id from unlinked u where `+hasAddress("u.answers", "$2")+` limit $4),
			(select count(*) from unlinked) < $3`,
		workspaceID, addresses, maxCompared+1, engage.MaxErasedAtOnce+1).read(&ids, &few)
	return ids, few
}

// hasAddress returns the condition that one of the answers is one of the spellings of an address.
func hasAddress(answers, addresses string) string {
	return "exists (select from jsonb_each_text(" + answers + ") sent where lower(sent.value) = any(" + addresses + "))"
}

// countUpTo counts the submissions of an erasure, up to one more than a request erases.
func (t *transaction) countUpTo(e erasureRow) (submissions int) {
	_, which := e.target()
	t.row("count the submissions to erase", `select count(*) from (
		select from resource.submissions where tenant_id = $1 and `+which+` limit $3) counted`,
		e.TenantID, e.Subjects, engage.MaxErasedAtOnce+1).read(&submissions)
	return submissions
}

// acceptErasure stores an erasure for the worker. It returns engage.ErrTooManyErasures.
func (t *transaction) acceptErasure(e erasureRow) (engage.Erasure, error) {
	e.ID = uuid.Must(uuid.NewV7())
	stored := t.exec("store an erasure", `
		insert into resource.erasures (tenant_id, id, kind, subjects, addresses, user_id, request_id)
		select $1, $2, $3, $4, $5, $6, $7
		where (select count(*) from (
			select from resource.erasures where tenant_id = $1 and status = 'accepted' limit $8) w) < $8`,
		e.TenantID, e.ID, e.Kind, append([]uuid.UUID{}, e.Subjects...), e.Addresses, e.UserID, e.RequestID, maxErasures)
	t.require(stored > 0, engage.ErrTooManyErasures)
	return engage.Erasure{ID: e.ID, Kind: e.Kind, Status: engage.Accepted}, t.err
}

// Erasure reads an erasure that a worker does, or returns engage.ErrNoErasure.
func (e *Engage) Erasure(ctx context.Context, workspaceID, id uuid.UUID) (engage.Erasure, error) {
	return oneRow(ctx, e.pool, engage.ErrNoErasure, pgx.RowToStructByName[engage.Erasure],
		`select id, kind, status, deleted from resource.erasures where tenant_id = $1 and id = $2
		and (finished_at is null or finished_at > now() - $3::interval)`, workspaceID, id, keepErasures)
}

// ProcessErasure deletes a batch of the erasure that has waited longest since its last batch, of all workspaces, and
// reports whether there was one that no other worker has.
func (s *Store) ProcessErasure(ctx context.Context) (found bool, err error) {
	waiting, err := allRows(ctx, s.pool, pgx.RowToStructByNameLax[erasureRow], `
		select tenant_id, id from resource.erasures
		where status = 'accepted' order by worked_at limit $1`, erasuresTried)
	if err != nil {
		err = fmt.Errorf("find erasures: %w", err)
	}
	ctx, cancel := bounded(ctx, workTimeout)
	defer cancel()
	for i := 0; err == nil && !found && i < len(waiting); i++ {
		err = inTransaction(ctx, s.pool, func(t *transaction) { found = t.processErasure(waiting[i]) })
		if err != nil {
			// The other erasures come first next time. This is outside the transaction, whose time may be over.
			err = errors.Join(err, s.exec(ctx, "postpone an erasure", `update resource.erasures set worked_at = now()
				where tenant_id = $1 and id = $2`, waiting[i].TenantID, waiting[i].ID))
		}
	}
	return found, outcome(err)
}

// processErasure deletes the next batch of an erasure, and ends the erasure with the last one. It returns false if
// another worker has it, or if it has ended.
func (t *transaction) processErasure(waiting erasureRow) (found bool) {
	t.exec("give an erasure its time", "select set_config('statement_timeout', '15s', true)")
	taken := rowsOf(t, "take an erasure", pgx.RowToStructByName[erasureRow], `
		select id, tenant_id, kind, subjects, addresses, user_id, request_id, deleted, accepted_at, searched_id
		from resource.erasures where tenant_id = $1 and id = $2 and status = 'accepted' for update skip locked`,
		waiting.TenantID, waiting.ID)
	if len(taken) == 0 {
		return false
	}
	e := taken[0]
	if t.deleteNext(&e) {
		_, _ = t.finishErasure(e) // t has the error
		t.exec("note the progress of an erasure", `update resource.erasures set status = 'processed', deleted = $3,
			addresses = null, finished_at = now() where tenant_id = $1 and id = $2`, e.TenantID, e.ID, e.Deleted)
	} else {
		t.exec("note the progress of an erasure", `update resource.erasures set deleted = $3, searched_id = $4,
			worked_at = now() where tenant_id = $1 and id = $2`, e.TenantID, e.ID, e.Deleted, e.SearchedID)
	}
	return true
}

// deleteNext deletes the next batch and reports whether nothing is left. It locks the form or the supporters, so that
// no submission is added to it meanwhile.
func (t *transaction) deleteNext(e *erasureRow) (last bool) {
	table, _ := e.target()
	t.exec("lock what is erased", "select from "+table+" where tenant_id = $1 and id = any($2) order by id for update",
		e.TenantID, e.Subjects)
	if deleted := t.deleteBatch(e, erasedAtOnce); deleted == erasedAtOnce || len(e.Addresses) == 0 {
		return deleted < erasedAtOnce
	}
	return t.deleteWithAddress(e)
}

// deleteBatch deletes up to limit submissions, adds their number to e.Deleted, and returns it.
func (t *transaction) deleteBatch(e *erasureRow, limit int) (deleted int) {
	_, which := e.target()
	deleted = int(t.exec("erase submissions", `
		with due as materialized (
			select id, created_at from resource.submissions where tenant_id = $1 and `+which+`
			limit $3 for update
		)
		delete from resource.submissions s using due
		where s.tenant_id = $1 and s.id = due.id and s.created_at = due.created_at`, e.TenantID, e.Subjects, limit))
	e.Deleted += deleted
	return deleted
}

// deleteWithAddress compares the next submissions with the address, and deletes those without a supporter that have it.
// It reports whether it has compared all.
func (t *transaction) deleteWithAddress(e *erasureRow) (last bool) {
	var deleted, compared int
	var searched *uuid.UUID
	t.row("erase what was sent with an address", `
		with next as materialized (
			select id, created_at, supporter_id, answers from resource.submissions
			where tenant_id = $1 and id > $2 order by id limit $3
		), gone as (
			delete from resource.submissions s using next
			where s.tenant_id = $1 and s.id = next.id and s.created_at = next.created_at and s.supporter_id is null
				and next.supporter_id is null and next.created_at <= $4 and `+hasAddress("next.answers", "$5")+`
			returning 1
		)
		select (select count(*) from gone), (select count(*) from next),
			(select id from next order by id desc limit 1)`,
		e.TenantID, e.SearchedID, comparedOnce, e.AcceptedAt, e.Addresses).read(&deleted, &compared, &searched)
	e.Deleted += deleted
	if searched != nil {
		e.SearchedID = *searched
	}
	return compared < comparedOnce
}

// finishErasure deletes the form or the supporters, of which no submission is left, and records the erasure.
func (t *transaction) finishErasure(e erasureRow) (engage.Erasure, error) {
	table, _ := e.target()
	t.exec("erase a "+e.Kind, "delete from "+table+" where tenant_id = $1 and id = any($2)", e.TenantID, e.Subjects)
	subject := uuid.Nil // of an address without a supporter
	if len(e.Subjects) > 0 {
		subject = e.Subjects[0]
	}
	t.recordErasure(e.TenantID, e.UserID, e.Kind, subject, e.Deleted, e.RequestID)
	return engage.Erasure{Kind: e.Kind, Status: engage.Processed, Deleted: e.Deleted}, t.err
}
