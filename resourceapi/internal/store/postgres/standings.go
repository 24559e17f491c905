package postgres

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// Standing asks what a credential may do at this moment. It returns standing.ErrUnknown.
func (s *Store) Standing(ctx context.Context, q standing.Question) (standing.Standing, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	answer, err := standing.Read(ctx, s.pool, q)
	return answer, outcome(err)
}

// StandingAndPage is Standing and Page in one trip. The page is read before anybody has judged the standing, so it is
// the caller's duty to look at the standing first.
func (s *Store) StandingAndPage(ctx context.Context, q standing.Question, query programme.Query) (standing.Standing, programme.Page, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(standing.SQL, q.Args()...)
	text, args := pageSQL(query)
	batch.Queue(text, args...)
	results := s.pool.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }() // its error is the one that the reads below have met

	rows, err := results.Query()
	if err != nil {
		return standing.Standing{}, programme.Page{}, outcome(err)
	}
	answer, err := standing.Scan(rows)
	if err != nil {
		return standing.Standing{}, programme.Page{}, outcome(err)
	}
	rows, err = results.Query()
	if err != nil {
		return standing.Standing{}, programme.Page{}, outcome(err)
	}
	page, err := scanPage(rows, query.Limit)
	return answer, page, outcome(err)
}

// StandingAndNames is Standing and the names of who is connected, in one trip. As with StandingAndPage, the standing is
// to be looked at first.
func (s *Store) StandingAndNames(ctx context.Context, q standing.Question) (standing.Standing, standing.Names, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(standing.SQL, q.Args()...)
	batch.Queue(standing.NamesSQL, q.NamesArgs()...)
	results := s.pool.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }() // its error is the one that the reads below have met

	rows, err := results.Query()
	if err != nil {
		return standing.Standing{}, standing.Names{}, outcome(err)
	}
	answer, err := standing.Scan(rows)
	if err != nil {
		return standing.Standing{}, standing.Names{}, outcome(err)
	}
	rows, err = results.Query()
	if err != nil {
		return standing.Standing{}, standing.Names{}, outcome(err)
	}
	names, err := standing.ScanNames(rows)
	return answer, names, outcome(err)
}

// Askable is what the client of a grant could be given if it asked its user again: nothing where there is no such grant.
func (s *Store) Askable(ctx context.Context, grant uuid.UUID) (perm.Set, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	var identifiers []string
	if err := s.pool.QueryRow(ctx, standing.AskableSQL, grant).Scan(&identifiers); err != nil {
		return nil, outcome(fmt.Errorf("read what a client may ask for: %w", err))
	}
	return perm.FromStrings(identifiers), nil
}

// Noter notes the use of credentials. Whoever asks for it closes it, before the Store.
func (s *Store) Noter(log *slog.Logger) *standing.Noter { return standing.NewNoter(s.pool, log) }
