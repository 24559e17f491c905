package postgres

import (
	"context"
	"errors"

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

// travel makes a trip, together with those of other requests. It returns standing.ErrUnknown.
func (s *Store) travel(ctx context.Context, one trip) (standing.Standing, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	answer, err := s.trips.Ask(ctx, one)
	if _, together := errors.AsType[*togetherError](err); together {
		var answers []*standing.Standing
		if answers, err = s.travelTogether(ctx, []trip{one}); err == nil {
			answer = answers[0]
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

// A togetherError is the failure of a trip that several requests made together. It may be that of one of them: each may try alone.
type togetherError struct{ error }

func (e *togetherError) Unwrap() error { return e.error }

// travelTogether reads what each of all asks for, in one batch. A standing is nil where there is no such credential.
func (s *Store) travelTogether(ctx context.Context, all []trip) ([]*standing.Standing, error) {
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
	answers, err := readTogether(results, all)
	if err = errors.Join(err, results.Close()); err != nil && len(all) > 1 {
		return nil, &togetherError{err}
	}
	return answers, err
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
