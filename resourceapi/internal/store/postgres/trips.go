package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/standing"
)

// A trip is what a request asks of Postgres: the standing of its credential and, where there is a text, what else it
// will answer with.
type trip struct {
	question standing.Query
	text     string
	args     []any
	// read reads the answer to text, of a credential that exists. It may be called more than once, and at the same
	// time: what it returns is the answer of that call alone.
	read func(pgx.Rows) (any, error)
}

// travelled is the answer to a trip: nil where there is no such credential, and what its text answered with.
type travelled struct {
	standing *standing.Standing
	found    any
}

// mostTogether is how many trips are made together: more would gain little, as each reads up to a page of programmes,
// and the first waits for the last.
const mostTogether = 16

// travel makes a trip, together with those of other requests. What fails may be the fault of one of them, so it is
// tried once more, alone. It returns standing.ErrUnknown.
func (s *Store) travel(ctx context.Context, one trip) (standing.Standing, any, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	answer, err := s.trips.Do(ctx, one)
	if err != nil && ctx.Err() == nil {
		var alone []travelled
		if alone, err = s.travelTogether(ctx, []trip{one}); err == nil {
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

// travelTogether reads what each of all asks for, in one batch. A standing is nil where there is no such credential.
func (s *Store) travelTogether(ctx context.Context, all []trip) (answers []travelled, err error) {
	questions := make([]standing.Query, len(all))
	for i, one := range all {
		questions[i] = one.question
	}
	batch := &pgx.Batch{}
	batch.Queue(standing.SQL, standing.Args(questions)...)
	for _, one := range all {
		if one.text != "" {
			batch.Queue(one.text, one.args...)
		}
	}
	results := s.pool.SendBatch(ctx, batch)
	defer func() { err = cmp.Or(err, results.Close()) }() // whatever becomes of the reading
	return readTogether(results, all)
}

func readTogether(results pgx.BatchResults, all []trip) ([]travelled, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	standings, err := standing.Scan(rows, len(all))
	if err != nil {
		return nil, err
	}
	answers := make([]travelled, len(all))
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
