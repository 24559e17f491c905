package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// MailSchema is the schema of the mail queue's tables.
const MailSchema = "account_jobs"

// A MailQueue adds messages within transactions.
type MailQueue interface {
	Add(ctx context.Context, tx pgx.Tx, m mail.Message) error
}

// JobDriver lets the mail queue use the store's connections.
func (s *Store) JobDriver() *riverpgxv5.Driver { return riverpgxv5.New(s.pool) }

// SendMail makes the store queue the mails of its changes. Call it before the first request. Without it, the
// deployment sends no mail.
func (s *Store) SendMail(queue MailQueue) { s.mails = queue }

// queueMail queues a message to a user who is not disabled, unless the user turned its kind off, in the caller's
// transaction. It sets the message's address and name. If the deployment sends no mail, it does nothing.
func (s *Store) queueMail(ctx context.Context, tx pgx.Tx, user uuid.UUID, m mail.Message) error {
	if s.mails == nil {
		return nil
	}
	err := tx.QueryRow(ctx, `select u.email, u.name, now() from account.users u
		where u.id = $1 and u.disabled_at is null
		and not ($3 and exists (select from account.unwanted_mails w where w.user_id = u.id and w.kind = $2))`,
		user, string(m.Kind), m.Kind.Optional()).Scan(&m.Address, &m.Name, &m.Data.At)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.mails.Add(ctx, tx, m)
}

// QueueMail queues a message that no other change belongs to. The message has an address.
func (s *Store) QueueMail(ctx context.Context, m mail.Message) error {
	return s.atomically(ctx, "queue mail", func(tx pgx.Tx) error { return s.mails.Add(ctx, tx, m) })
}

// connectionData returns what the mail about a grant mentions.
func connectionData(ctx context.Context, tx pgx.Tx, client, workspaceID uuid.UUID) (d mail.Data, err error) {
	err = tx.QueryRow(ctx, `select c.name, t.name from account.oauth_clients c, account.tenants t
		where c.id = $1 and t.id = $2`, client, workspaceID).Scan(&d.Application, &d.Workspace)
	return d, err
}

// UnwantedMails lists the kinds that the user turned off.
func (s *Store) UnwantedMails(ctx context.Context, user uuid.UUID) ([]mail.Kind, error) {
	return listLong(ctx, s, "list unwanted mails", pgx.RowTo[mail.Kind],
		`select kind from account.unwanted_mails where user_id = $1 order by kind`, user)
}

// SetUnwantedMails replaces the kinds that the user turned off, with the event.
func (s *Store) SetUnwantedMails(ctx context.Context, user uuid.UUID, unwanted []mail.Kind, event audit.Event) error {
	return s.change(ctx, "set unwanted mails", &event, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `delete from account.unwanted_mails where user_id = $1`, user); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into account.unwanted_mails (user_id, kind) select $1, unnest($2::text[])`,
			user, unwanted)
		return err
	})
}

// MailsWaiting counts the messages that wait to be sent, and returns how long the oldest has waited.
func (s *Store) MailsWaiting(ctx context.Context) (int, time.Duration, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var count int
	var seconds *float64
	err := s.pool.QueryRow(ctx, `select count(*)::int, extract(epoch from now() - min(created_at))::float8
		from account_jobs.river_job where kind = 'mail'
		and state in ('available', 'running', 'retryable', 'scheduled')`).Scan(&count, &seconds)
	if err != nil || seconds == nil {
		return count, 0, unavailable("count mails", err)
	}
	return count, time.Duration(*seconds * float64(time.Second)), nil
}

// mailNotice queues the mail that mail.Notices names for an event, to the user that the event concerns.
func (s *Store) mailNotice(ctx context.Context, tx pgx.Tx, e audit.Event) error {
	notice, ok := mail.NoticeOf(e.Action)
	if !ok || !notice.ByEvent || e.UserID == nil || s.mails == nil {
		return nil
	}
	m := mail.Message{Kind: notice.Mail, Data: mail.Data{Path: notice.Page, Operator: e.Actor == audit.Operator}}
	m.Data.Name, _ = e.Detail["name"].(string)
	m.Data.Network, _ = e.Detail["address"].(string)
	if e.WorkspaceID != nil {
		err := tx.QueryRow(ctx, `select name from account.tenants where id = $1`, *e.WorkspaceID).
			Scan(&m.Data.Workspace)
		if err != nil {
			return err
		}
	}
	return s.queueMail(ctx, tx, *e.UserID, m)
}

// mailInvitation queues the link of an invitation, in the transaction that stores it.
func (s *Store) mailInvitation(ctx context.Context, tx pgx.Tx, i membership.Invitation, token credential.Secret) error {
	if s.mails == nil {
		return nil
	}
	m := mail.Message{
		Kind:    mail.Invitation,
		Address: i.Email,
		Token:   token,
		Data:    mail.Data{Permissions: titles(i.Permissions)},
		Expires: i.Expires,
	}
	err := tx.QueryRow(ctx, `select t.name, u.name, now() from account.tenants t, account.users u
		where t.id = $1 and u.id = $2`, i.WorkspaceID, i.InviterID).Scan(&m.Data.Workspace, &m.Data.Person, &m.Data.At)
	if err != nil {
		return err
	}
	return s.mails.Add(ctx, tx, m)
}

// mailMember tells a user about a change of the user's membership, in the transaction of the change.
func (s *Store) mailMember(
	ctx context.Context, tx pgx.Tx, kind mail.Kind, workspaceID, user uuid.UUID, permissions perm.Set,
) error {
	if s.mails == nil {
		return nil
	}
	m := mail.Message{Kind: kind, Data: mail.Data{Permissions: titles(permissions)}}
	err := tx.QueryRow(ctx, `select name from account.tenants where id = $1`, workspaceID).Scan(&m.Data.Workspace)
	if err != nil {
		return err
	}
	return s.queueMail(ctx, tx, user, m)
}

// titles returns the titles of permissions, for people.
func titles(permissions perm.Set) (out []string) {
	for _, p := range permissions {
		if description, known := perm.Describe(p); known {
			out = append(out, description.Title)
		}
	}
	return out
}
