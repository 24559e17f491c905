package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/database/migrate"
)

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
		owner.Fail(lockIndex(ctx, owner.Conn))
		var valid bool
		owner.Read(&valid, "select indisvalid from pg_index where indexrelid = to_regclass($1)", searchIndex)
		if valid || owner.Err() != nil {
			return
		}
		operators, err := trigrams(ctx, owner.Conn)
		owner.Fail(err)
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
func lockIndex(ctx context.Context, owner *pgx.Conn) error {
	for {
		var taken bool
		if err := owner.QueryRow(ctx, "select pg_try_advisory_lock($1)", indexLock).Scan(&taken); err != nil || taken {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// trigrams returns the operator class of pg_trgm with the schema of the extension, and creates the extension if it is
// missing.
func trigrams(ctx context.Context, owner *pgx.Conn) (string, error) {
	schema := func() (name string, err error) {
		err = owner.QueryRow(ctx, `
			select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace
			where e.extname = 'pg_trgm'`).Scan(&name)
		return name, err
	}
	name, err := schema()
	if errors.Is(err, pgx.ErrNoRows) {
		if _, err = owner.Exec(ctx, "create extension pg_trgm with schema resource"); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoTrigrams, err)
		}
		name, err = schema()
	}
	if err != nil {
		return "", fmt.Errorf("look for pg_trgm: %w", err)
	}
	return pgx.Identifier{name, "gin_trgm_ops"}.Sanitize(), nil
}
