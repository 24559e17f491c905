package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/standing"
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
