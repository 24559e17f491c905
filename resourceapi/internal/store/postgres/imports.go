package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/shared/contract/usage"
)

// maxWaiting is about how many imports of one workspace may wait: concurrent ones may each take the last place. Each
// takes up to 2 MiB.
const maxWaiting = 100

// AcceptImport stores a file until it is processed. It returns programme.ErrImportsWait.
func (w *writing) AcceptImport(
	ctx context.Context, workspaceID uuid.UUID, by programme.Importer, content string,
) (uuid.UUID, error) {
	t, id := w.transaction(ctx), uuid.Must(uuid.NewV7())
	stored := t.exec("keep an import", `
		insert into resource.imports (id, tenant_id, user_id, content, credential_id, credential_kind)
		select $1, $2, $3, $4, $6, $7
		where (select count(*) from (
			select from resource.imports where tenant_id = $2 and status = 'accepted' limit $5) w) < $5`,
		id, workspaceID, by.User, content, maxWaiting, by.Credential, usage.Kind(by.Personal))
	t.require(stored > 0, programme.ErrImportsWait)
	return id, t.err
}

// Import reads the state of an import. It returns programme.ErrNotFound, also for an import of another workspace.
func (s *Store) Import(ctx context.Context, workspaceID, id uuid.UUID) (programme.Import, error) {
	return oneRow(ctx, s.pool, programme.ErrNotFound, pgx.RowToStructByNameLax[programme.Import],
		"select id, status, imported, errors from resource.imports where tenant_id = $1 and id = $2", workspaceID, id)
}

// ProcessImport takes a waiting import, if there is one, of the workspace whose turn it is, and either creates its
// programmes or rejects it, in one transaction: if the process stops at any point, the import is either done once or
// still waits. Other instances take imports of other workspaces.
func (s *Store) ProcessImport(ctx context.Context) (found bool, err error) {
	workspaces, err := s.workspacesInTurn(ctx)
	if err != nil {
		return false, outcome(fmt.Errorf("find the workspaces whose imports wait: %w", err))
	}
	if len(workspaces) == 0 {
		return false, nil
	}
	taken, err := s.processOne(ctx, workspaces, s.insertAhead)
	for try := 1; errors.Is(err, errOvertaken); try++ {
		insert := s.insertAhead
		if try == triesAhead {
			insert = insertLocked
		}
		taken, err = s.processOne(ctx, []uuid.UUID{taken.workspaceID}, insert)
	}
	if err != nil && taken != nil {
		err = errors.Join(err, s.postpone(ctx, *taken, err))
	}
	return taken != nil, outcome(err)
}

// insertFunc adds programmes to a list.
type insertFunc func(t *transaction, workspaceID uuid.UUID, all []programme.Upsert)

// processOne processes an import of one of the workspaces within workTimeout, or three times the time limit of an
// operation if that is longer. taken is nil if there is none.
func (s *Store) processOne(
	ctx context.Context, workspaces []uuid.UUID, insertLong insertFunc,
) (taken *waitingImport, err error) {
	limit := max(workTimeout, 3*s.pool.timeout)
	ctx, cancel := bounded(ctx, limit)
	defer cancel()
	err = inTransaction(ctx, s.pool, func(t *transaction) {
		if taken = t.takeImport(workspaces); taken != nil {
			t.exec("give an import its time",
				"select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)",
				fmt.Sprint((limit * 3 / 4).Milliseconds()), fmt.Sprint((limit / 4).Milliseconds()))
			t.processImport(*taken, insertLong)
		}
	})
	return taken, err
}

// maxTries is how often an import that cannot be written is tried.
const maxTries = 5

// postpone schedules a retry of a failed import behind the others, so that an import that always fails does not block
// them. After maxTries it is rejected. A failure that is not caused by the import, such as a lost connection, does
// not count as a try. The time of the import may be over.
func (s *Store) postpone(ctx context.Context, failed waitingImport, cause error) error {
	return s.pool.transact(ctx, func(t *transaction) {
		t.exec("", "update resource.import_turns set last_at = now() where tenant_id = $1", failed.workspaceID)
		tries := 0
		waits := t.row("", `select tries from resource.imports
			where tenant_id = $1 and id = $2 and status = 'accepted' for update`, failed.workspaceID, failed.id).
			find(&tries)
		if causedByImport(cause) {
			tries++
		}
		switch {
		case !waits:
		case tries >= maxTries:
			t.finishImport(failed, 0, []programme.RowError{{Row: 1, Message: notWritten}})
		default:
			t.exec("", `update resource.imports set tries = $3, try_at = now() + interval '30 seconds'
				where tenant_id = $1 and id = $2`, failed.workspaceID, failed.id, tries)
		}
	})
}

