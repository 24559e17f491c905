package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/rest"
)

// arguments are the arguments of a statement.
type arguments []any

// add adds an argument and returns its parameter.
func (a *arguments) add(value any) string {
	*a = append(*a, value)
	return "$" + strconv.Itoa(len(*a))
}

// pageSQL builds the statement from fixed pieces, so that each combination of filters is one text with one plan;
// values are always parameters. It fetches one row more than the page holds, to know whether more follow.
func pageSQL(query programme.Query) (string, []any) {
	if !query.Filter.UpdatedSince.IsZero() {
		return changedSQL(query)
	}
	args := arguments{query.WorkspaceID}
	text := "select " + programmeColumns + " from resource.programmes where tenant_id = $1" +
		programmeFilterSQL(query.Filter, &args)
	if query.After != nil {
		// A row comparison lets the index start at the position (the order is descending throughout).
		text += " and (created_at, id) < (" + args.add(query.After.CreatedAt) + ", " + args.add(query.After.ID) + ")"
	}
	rows := args.add(query.Limit + 1)
	if query.Filter.Search != "" {
		// a search is slow anyway and is planned better for its text
		return text + newestFirst + rows, args
	}
	return limitedSQL(text, rows), args
}

// programmeFilterSQL returns the conditions of a filter except UpdatedSince, each preceded by "and ".
func programmeFilterSQL(f programme.Filter, args *arguments) string {
	text := ""
	if f.Status != "" {
		text += " and status = " + args.add(string(f.Status))
	}
	if f.ExternalID != "" {
		text += " and external_id = " + args.add(f.ExternalID)
	}
	if f.Search != "" {
		pattern := folded(args.add("%" + likeLiteral.Replace(f.Search) + "%"))
		text += fmt.Sprintf(" and (%s like %s or %s like %s)", folded("name"), pattern, folded("summary"), pattern)
	}
	return text
}

const newestFirst = " order by created_at desc, id desc limit "

// limitedSQL adds the order and the limit of a list, a parameter, to its SELECT.
//
// Postgres uses one plan for all requests only if it does not expect a plan for one of them to be much better, and
// planning each request adds a quarter to the cost of a list. For a limit that is a parameter it estimates a tenth of
// the rows below, which may be a hundred thousand programmes. So the subquery has the longest page as a constant limit.
// The parameter limit is applied twice, since a tenth is still too much if one workspace has most of the programmes.
func limitedSQL(text, rows string) string {
	text += newestFirst + strconv.Itoa(rest.MaxLimit+1)
	for range 2 {
		text = "select * from (" + text + ") bounded" + newestFirst + rows
	}
	return text
}

// likeLiteral escapes the characters that are special in LIKE.
var likeLiteral = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

func scanPage(rows pgx.Rows, query programme.Query) (page programme.Page, err error) {
	scan := scanProgramme
	if !query.Filter.UpdatedSince.IsZero() {
		scan = func(row pgx.CollectableRow) (programme.Programme, error) { return programmeOf(row, &page.Until) }
	}
	page.Sink = query.Into()
	if page.More, err = takeRows(rows, query.Limit, scan, page.Sink.Take); err != nil {
		return programme.Page{}, fmt.Errorf("read a page of programmes: %w", err)
	}
	return page, nil
}

// readRange adds the filter, the position and the limit to the SELECT of a list. whose are the parameters that select
// the list. readRange fetches one row more than the page holds, to know whether there is a next page.
func readRange[T any](
	ctx context.Context, pool *database, text, table string, whose arguments, r rest.Range, scan pgx.RowToFunc[T],
	take func(T) bool,
) (rest.End, error) {
	args := slices.Clone(whose)
	text += filterSQL(r.Filter, table+".", args.add)
	if r.After != nil {
		text += fmt.Sprintf(" and (%[1]s.created_at, %[1]s.id) < (%[2]s, %[3]s)",
			table, args.add(r.After.CreatedAt), args.add(r.After.ID))
	}
	text = limitedSQL(text, args.add(r.Limit+1))
	rows, _ := pool.Query(ctx, text, args...) // the rows have the error
	more, err := takeRows(rows, r.Limit, scan, take)
	return rest.End{More: more}, outcome(err)
}

// filterSQL returns the conditions of a filter except UpdatedSince, each preceded by "and ". prefix precedes the names
// of columns. The status is a constant in the text, so that PostgreSQL can use a partial index on it in a generic plan.
func filterSQL(f rest.Filter, prefix string, add func(any) string) string {
	text := ""
	if f.Status != "" {
		text += " and " + prefix + "status = " + quoteLiteral(f.Status)
	}
	if !f.CreatedSince.IsZero() {
		text += " and " + prefix + "created_at >= " + add(f.CreatedSince)
	}
	if !f.CreatedBefore.IsZero() {
		text += " and " + prefix + "created_at < " + add(f.CreatedBefore)
	}
	return text
}

