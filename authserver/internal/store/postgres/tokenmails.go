package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/mail"
)

// maxMailed is the maximum number of tokens in one transaction.
const maxMailed = 200

// expiringSQL marks active tokens that expire within 7 days, or within 1 day if they were created for about a week.
const expiringSQL = `
with expiring as (
  select id, now() as at from account.personal_access_tokens
  where expiry_mailed_at is null and revoked_at is null and expires_at > now()
    and expires_at <= now() + interval '7 days'
    and (expires_at <= now() + interval '1 day' or expires_at - created_at > interval '8 days')
  order by expires_at limit $1 for update skip locked
)
update account.personal_access_tokens p set expiry_mailed_at = expiring.at from expiring, account.tenants t
where p.id = expiring.id and t.id = p.tenant_id
returning p.user_id, p.name, t.name, p.expires_at`

// MailExpiringTokens queues a mail about each personal access token that is about to expire, once for each token. Users
// who are disabled or turned these mails off get none.
func (s *Store) MailExpiringTokens(ctx context.Context) error {
	for {
		marked := 0
		err := s.atomically(ctx, "mail expiring tokens", func(tx pgx.Tx) (err error) {
			marked, err = s.mailExpiring(ctx, tx)
			return err
		})
		if err != nil || marked < maxMailed {
			return err
		}
	}
}

func (s *Store) mailExpiring(ctx context.Context, tx pgx.Tx) (int, error) {
	type expiring struct {
		user             uuid.UUID
		token, workspace string
		ends             time.Time
	}
	rows, err := tx.Query(ctx, expiringSQL, maxMailed)
	if err != nil {
		return 0, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e expiring, err error) {
		return e, row.Scan(&e.user, &e.token, &e.workspace, &e.ends)
	})
	if err != nil {
		return 0, err
	}
	for _, e := range found {
		err := s.queueMail(ctx, tx, e.user, mail.Message{
			Kind:    mail.TokenExpiring,
			Data:    mail.Data{Token: e.token, Workspace: e.workspace, Ends: e.ends},
			Expires: e.ends, // after that, the mail would be wrong
		})
		if err != nil {
			return 0, err
		}
	}
	return len(found), nil
}