// notWritten is the error of an import that failed maxTries times.
const notWritten = "The import could not be written in time. No rows were imported. Send it again later, or split " +
	"it into smaller files."

// causedByImport reports whether the import itself may have caused the failure: it took too long, or Postgres refused
// it.
func causedByImport(cause error) bool {
	if fault, ok := errors.AsType[*pgconn.PgError](cause); ok {
		return fault.Code == queryCanceled || fault.Code == lockNotAvailable || !temporary(fault.Code)
	}
	return errors.Is(cause, context.DeadlineExceeded)
}

func (t *transaction) processImport(taken waitingImport, insertLong insertFunc) {
	rows, byExternalID, wrong := programme.ReadImport(taken.content)
	if byExternalID {
		// The rows are written before the result, because the programmes decide whether they are valid.
		results := t.upsert(taken.workspaceID, rows, true)
		wrong = programme.RowErrors(rows, results)
		t.finishImport(taken, len(rows), wrong)
		if len(wrong) == 0 {
			t.countImport(taken, len(rows))
		}
		return
	}
	t.finishImport(taken, len(rows), wrong)
	switch { // last, as it locks the list
	case len(rows) > longImport:
		insertLong(t, taken.workspaceID, rows)
	case len(rows) > 0:
		insertLocked(t, taken.workspaceID, rows)
	}
	if len(wrong) == 0 {
		t.countImport(taken, len(rows))
	}
}

// finishImport stores the result of an import: the number of its rows, or what is wrong with them.
func (t *transaction) finishImport(taken waitingImport, rows int, wrong []programme.RowError) {
	status := programme.ImportProcessed
	if len(wrong) > 0 {
		status, rows = programme.ImportRejected, 0
	} else {
		wrong = []programme.RowError{}
	}
	t.exec("finish an import", `
		update resource.imports
		set status = $3, imported = $4, errors = $5, content = null, finished_at = now()
		where tenant_id = $1 and id = $2`,
		taken.workspaceID, taken.id, string(status), rows, wrong)
}

// insertLocked locks the list and adds all.
func insertLocked(t *transaction, workspaceID uuid.UUID, all []programme.Upsert) {
	t.insertProgrammes(workspaceID, all, t.nextMoment(workspaceID, programmesList, len(all)))
}

// insertProgrammes adds all in one statement. Each has a distinct time; the last row has the newest, which is last.
func (t *transaction) insertProgrammes(workspaceID uuid.UUID, all []programme.Upsert, last time.Time) {
	created := make([]*programme.Programme, len(all))
	for i, one := range all {
		created[i] = new(programme.New(uuid.Must(uuid.NewV7()), one.New))
	}
	t.writeProgrammes(workspaceID, created, nil, last)
}

// A waitingImport is an import taken for processing.
type waitingImport struct {
	id, workspaceID, user uuid.UUID
	content               string
	credential            *uuid.UUID // that sent it, or nil if it is not known
	kind                  string     // of the credential
}

// takeImport takes an import of the first workspace that has one and whose turn no other worker has. It locks the turn
// and the import until the transaction ends. It returns nil if there is none.
func (t *transaction) takeImport(workspaces []uuid.UUID) *waitingImport {
	for _, workspaceID := range workspaces {
		taken := &waitingImport{workspaceID: workspaceID}
		turns := t.exec("take the turn of a workspace", `
			update resource.import_turns set last_at = now()
			where tenant_id = (
				select tenant_id from resource.import_turns where tenant_id = $1 for update skip locked)`, workspaceID)
		if turns == 1 && t.row("take an import", `
			select id, user_id, content, credential_id, coalesce(credential_kind, '') from resource.imports
			where tenant_id = $1 and status = 'accepted' and try_at <= now()
			order by try_at limit 1 for update skip locked`, workspaceID).
			find(&taken.id, &taken.user, &taken.content, &taken.credential, &taken.kind) {
			return taken
		}
	}
	return nil
}

