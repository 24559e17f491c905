package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server/inflight"
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
		return optional(pgx.CollectExactlyOneRow(rows, scanProgramme))
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

// LastUseRecorder returns a recorder of last uses. The caller must close it before the Store.
func (s *Store) LastUseRecorder(log *slog.Logger) *standing.LastUseRecorder {
	return standing.NewLastUseRecorder(s.pool.Pool, log)
}

// answers stores the answers of writes. An endpoint seals an answer that contains a secret.
var answers = rest.AnswerTable{Name: "resource.idempotency_keys"}

// writing implements programme.Writer, engage.Writer and delivery.Writer within one transaction.
type writing struct{ tx pgx.Tx }

// transaction returns the transaction for the statements of one method.
func (w *writing) transaction(ctx context.Context) *transaction {
	return &transaction{Tx: w.tx, ctx: ctx}
}

// Once runs effect in a transaction and stores its answer under key, if one was given. For a known key it returns the
// first answer without running effect, or rest.ErrReused if the body differs. Of two concurrent requests with
// one key, the second waits for the first. An error of effect is returned unchanged, and nothing is stored.
func (s *Store) Once(ctx context.Context, key rest.Key, effect rest.Effect[programme.Writer]) (rest.Answer, error) {
	return s.once(ctx, key, func(ctx context.Context, tx pgx.Tx) (rest.Answer, error) {
		return effect(ctx, &writing{tx})
	})
}

// Once is Store.Once for the writes of Engage.
func (e *Engage) Once(ctx context.Context, key rest.Key, effect rest.Effect[engage.Writer]) (rest.Answer, error) {
	return e.once(ctx, key, func(ctx context.Context, tx pgx.Tx) (rest.Answer, error) {
		return effect(ctx, &writing{tx})
	})
}

// Once is Store.Once for changes of webhook endpoints.
func (w *Webhooks) Once(ctx context.Context, key rest.Key, effect rest.Effect[delivery.Writer]) (rest.Answer, error) {
	return w.once(ctx, key, func(ctx context.Context, tx pgx.Tx) (rest.Answer, error) {
		return effect(ctx, &writing{tx})
	})
}

// once is Once for an effect that receives the transaction. It runs in a turn of the key's workspace.
func (s *Store) once(ctx context.Context, key rest.Key, effect rest.Effect[pgx.Tx]) (answer rest.Answer, err error) {
	err = s.inTurn(ctx, key.WorkspaceID, func() error {
		return s.pool.transact(ctx, func(t *transaction) {
			answer, t.err = answers.Once(t.ctx, t.Tx, key, effect)
		})
	})
	return answer, err
}

// Writes of one workspace wait for each other in Postgres (programmes.go), each holding a connection. So each process
// runs only a few writes of a workspace in Postgres at once; the others wait without a connection, and no workspace
// can use up the pool.
//
// An import takes no turn, since it would hold it for seconds, nor does the processing of submissions. They cannot use
// up the pool either: a process handles one import at a time, over all workspaces, with one connection, and submissions
// of one workspace on one connection. So of the 11 general connections that the default of 16 leaves, one workspace
// holds at most 7 at once: 2 for writes, 1 for its submissions, 3 for long pages (package gate) and 1 for an import.
// While no other workspace writes, it may use 4 for writes.
const (
	maxWrites    = 256             // of a workspace, running or waiting
	maxWriteWait = 2 * time.Second // for the turn
)

// lockWithin is shorter than the statement timeout, so that a wait for another transaction can be told from a
// database that does not respond.
func lockWithin(timeout time.Duration) time.Duration { return timeout - 300*time.Millisecond }

// newTurns returns the turns of a pool of general connections, of which one workspace may use a quarter, or less than
// half while no other writes.
func newTurns(general int32) *inflight.Requests[uuid.UUID] {
	return inflight.New[uuid.UUID](inflight.Bounds{
		InFlight: maxWrites,
		AtOnce:   max(1, int(general)/4),
		Alone:    int(general)/2 - 1,
		Wait:     maxWriteWait,
	})
}

// inTurn runs write in a turn of the workspace. Its error is write's, or an *apierr.Error of kind Unavailable.
func (s *Store) inTurn(ctx context.Context, workspace uuid.UUID, write func() error) error {
	turn, err := s.turns.Enter(ctx, workspace)
	switch {
	case errors.Is(err, inflight.ErrFailing):
		return outcome(fmt.Errorf("%w: %w", err, context.DeadlineExceeded))
	case err != nil:
		return busy(err)
	}
	failed := true // stays true if write panics
	defer func() { turn.Leave(failed) }()
	err = write()
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.Code == lockNotAvailable {
		failed = false
		return busy(fmt.Errorf("%w: %w", inflight.ErrWaited, err))
	}
	failed = err != nil && unavailable(err)
	return outcome(err)
}

// busy returns the refusal of a write that waited too long for others of its workspace.
func busy(cause error) error {
	return &apierr.Error{
		Kind:    apierr.Unavailable,
		Message: "Other writes or an import of this workspace are running. Try again after the time in Retry-After.",
		Cause:   cause,
	}
}
