package usage

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/standing"
)

const (
	flushEvery   = 15 * time.Second
	flushTimeout = 10 * time.Second
	closeTimeout = 5 * time.Second
	batchRows    = 1000
	// lookedUp is how many credentials one statement looks up.
	lookedUp = 500
)

// A Database is the part of a pgx pool that a Counter needs.
type Database interface {
	standing.Querier
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Add adds rows, which are of different keys, to account.usage. The rows of other transactions are locked in the order
// of the rows.
func Add(ctx context.Context, db standing.Execer, rows []Row) error {
	n := len(rows)
	workspaces, credentials, services := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]uuid.UUID, n)
	users, days := make([]uuid.UUID, n), make([]time.Time, n)
	operations, kinds := make([]string, n), make([]string, n)
	requests, refused, records := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, row := range rows {
		workspaces[i], credentials[i], services[i] = row.WorkspaceID, row.CredentialID, row.ServiceID
		users[i], days[i], operations[i], kinds[i] = row.UserID, row.Day, row.Operation, row.Kind
		requests[i], refused[i], records[i] = row.Requests, row.Refused, row.Records
	}
	_, err := db.Exec(ctx, `
		insert into account.usage as u (tenant_id, credential_id, day, operation, service_id, kind, user_id, requests,
			refused, records)
		select * from unnest($1::uuid[], $2::uuid[], $3::date[], $4::text[], $5::uuid[], $6::text[], $7::uuid[],
			$8::bigint[], $9::bigint[], $10::bigint[])
		on conflict (tenant_id, credential_id, day, operation, service_id) do update
		set requests = u.requests + excluded.requests, refused = u.refused + excluded.refused,
			records = u.records + excluded.records`,
		workspaces, credentials, days, operations, services, kinds, users, requests, refused, records)
	if err != nil {
		return fmt.Errorf("add to the usage of credentials: %w", err)
	}
	return nil
}

// write adds the rows of a batch, unless the writer has added the batch already (C2).
func write(ctx context.Context, db Database, writer uuid.UUID, batch int64, rows []Row) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// A distributed Postgres then visits one node after the other, so that two processes cannot deadlock.
		const sequential = `select set_config('citus.multi_shard_modify_mode', 'sequential', true)`
		if _, err := tx.Exec(ctx, sequential); err != nil {
			return err
		}
		first, err := tx.Exec(ctx, `
			insert into account.usage_writers as w (id, batch) values ($1, $2)
			on conflict (id) do update set batch = excluded.batch, written_at = excluded.written_at
			where w.batch < excluded.batch`, writer, batch)
		if err != nil || first.RowsAffected() == 0 {
			return err
		}
		return Add(ctx, tx, rows)
	})
}

// Close writes the rest, for up to five seconds, and stops. It logs how many requests are lost if Postgres is slower.
// Call it once, before the database is closed.
func (c *Counter) Close() {
	close(c.stop)
	late := time.AfterFunc(closeTimeout, c.end)
	defer late.Stop()
	c.running.Wait()
	c.end()
	if lost := c.left(); lost > 0 {
		c.log.Error("usage of credentials lost: Postgres did not take it in time", "requests", lost)
	}
}

// left returns the number of requests that are counted and not written.
func (c *Counter) left() (requests int64) {
	for _, row := range c.waiting {
		requests += row.Requests
	}
	for _, row := range c.rows {
		requests += row.Requests
	}
	for _, row := range c.presented {
		requests += row.Requests
	}
	return requests
}

func (c *Counter) run() {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for stopped := false; !stopped; c.flushInTime() {
		select {
		case <-tick.C:
		case <-c.stop:
			stopped = true
		}
	}
}

// flushInTime flushes, and logs the first of several failures in a row.
func (c *Counter) flushInTime() {
	ctx, cancel := context.WithTimeout(c.working, flushTimeout)
	defer cancel()
	err := c.flush(ctx)
	if err != nil && !c.failing {
		c.log.WarnContext(ctx, "usage of credentials not written yet; retrying", "cause", err)
	}
	c.failing = err != nil
}

// flush writes what was counted. What it does not write stays.
func (c *Counter) flush(ctx context.Context) error {
	err := c.lookUp(ctx)
	if err == nil {
		err = c.writeWaiting(ctx) // of an earlier flush, which failed
	}
	if err == nil {
		c.take()
		err = c.writeWaiting(ctx)
	}
	return err
}

func (c *Counter) writeWaiting(ctx context.Context) error {
	for len(c.waiting) > 0 {
		rows := c.waiting[:min(batchRows, len(c.waiting))]
		if err := write(ctx, c.db, c.writer, c.batch, rows); err != nil {
			return err
		}
		c.batch++
		c.waiting = c.waiting[len(rows):]
		c.mu.Lock()
		c.writing = len(c.waiting)
		c.mu.Unlock()
	}
	return nil
}

// take moves what was counted to waiting, in the order of the keys, in which all processes lock the rows.
func (c *Counter) take() {
	c.mu.Lock()
	rows := c.rows
	c.rows, c.writing = map[rowKey]*counted{}, len(rows)
	c.mu.Unlock()
	for key, row := range rows {
		c.waiting = append(c.waiting, Row{
			WorkspaceID:  key.workspace,
			CredentialID: key.credential,
			Day:          time.Unix(key.day*24*60*60, 0).UTC(),
			Operation:    key.operation,
			ServiceID:    key.service,
			Kind:         Kind(row.personal),
			UserID:       row.user,
			Counts:       row.Counts,
		})
	}
	slices.SortFunc(c.waiting, func(a, b Row) int {
		return cmp.Or(bytes.Compare(a.WorkspaceID[:], b.WorkspaceID[:]),
			bytes.Compare(a.CredentialID[:], b.CredentialID[:]), a.Day.Compare(b.Day),
			cmp.Compare(a.Operation, b.Operation), bytes.Compare(a.ServiceID[:], b.ServiceID[:]))
	})
}

// lookUp finds out whose the presented credentials are (C1). What it has not looked up stays.
func (c *Counter) lookUp(ctx context.Context) error {
	c.mu.Lock()
	presented := c.presented
	c.presented, c.unproven = map[presentedKey]*presentedCounts{}, 0
	c.mu.Unlock()
	keys := make([]presentedKey, 0, len(presented))
	for key := range presented {
		keys = append(keys, key)
	}
	for some := range slices.Chunk(keys, lookedUp) {
		if err := c.lookUpSome(ctx, some, presented); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			for key, row := range presented {
				c.addPresented(key, row.Presented, row.Counts)
			}
			return err
		}
	}
	return nil
}

// lookUpSome looks up some of the presented credentials, and removes them.
func (c *Counter) lookUpSome(
	ctx context.Context, keys []presentedKey, presented map[presentedKey]*presentedCounts,
) error {
	questions := make([]standing.Query, len(keys))
	for i, key := range keys {
		questions[i] = presented[key].Query
	}
	standings, err := standing.ReadAll(ctx, c.db, questions)
	if err != nil {
		return fmt.Errorf("look up credentials: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, key := range keys {
		one := presented[key]
		if caller, known := one.caller(standings[i]); known {
			c.addCaller(caller, key.operation, key.day, one.Counts)
			if one.Claims == nil {
				c.tokens.Add(key.credential, caller)
			}
		}
		delete(presented, key)
	}
	return nil
}