// quoteLiteral returns text as an SQL literal. text must not contain a backslash.
func quoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// takeRows passes up to limit rows to take until it returns false. It reports whether more follow, and closes rows. A
// failure after the last row of the page is ignored.
func takeRows[T any](rows pgx.Rows, limit int, scan pgx.RowToFunc[T], take func(T) bool) (more bool, err error) {
	defer rows.Close()
	for taken := 0; rows.Next(); taken++ {
		if taken == limit {
			return true, nil
		}
		one, err := scan(rows)
		if err != nil {
			return false, err
		}
		if !take(one) {
			return true, nil
		}
	}
	return false, rows.Err()
}

// A changesSQL builds the statement for one page of the records that were created or changed since a time, in list
// order: newest first. It reads the records created since then from the list index and, only if the page is not full
// yet, older records changed since then from the change index.
//
// The older records are sorted by an expression. Otherwise a small limit makes the list index look cheap, and if few
// records were changed, the index would be read to its end.
//
// The last column is the newest time that the statement could read. It is stored in the cursor, and records with a
// later time are left out of the following pages. Otherwise a client could miss a record: one that is changed while
// the client reads the pages, at a position that it has passed, would have an older time than the newest time that
// the client sees.
type changesSQL struct {
	table, columns string
	// Conditions with parameters: created selects the records of the list, changed those in the change index. Each is
	// limited to the months of the records created or changed since the time.
	created, changed string
	changedAt        string // column with the time of the last change
	updatedAt        string // expression of updatedAt as callers see it
	filter           string // further conditions, each preceded by "and "
	since, limit     string // parameters
	after, until     string // parameters of the position before the page; empty for the first page
}

const changesText = `
with recent as materialized (
  select {columns} from {table}
  where {created} and created_at >= {since}{further} order by created_at desc, id desc limit {limit}
)
select page.*, {newest} from (
  select * from recent
  union all
  (select {columns} from {table}
   where {changed} and {changedAt} >= {since} and created_at < {since}{further}
     and (select count(*) from recent) < {limit}
   order by created_at + interval '0' desc, id desc limit {limit})
) page order by created_at desc, id desc limit {limit}`

const newestText = `greatest(
  (select max(created_at) from {table} where {created}),
  (select max({changedAt}) from {table} where {changed}))`

func (c changesSQL) String() string {
	further, newest := c.filter, newestText
	if c.after != "" {
		further += " and (created_at, id) < (" + c.after + ") and " + c.updatedAt + " <= " + c.until
		newest = c.until + "::timestamptz"
	}
	text := strings.Replace(changesText, "{newest}", newest, 1)
	return strings.NewReplacer("{columns}", c.columns, "{table}", c.table, "{created}", c.created, "{changed}",
		c.changed, "{changedAt}", c.changedAt, "{further}", further, "{since}", c.since, "{limit}", c.limit).
		Replace(text)
}

// changedSQL is pageSQL for a list with UpdatedSince.
func changedSQL(query programme.Query) (string, []any) {
	args := arguments{query.WorkspaceID}
	c := changesSQL{
		table:     "resource.programmes",
		columns:   programmeColumns,
		created:   "tenant_id = $1",
		changed:   "tenant_id = $1 and updated_at > created_at",
		changedAt: "updated_at",
		updatedAt: "updated_at",
		since:     args.add(query.Filter.UpdatedSince),
		limit:     args.add(query.Limit + 1),
	}
	c.filter = programmeFilterSQL(query.Filter, &args)
	if query.After != nil {
		c.after = args.add(query.After.CreatedAt) + ", " + args.add(query.After.ID)
		c.until = args.add(query.After.Until)
	}
	return c.String(), args
}

// searchTime is the time limit of a search (contract, section 6).
const searchTime = 500 * time.Millisecond

// searchParameters returns the settings of the connections for searches. The best plan depends on the text searched
// for. lock_timeout is shorter than the time limit, so that a wait for a lock is distinct from a long search.
func searchParameters(limit time.Duration) map[string]string {
	return map[string]string{
		"lock_timeout":      fmt.Sprint((limit * 4 / 5).Milliseconds()),
		"statement_timeout": fmt.Sprint(limit.Milliseconds()),
		"plan_cache_mode":   "force_custom_plan",
	}
}

// SearchesPerWorkspace is how many searches one workspace may run at once, so that others find a connection too.
func (s *Store) SearchesPerWorkspace() int { return max(1, int(s.searches.Config().MaxConns)/2) }

// Page reads one page of a workspace's programmes. It returns programme.ErrTooExpensive for a search that takes too
// long.
func (s *Store) Page(ctx context.Context, query programme.Query) (programme.Page, error) {
	text, args := pageSQL(query)
	if query.Filter.Search != "" {
		return s.search(ctx, query, text, args)
	}
	rows, _ := s.pool.Query(ctx, text, args...) // the rows have the error
	page, err := scanPage(rows, query)
	return page, outcome(err)
}

