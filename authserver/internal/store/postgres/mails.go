package postgres

import (
	"context"
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
func (d *db) JobDriver() *riverpgxv5.Driver { return riverpgxv5.New(d.pool) }

// SendMail makes the store queue the mails of its changes. Call it before the first request. Without it, the
// deployment sends no mail.
func (d *db) SendMail(queue MailQueue) { d.mails = queue }

// sendsMail reports whether the transaction can queue mails.
func (t *transaction) sendsMail() bool { return t.db.mails != nil && t.err == nil }

// queue queues a message that has an address. If the deployment sends no mail, it does nothing.
func (t *transaction) queue(m mail.Message) {
	if t.sendsMail() {
		t.fail(t.db.mails.Add(t.ctx, t.Tx, m))
	}
}

// mail is mailMessage for a message without a link and without an end.
func (t *transaction) mail(user uuid.UUID, kind mail.Kind, data mail.Data) {
	t.mailMessage(user, mail.Message{Kind: kind, Data: data})
}

// mailMessage queues a message to a user who is not disabled, unless the user turned its kind off. It sets the
// message's address and name.
func (t *transaction) mailMessage(user uuid.UUID, m mail.Message) {
	if t.sendsMail() && t.row(`select u.email, u.name, now() from account.users u
		where u.id = $1 and u.disabled_at is null
		and not ($3 and exists (select from account.unwanted_mails w where w.user_id = u.id and w.kind = $2))`,
		user, string(m.Kind), m.Kind.Optional()).find(&m.Address, &m.Name, &m.Data.At) {
		t.queue(m)
	}
}

// QueueMail queues a message that no other change belongs to. The message has an address.
func (d *db) QueueMail(ctx context.Context, m mail.Message) error {
	return d.atomically(ctx, "queue mail", func(tx *transaction) { tx.queue(m) })
}

// UnwantedMails lists the kinds that the user turned off.
func (a *Accounts) UnwantedMails(ctx context.Context, user uuid.UUID) ([]mail.Kind, error) {
	return listLong(ctx, a.db, "list unwanted mails", pgx.RowTo[mail.Kind],
		`select kind from account.unwanted_mails where user_id = $1 order by kind`, user)
}

// SetUnwantedMails replaces the kinds that the user turned off, with the event.
func (a *Accounts) SetUnwantedMails(ctx context.Context, user uuid.UUID, kinds []mail.Kind, event audit.Event) error {
	return a.change(ctx, "set unwanted mails", &event, func(tx *transaction) {
		tx.exec(`delete from account.unwanted_mails where user_id = $1`, user)
		tx.exec(`insert into account.unwanted_mails (user_id, kind) select $1, unnest($2::text[])`, user, kinds)
	})
}

// MailsWaiting counts the messages that wait to be sent, and returns how long the oldest has waited.
func (d *db) MailsWaiting(ctx context.Context) (int, time.Duration, error) {
	type waiting struct {
		Count   int
		Seconds *float64
	}
	w, err := need(ctx, d, "count mails", pgx.ErrNoRows, pgx.RowToStructByPos[waiting], `
select count(*)::int, extract(epoch from now() - min(created_at))::float8
from account_jobs.river_job where kind = 'mail' and state in ('available', 'running', 'retryable', 'scheduled')`)
	if err != nil || w.Seconds == nil {
		return w.Count, 0, err
	}
	return w.Count, time.Duration(*w.Seconds * float64(time.Second)), nil
}

// mailNotice queues the mail that mail.Notices names for an event, to the user that the event concerns. A notice that
// is not ByEvent is queued by the code of the change, such as revokeReplayed.
func (t *transaction) mailNotice(e audit.Event) {
	notice, ok := mail.Notices()[e.Action]
	if !ok || !notice.ByEvent || e.UserID == nil || !t.sendsMail() {
		return
	}
	data := mail.Data{Path: notice.Page, Operator: e.Actor == audit.Operator}
	data.Name, _ = e.Detail["name"].(string)
	data.Network, _ = e.Detail["address"].(string)
	if e.WorkspaceID != nil {
		data.Workspace = t.workspaceName(*e.WorkspaceID)
	}
	t.mail(*e.UserID, notice.Mail, data)
}

func (t *transaction) workspaceName(id uuid.UUID) (name string) {
	t.row(`select name from account.tenants where id = $1`, id).read(&name)
	return name
}

// mailInvitation queues the link of an invitation, in the transaction that stores it.
func (t *transaction) mailInvitation(i membership.Invitation, token credential.Secret) {
	if !t.sendsMail() {
		return
	}
	m := mail.Message{
		Kind:    mail.Invitation,
		Address: i.Email,
		Token:   token,
		Data:    mail.Data{Permissions: titles(i.Permissions)},
		Expires: i.Expires,
	}
	t.row(`select t.name, u.name, now() from account.tenants t, account.users u
		where t.id = $1 and u.id = $2`, i.WorkspaceID, i.InviterID).read(&m.Data.Workspace, &m.Data.Person, &m.Data.At)
	t.queue(m)
}

// mailMember tells a user about a change of the user's membership, in the transaction of the change.
func (t *transaction) mailMember(kind mail.Kind, workspaceID, user uuid.UUID, permissions perm.Set) {
	if t.sendsMail() {
		t.mail(user, kind, mail.Data{Workspace: t.workspaceName(workspaceID), Permissions: titles(permissions)})
	}
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
