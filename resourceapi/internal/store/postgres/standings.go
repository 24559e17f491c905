package postgres

import (
	"context"
	"errors"
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
func (s *Store) StandingAndPage(ctx context.Context, q standing.Question, query programme.Query) (answer standing.Standing, page programme.Page, err error) {
	text, args := pageSQL(query)
	answer, err = s.standingAnd(ctx, q, text, args, func(rows pgx.Rows) error {
		page, err = scanPage(rows, query.Limit)
		return err
	})
	return answer, page, err
}

// StandingAndProgramme is Standing and Programme in one trip, likewise. There is no such programme where it is nil.
func (s *Store) StandingAndProgramme(ctx context.Context, q standing.Question, tenant, id uuid.UUID) (answer standing.Standing, found *programme.Programme, err error) {
	answer, err = s.standingAnd(ctx, q, programmeSQL, []any{tenant, id}, func(rows pgx.Rows) error {
		p, err := pgx.CollectExactlyOneRow(rows, scanProgramme)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		found = &p
		return err
	})
	return answer, found, err
}

// StandingAndNames is Standing and the names of who is connected, in one trip. As with StandingAndPage, the standing is
// to be looked at first.
func (s *Store) StandingAndNames(ctx context.Context, q standing.Question) (answer standing.Standing, names standing.Names, err error) {
	answer, err = s.standingAnd(ctx, q, standing.NamesSQL, q.NamesArgs(), func(rows pgx.Rows) error {
		names, err = standing.ScanNames(rows)
		return err
	})
	return answer, names, err
}

// standingAnd reads the standing of a credential and whatever else a statement asks for, in one trip.
func (s *Store) standingAnd(ctx context.Context, q standing.Question, text string, args []any, read func(pgx.Rows) error) (standing.Standing, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(standing.SQL, q.Args()...)
	batch.Queue(text, args...)
	results := s.pool.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }() // its error is the one that the reads below have met

	rows, err := results.Query()
	if err != nil {
		return standing.Standing{}, outcome(err)
	}
	answer, err := standing.Scan(rows)
	if err != nil {
		return standing.Standing{}, outcome(err)
	}
	if rows, err = results.Query(); err != nil {
		return standing.Standing{}, outcome(err)
	}
	return answer, outcome(read(rows))
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