// search reads a page on a connection for searches. Postgres itself cancels a search that takes too long.
func (s *Store) search(ctx context.Context, query programme.Query, text string, args []any) (programme.Page, error) {
	ctx, cancel := s.pool.bounded(ctx)
	defer cancel()
	connection, err := s.searches.Acquire(ctx)
	if errors.Is(err, context.DeadlineExceeded) && s.searches.Stat().AcquiredConns() > 0 {
		return programme.Page{}, &apierr.Error{
			Kind:    apierr.Unavailable,
			Cause:   err,
			Message: "Too many searches are running. Try again in a few seconds.",
		}
	}
	if err != nil {
		return programme.Page{}, outcome(err)
	}
	defer connection.Release()
	ctx, cancel = s.pool.bounded(ctx) // longer than a search may take
	defer cancel()
	rows, _ := connection.Query(ctx, text, args...) // the rows have the error
	page, err := scanPage(rows, query)
	return page, searchOutcome(err)
}

// queryCanceled is the SQLSTATE of a statement that exceeded statement_timeout.
const queryCanceled = "57014"

func searchOutcome(err error) error {
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.Code == queryCanceled {
		return programme.ErrTooExpensive
	}
	return outcome(err)
}

// folded returns an SQL expression for a text without its case. It converts to upper case via lower case, because a
// lower-case letter may depend on the letters around it (Σ is ς at the end of a word), which the pattern lacks, and
// because some capitals are not the upper case of their own lower case (ẞ, whose ß becomes SS). The index converts to
// lower case again, by the rules of the database's locale. So capitals whose lower case depends on their context in
// some locale (Unicode, SpecialCasing.txt) are already translated to lower case.
func folded(text string) string {
	return "translate(upper(lower(" + text + " collate resource.any_case) collate resource.any_case), 'ΣIJĮ', 'σijį')"
}

// The search index.
const (
	searchIndex = "resource.programmes_search"
	// pendingLimit bounds, in KiB, the pending entries that one insert may have to sort into the index.
	pendingLimit = 512
)

// indexLock is an arbitrary number that all migrating processes share.
const indexLock = 0x73656172

// ErrNoTrigrams means that the database lacks the extension pg_trgm and its owner may not create it. Searches work
// without it, but in a large workspace most take too long.
var ErrNoTrigrams = errors.New("the extension pg_trgm is missing and could not be created")

// IndexSearches creates the search index if it is missing. It must run after Migrate. It is not a migration, because
// it needs an extension that a database may get later. The service can read and write meanwhile. Several processes
// may call it at once; one does the work. url must be the database owner's.
func IndexSearches(ctx context.Context, url string) (created bool, err error) {
	err = migrate.AsOwner(ctx, url, "", func(owner *migrate.Owner) {
		lockIndex(ctx, owner)
		var valid bool
		owner.Read(&valid, "select indisvalid from pg_index where indexrelid = to_regclass($1)", searchIndex)
		if valid || owner.Err() != nil {
			return
		}
		operators := trigrams(ctx, owner)
		owner.Do(
			"set lock_timeout = '5min'",                      // the next ones wait for old transactions and block none
			"drop index concurrently if exists "+searchIndex, // an invalid index left by an interrupted attempt
			"create index concurrently programmes_search on resource.programmes using gin (("+
				folded("name")+") "+operators+", ("+folded("summary")+") "+operators+
				fmt.Sprintf(") with (gin_pending_list_limit = %d)", pendingLimit),
			"analyze resource.programmes", // the statistics decide whether the index is used
		)
		created = owner.Err() == nil
	})
	if err != nil && !errors.Is(err, ErrNoTrigrams) {
		err = fmt.Errorf("index searches: %w", err)
	}
	return created, err
}

// lockIndex polls for the lock: a statement that waits for it would block the creation of the index, which waits for
// the end of every older statement.
func lockIndex(ctx context.Context, owner *migrate.Owner) {
	for taken := false; owner.Err() == nil; {
		if owner.Read(&taken, "select pg_try_advisory_lock($1)", indexLock); taken {
			return
		}
		select {
		case <-ctx.Done(): // the next statement fails
		case <-time.After(time.Second):
		}
	}
}

// trigrams returns the operator class of pg_trgm with the schema of the extension, and creates the extension if it is
// missing.
func trigrams(ctx context.Context, owner *migrate.Owner) string {
	const schema = `select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace
		where e.extname = 'pg_trgm'`
	var name string
	if !owner.Read(&name, schema) && owner.Err() == nil {
		if _, err := owner.Exec(ctx, "create extension pg_trgm with schema resource"); err != nil {
			owner.Fail(fmt.Errorf("%w: %w", ErrNoTrigrams, err))
		}
		owner.Read(&name, schema)
	}
	return pgx.Identifier{name, "gin_trgm_ops"}.Sanitize()
}
