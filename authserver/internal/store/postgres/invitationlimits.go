package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/spelling"
)

// limitedSQL selects the limits that the next invitation would exceed, each with the number of seconds until the window
// contains fewer messages, or messages of fewer other users, than the limit.
const limitedSQL = `
with others as (
  select inviter_id, max(sent_at) as sent_at, max(sent_at) filter (where tenant_id = @tenant) as here_at
  from account.invitation_messages
  where email_hash = @email and inviter_id <> @inviter and sent_at > now() - @window::interval
  group by inviter_id
)
select which, extract(epoch from sent_at + @window::interval - now())::float8 from (
  (select 0 as which, sent_at from account.invitation_messages
    where inviter_id = @inviter and sent_at > now() - @window::interval
    order by sent_at desc offset @perInviter - 1 limit 1)
  union all
  (select 1, sent_at from account.invitation_messages
    where tenant_id = @tenant and sent_at > now() - @window::interval
    order by sent_at desc offset @perWorkspace - 1 limit 1)
  union all
  (select 2, sent_at from account.invitation_messages
    where email_hash = @email and inviter_id = @inviter and sent_at > now() - @window::interval
    order by sent_at desc offset @perAddressOfInviter - 1 limit 1)
  union all
  (select 3, here_at from others where here_at is not null
    order by here_at desc offset @perAddressInWorkspace - 1 limit 1)
  union all
  (select 4, sent_at from others
    where exists (select from account.invitation_messages own
      where own.email_hash = @email and own.tenant_id = @tenant and own.sent_at > now() - @window::interval)
    order by sent_at desc offset @perAddress - 1 limit 1)
) as reached`

// countInvitation counts the message of an invitation in the transaction that stores the invitation, or returns a
// *membership.LimitError. The caller has locked the workspace's members and the inviter. The lock on the address is the
// last one of the transaction.
func countInvitation(ctx context.Context, tx pgx.Tx, i membership.Invitation) error {
	email := credential.Hash(spelling.Key(i.Email))
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('invited ' || encode($1, 'hex'), 0))`,
		email); err != nil {
		return err
	}
	limits := []membership.Limit{
		membership.PerInviter, membership.PerWorkspace, membership.PerAddressOfInviter,
		membership.PerAddressInWorkspace, membership.PerAddress,
	}
	rows, err := tx.Query(ctx, limitedSQL, pgx.NamedArgs{
		"inviter":               i.InviterID,
		"tenant":                i.WorkspaceID,
		"email":                 email,
		"window":                membership.LimitWindow,
		"perInviter":            limits[0].Most,
		"perWorkspace":          limits[1].Most,
		"perAddressOfInviter":   limits[2].Most,
		"perAddressInWorkspace": limits[3].Most,
		"perAddress":            limits[4].Most,
	})
	if err != nil {
		return err
	}
	var reached *membership.LimitError
	var which int
	var seconds float64
	_, err = pgx.ForEachRow(rows, []any{&which, &seconds}, func() error {
		wait := time.Duration(seconds * float64(time.Second))
		if reached == nil || wait > reached.Wait {
			reached = &membership.LimitError{Limit: limits[which], Wait: wait}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if reached != nil {
		return reached
	}
	batch := &pgx.Batch{}
	batch.Queue(`insert into account.invitation_messages (tenant_id, inviter_id, email_hash) values ($1, $2, $3)`,
		i.WorkspaceID, i.InviterID, email)
	batch.Queue(`delete from account.invitation_messages where (tenant_id, id) in (
		select tenant_id, id from account.invitation_messages where sent_at <= now() - $1::interval
		order by sent_at limit 100 for update skip locked)`,
		membership.LimitWindow)
	return tx.SendBatch(ctx, batch).Close()
}

// isLimit reports whether err is a *membership.LimitError.
func isLimit(err error) bool {
	_, limited := errors.AsType[*membership.LimitError](err)
	return limited
}
