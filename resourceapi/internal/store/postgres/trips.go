package postgres

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/standing"
)

// A trip is what a request asks of Postgres: the standing of its credential and, where there is a text, what else it will answer with.
type trip struct {
	question standing.Question
	text     string
	args     []any
	read     func(pgx.Rows) error // of a credential that exists; may be called again, after a failure
}

// mostTogether is how many trips are made together: more would gain little, as each reads up to a page of programmes, and the first waits
// for the last.
const mostTogether = 16

// travel makes a trip, together with those of other requests. What fails may be the fault of one of them, so it is tried once more, alone.
// It returns standing.ErrUnknown.
func (s *Store) travel(ctx context.Context, one trip) (standing.Standing, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	answer, err := s.trips.Ask(ctx, one)
	if err != nil && ctx.Err() == nil {
		var alone []*standing.Standing
		if alone, err = s.travelTogether(ctx, []trip{one}); err == nil {
			answer = alone[0]
		}
	}
	switch {
	case err != nil:
		return standing.Standing{}, outcome(err)
	case answer == nil:
		return standing.Standing{}, standing.ErrUnknown
	}
	return *answer, nil
}

// travelTogether reads what each of all asks for, in one batch. A standing is nil where there is no such credential. Where several ask, it
// ends early enough for each to try alone.
func (s *Store) travelTogether(ctx context.Context, all []trip) (answers []*standing.Standing, err error) {
	if len(all) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience/2)
		defer cancel()
	}
	questions := make([]standing.Question, len(all))
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

func readTogether(results pgx.BatchResults, all []trip) ([]*standing.Standing, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	answers, err := standing.Scan(rows, len(all))
	if err != nil {
		return nil, err
	}
	for i, one := range all {
		if one.text == "" {
			continue
		}
		if rows, err = results.Query(); err != nil {
			return nil, err
		}
		if answers[i] == nil {
			rows.Close()
			continue
		}
		if err = one.read(rows); err != nil {
			return nil, err
		}
	}
	return answers, nil
}
