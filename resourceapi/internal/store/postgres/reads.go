package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// A readQuery is what a request reads from Postgres: the standing of its credential and, if text is set, the result of
// that statement.
type readQuery struct {
	standing standing.Query
	text     string
	args     []any
	// read reads the result of text for a credential that exists. It may be called more than once and concurrently;
	// each call returns its own result.
	read func(pgx.Rows) (any, error)
}

// readResult is the result of a readQuery: the standing, nil if the credential does not exist, and the result of its
// text.
type readResult struct {
	standing *standing.Standing
	found    any
}

// maxReads is how many queries share a round trip. More would gain little, as each reads up to a page of
// programmes, and the first waits for the last.
const maxReads = 16

// read sends a query in a batch with those of other requests. Since another query may have caused a failure, it is
// then sent again alone. It returns standing.ErrUnknown.
func (s *Store) read(ctx context.Context, one readQuery) (standing.Standing, any, error) {
	ctx, cancel := s.pool.bounded(ctx)
	defer cancel()
	answer, err := s.reads.Do(ctx, one)
	if err != nil && ctx.Err() == nil {
		var alone []readResult
		if alone, err = s.sendReads(ctx, []readQuery{one}); err == nil {
			answer = alone[0]
		}
	}
	switch {
	case err != nil:
		return standing.Standing{}, nil, outcome(err)
	case answer.standing == nil:
		return standing.Standing{}, nil, standing.ErrUnknown
	}
	return *answer.standing, answer.found, nil
}

// sendReads sends all queries in one batch. A standing is nil if the credential does not exist.
func (s *Store) sendReads(ctx context.Context, all []readQuery) (answers []readResult, err error) {
	questions := make([]standing.Query, len(all))
	for i, one := range all {
		questions[i] = one.standing
	}
	batch := &pgx.Batch{}
	batch.Queue(standing.SQL, standing.Args(questions)...)
	for _, one := range all {
		if one.text != "" {
			batch.Queue(one.text, one.args...)
		}
	}
	results := s.pool.SendBatch(ctx, batch)
	defer func() { err = cmp.Or(err, results.Close()) }() // also if reading failed
	return scanReads(results, all)
}

func scanReads(results pgx.BatchResults, all []readQuery) ([]readResult, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	standings, err := standing.Scan(rows, len(all))
	if err != nil {
		return nil, err
	}
	answers := make([]readResult, len(all))
	for i, one := range all {
		answers[i].standing = standings[i]
		if one.text == "" {
			continue
		}
		if rows, err = results.Query(); err != nil {
			return nil, err
		}
		if standings[i] == nil {
			rows.Close()
			continue
		}
		if answers[i].found, err = one.read(rows); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Standing returns what a credential may do now. It returns standing.ErrUnknown.
func (s *Store) Standing(ctx context.Context, q standing.Query) (standing.Standing, error) {
	answer, _, err := s.read(ctx, readQuery{standing: q})
	return answer, err
}

// StandingAndPage is Standing and Page in one round trip. The page is read before the standing is checked, so the
// caller must check the standing first. The query must not be a search, which would delay the requests of the same
// batch.
func (s *Store) StandingAndPage(
	ctx context.Context, q standing.Query, query programme.Query,
) (standing.Standing, programme.Page, error) {
	text, args := pageSQL(query)
	return readAs(ctx, s, q, text, args, func(rows pgx.Rows) (programme.Page, error) { return scanPage(rows, query) })
}

// StandingAndProgramme is Standing and Programme in one round trip. The programme is nil if it does not exist.
func (s *Store) StandingAndProgramme(
	ctx context.Context, q standing.Query, workspaceID, id uuid.UUID,
) (standing.Standing, *programme.Programme, error) {
	return readAs(ctx, s, q, programmeSQL, []any{workspaceID, id}, func(rows pgx.Rows) (*programme.Programme, error) {
		found, err := pgx.CollectRows(rows, scanProgramme) // at most one
		if len(found) == 0 {
			return nil, err
		}
		return &found[0], err
	})
}

// StandingAndNames is Standing and the names of the user, workspace and credential, in one round trip. The caller
// must check the standing first.
func (s *Store) StandingAndNames(ctx context.Context, q standing.Query) (standing.Standing, standing.Names, error) {
	return readAs(ctx, s, q, standing.NamesSQL, q.NamesArgs(), standing.ScanNames)
}

// StandingAndProfile is Standing and the profile of the credential, in one round trip. The caller must check the
// standing first.
func (s *Store) StandingAndProfile(ctx context.Context, q standing.Query) (standing.Standing, standing.Profile, error) {
	return readAs(ctx, s, q, standing.ProfileSQL, q.NamesArgs(), standing.ScanProfile)
}

// readAs is read with the result type of the text.
func readAs[T any](
	ctx context.Context, s *Store, q standing.Query, text string, args []any, read func(pgx.Rows) (T, error),
) (standing.Standing, T, error) {
	answer, found, err := s.read(ctx, readQuery{
		standing: q,
		text:     text,
		args:     args,
		read:     func(rows pgx.Rows) (any, error) { return read(rows) },
	})
	of, _ := found.(T)
	return answer, of, err
}

// Askable returns the permissions that the client of a grant could get by a new consent, or none if there is no such
// grant.
func (s *Store) Askable(ctx context.Context, grant, workspaceID uuid.UUID) (perm.Set, error) {
	var identifiers []string
	if err := s.pool.QueryRow(ctx, standing.AskableSQL, grant, workspaceID).Scan(&identifiers); err != nil {
		return nil, outcome(fmt.Errorf("read what a client may ask for: %w", err))
	}
	return perm.FromStrings(identifiers), nil
}

// EndReplaced revokes the tokens that a personal access token replaces.
func (s *Store) EndReplaced(ctx context.Context, token uuid.UUID) error {
	return outcome(standing.EndReplaced(ctx, s.pool, token))
}

// UsageRecorder returns a recorder of credential usage. The caller must close it before the Store.
func (s *Store) UsageRecorder(log *slog.Logger) *standing.UsageRecorder {
	return standing.NewUsageRecorder(s.pool.Pool, log)
}