// workspacesInTurn returns some of the workspaces with an import that is due: first those that never had a turn, then
// those whose last turn is the oldest. So a workspace with many imports delays another by at most one import. The
// query reads one index entry per workspace, however many imports it has.
func (s *Store) workspacesInTurn(ctx context.Context) ([]uuid.UUID, error) {
	return allRows(ctx, s.pool, pgx.RowTo[uuid.UUID], `
		with recursive workspace (tenant_id) as (
			(select tenant_id from resource.imports where status = 'accepted' order by tenant_id limit 1)
			union all
			select (select i.tenant_id from resource.imports i
				where i.status = 'accepted' and i.tenant_id > w.tenant_id order by i.tenant_id limit 1)
			from workspace w where w.tenant_id is not null
		), waiting as (
			select w.tenant_id, (select min(i.try_at) from resource.imports i
				where i.tenant_id = w.tenant_id and i.status = 'accepted') as try_at
			from workspace w where w.tenant_id is not null
		), added as (
			insert into resource.import_turns (tenant_id, last_at) select tenant_id, '-infinity' from waiting w
			where not exists (select from resource.import_turns t where t.tenant_id = w.tenant_id)
			on conflict do nothing
		)
		select w.tenant_id from waiting w left join resource.import_turns t on t.tenant_id = w.tenant_id
		where w.try_at <= now() order by t.last_at nulls first, w.try_at limit 32`)
}

// Inserting thousands of programmes takes seconds, mostly for the search index, and a locked list stays locked until
// the transaction ends: other writes of the workspace would be refused meanwhile. So a long import first inserts its
// programmes with times ahead of the expected end of the insertion, and locks the list afterwards, only for the
// commit. To make records still become visible in the order of their times (programmes.go), the import checks, with the
// list locked, whether a write got a time as late as its own. That happens only if the import took longer than
// estimated; it then starts again with a larger estimate.
const (
	longImport = 500                    // programmes; shorter imports are inserted with the list locked
	firstPace  = 80 * time.Microsecond  // estimate for each programme, until an import took longer
	leadTime   = 500 * time.Millisecond // how long before its times an import may lock the list
	maxAhead   = 10 * time.Second       // leaves enough of workTimeout
	triesAhead = 2                      // then it is inserted with the list locked, so that it completes
)

// errOvertaken means that a write got a time as late as those of the import.
var errOvertaken = errors.New("a write has overtaken the import")

// insertAhead adds all and locks the list afterwards. The error of the transaction may be errOvertaken.
func (s *Store) insertAhead(t *transaction, workspaceID uuid.UUID, all []programme.Upsert) {
	rows := time.Duration(len(all))
	while := min(max(firstPace, time.Duration(s.importPace.Load()))*rows, maxAhead)
	first := t.timeAhead(workspaceID, while+leadTime)
	began := time.Now() // not earlier, so that the list is not locked more than leadTime before first
	t.insertProgrammes(workspaceID, all, first.Add((rows-1)*time.Microsecond))
	took := time.Since(began)
	if t.err == nil {
		s.importPace.Store(int64(took * 5 / 4 / rows))
	}
	t.exec("wait for the times of an import", "select pg_sleep($1)", max(0, while-took).Seconds())
	t.nextMoment(workspaceID, programmesList, 1)
	var overtaken bool
	t.row("", `
		select (select count(*) from resource.programmes where tenant_id = $1 and created_at >= $2) > $3
			or exists (select from resource.programmes
				where tenant_id = $1 and updated_at > created_at and updated_at >= $2)`,
		workspaceID, first, len(all)).read(&overtaken)
	t.require(!overtaken, errOvertaken)
}

// timeAhead returns a time later than any that writes get during while. If the newest time in the list is ahead of
// the clock, each write gets the microsecond after the previous one.
func (t *transaction) timeAhead(workspaceID uuid.UUID, while time.Duration) (at time.Time) {
	t.row("choose the times of an import", `
		select greatest(clock_timestamp() + $2::interval, interval '100 ms' + greatest(
			(select max(created_at) from resource.programmes where tenant_id = $1),
			(select max(updated_at) from resource.programmes where tenant_id = $1 and updated_at > created_at)))`,
		workspaceID, while).read(&at)
	return at
}
