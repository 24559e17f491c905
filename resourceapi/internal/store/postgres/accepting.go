package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/rest"
)

// Submissions that arrive at a form while others of it are being stored share the next transaction. The transactions
// of one form wait for each other anyway (nextMoment), each until its predecessor is on the disk.

// maxAccepted is the number of submissions of one transaction.
const maxAccepted = 64

// An acceptor stores the submissions of one form.
type acceptor struct {
	pg.Batcher[engage.Submission, error]
	users int // requests; guarded by acceptors.mu
}

// acceptors are the acceptors of the forms that have requests.
type acceptors struct {
	mu     sync.Mutex
	byForm map[uuid.UUID]*acceptor
}

// acceptorOf returns the acceptor of a form, and a function to call when the request no longer needs it.
func (e *Engage) acceptorOf(form uuid.UUID) (a *acceptor, leave func()) {
	all := &e.acceptors
	all.mu.Lock()
	defer all.mu.Unlock()
	if a = all.byForm[form]; a == nil {
		a = &acceptor{}
		a.Answer, a.Most, a.AtOnce, a.Within, a.Stay = e.acceptTogether, maxAccepted, 1, workTimeout, true
		all.byForm[form] = a
	}
	a.users++
	return a, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if a.users--; a.users == 0 {
			delete(all.byForm, form)
		}
	}
}

// Accept stores a submission, which then waits for a worker. The answer is stored with it under the key, if one was
// given. For a known key Accept returns the first answer and stores nothing, or rest.ErrReused if the body differs.
// Other errors are engage.ErrTokenUsed, and engage.ErrNotFound if the form was erased.
func (e *Engage) Accept(
	ctx context.Context, key rest.Key, s engage.Submission, answer rest.Answer,
) (_ rest.Answer, err error) {
	decided := false // whether the batch has decided the outcome
	if !key.Given() {
		a, leave := e.acceptorOf(s.Form)
		defer leave()
		waiting, stop := context.WithTimeout(ctx, maxWriteWait)
		defer stop()
		var refusal error
		if refusal, err = a.Do(waiting, s); errors.Is(err, pg.ErrNotSent) {
			return rest.Answer{}, busy(err)
		}
		err = outcome(err)
		if decided = err == nil || apierr.Of(err).Kind == apierr.Unavailable; err == nil {
			err = refusal
		}
	}
	if !decided { // it has a key, or another one may have caused the failure
		answer, err = e.once(ctx, key, func(ctx context.Context, tx pgx.Tx) (rest.Answer, error) {
			t := &transaction{Tx: tx, ctx: ctx}
			if refusal := t.accept([]engage.Submission{s})[0]; t.err == nil {
				return answer, refusal
			}
			return answer, t.err
		})
	}
	if err != nil {
		return rest.Answer{}, err
	}
	select {
	case e.arrived <- struct{}{}:
	default: // a worker that has not looked yet is told already
	}
	return answer, nil
}

// AcceptedBefore returns the id of the submission that used the token of s, if it has the same answers. Otherwise, also
// if it was erased, the error is engage.ErrTokenUsed.
func (e *Engage) AcceptedBefore(ctx context.Context, s engage.Submission) (id uuid.UUID, err error) {
	answers, err := json.Marshal(s.Answers)
	if err != nil {
		return id, err
	}
	consents, err := json.Marshal(s.Consents)
	if err != nil {
		return id, err
	}
	return oneRow(ctx, e.pool, engage.ErrTokenUsed, pgx.RowTo[uuid.UUID], `
		select s.id from resource.submissions s where s.tenant_id = $1 and s.token_id = $2 and s.form_id = $3
			and s.created_at > now() - interval '1 day'
			and s.answers = $4::text::jsonb and s.consents = $5::text::jsonb and s.trapped = $6`+notErased,
		s.WorkspaceID, s.Token, s.Form, string(answers), string(consents), s.Trapped)
}

// Arrived tells the worker of this process that submissions were accepted. Other processes find them when they look.
func (e *Engage) Arrived() <-chan struct{} { return e.arrived }

// acceptTogether stores submissions of one form in one transaction, and returns the refusal of each.
func (e *Engage) acceptTogether(ctx context.Context, all []engage.Submission) (refusals []error, err error) {
	err = e.inTurn(ctx, all[0].WorkspaceID, func() error {
		ctx, cancel := e.pool.bounded(ctx)
		defer cancel()
		return inBatch(ctx, e.pool, func(t *transaction) { refusals = t.accept(all) })
	})
	return refusals, err
}

// accept stores submissions of one form, and returns engage.ErrTokenUsed for each whose token was used before.
func (t *transaction) accept(all []engage.Submission) (refusals []error) {
	n := len(all)
	refusals = make([]error, n)
	ids, tokens, at := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]time.Time, n)
	answers, consents, trapped := make([]string, n), make([]string, n), make([]bool, n)
	encode := func(value any) string {
		content, err := json.Marshal(value)
		t.fail("encode a submission", err)
		return string(content)
	}
	last := t.nextMoment(all[0].WorkspaceID, all[0].Form.String(), n)
	for i, one := range all {
		ids[i], tokens[i], trapped[i] = one.ID, one.Token, one.Trapped
		answers[i], consents[i] = encode(one.Answers), encode(one.Consents)
		at[i] = last.Add(time.Duration(i+1-n) * time.Microsecond)
	}
	stored := rowsOf(t, "store submissions", pgx.RowTo[uuid.UUID], `
		insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select n.id, $1, $2, n.token_id, n.answers::jsonb, n.consents::jsonb, n.trapped, n.at
		from unnest($3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::boolean[], $8::timestamptz[])
			as n (id, token_id, answers, consents, trapped, at)
		on conflict do nothing returning id`,
		all[0].WorkspaceID, all[0].Form, ids, tokens, answers, consents, trapped, at)
	for i, id := range ids {
		if !slices.Contains(stored, id) { // ids are new, so only the token can be in the table already
			refusals[i] = engage.ErrTokenUsed
		}
	}
	switch {
	case refusedBy(t.err, foreignKeyViolation, "submissions"):
		t.err = engage.ErrNotFound // the form was erased meanwhile
	case refusedBy(t.err, uniqueViolation, "submissions") && n == 1:
		t.err = engage.ErrTokenUsed // in the previous month (refuse_used_token)
	}
	return refusals
}

// inBatch is inTransaction for statements with arrays of ids. Postgres uses a generic plan: planning each statement
// again would cost more than a few records do. work is called again if Postgres is distributed and refuses that.
func inBatch(ctx context.Context, d *database, work func(*transaction)) error {
	options := pgx.TxOptions{}
	generic := !d.distributed.Load()
	if generic {
		options.BeginQuery = "begin; set local plan_cache_mode = force_generic_plan"
	}
	err := pgx.BeginTxFunc(ctx, d, options, func(tx pgx.Tx) (err error) {
		defer func() { // one record must not end the process again and again
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			}
		}()
		t := &transaction{Tx: tx, ctx: ctx}
		work(t)
		return t.err
	})
	if refused, is := errors.AsType[*pgconn.PgError](err); is && refused.Code == featureNotSupported && generic {
		const find = "select to_regclass('pg_dist_partition') is not null"
		if distributed, failed := oneRow(ctx, d, err, pgx.RowTo[bool], find); failed == nil && distributed {
			d.distributed.Store(true) // Citus has no generic plan of a function on the node of a workspace
			return inBatch(ctx, d, work)
		}
	}
	return err
}
