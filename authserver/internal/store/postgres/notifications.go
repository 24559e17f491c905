package postgres

import (
	"cmp"
	"context"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/contract/webhook"
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
// message's address and name, and its time if it has none.
func (t *transaction) mailMessage(user uuid.UUID, m mail.Message) {
	var to mail.Recipient
	var now time.Time
	if t.sendsMail() && t.row(`select now(), `+recipientColumns+` from account.users u
		where u.id = $1 and u.disabled_at is null
		and not ($3 and exists (select from account.unwanted_mails w where w.user_id = u.id and w.kind = $2))`,
		user, string(m.Kind), m.Kind.Optional()).find(&now, &to.Address, &to.Name, &to.Language, &to.Zone) {
		m.Data.At = cmp.Or(m.Data.At, now)
		t.queue(m.To(to))
	}
}

// recipientColumns are those of a mail.Recipient. Times are in the zone of the latest sign-in that reported one.
const recipientColumns = `u.email as address, u.name, u.mail_language as language, coalesce((
    select s.time_zone from account.sign_ins s where s.user_id = u.id and s.time_zone <> ''
    order by s.created_at desc limit 1
  ), '') as zone`

// recipient reads a user who gets a mail.
func (t *transaction) recipient(user uuid.UUID) (r mail.Recipient) {
	t.row(`select `+recipientColumns+` from account.users u where u.id = $1`, user).
		read(&r.Address, &r.Name, &r.Language, &r.Zone)
	return r
}

// recipientAt reads the user with an address in any spelling. There may be none.
func (t *transaction) recipientAt(email string) (r mail.Recipient) {
	t.row(`select `+recipientColumns+` from account.users u where u.email = any($1)
		order by array_position($1, u.email) limit 1`, spelling.Spellings(email)).
		find(&r.Address, &r.Name, &r.Language, &r.Zone)
	return r
}

// MailRecipient reads a user who gets a mail.
func (d *db) MailRecipient(ctx context.Context, user uuid.UUID) (mail.Recipient, error) {
	return need(ctx, d, "read the recipient of a mail", pgx.ErrNoRows, pgx.RowToStructByName[mail.Recipient],
		`select `+recipientColumns+` from account.users u where u.id = $1`, user)
}

// SetMailLanguage changes the language of the mails to a user, with the event.
func (a *Accounts) SetMailLanguage(ctx context.Context, user uuid.UUID, language string, event audit.Event) error {
	return a.change(ctx, "set language of mails", &event, func(tx *transaction) {
		tx.change(`update account.users set mail_language = $2 where id = $1 and mail_language <> $2`, user, language)
	})
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
		Seconds zeronull.Float8
	}
	w, err := need(ctx, d, "count mails", pgx.ErrNoRows, pgx.RowToStructByPos[waiting], `
select count(*)::int, extract(epoch from now() - min(created_at))::float8
from account_jobs.river_job where kind = 'mail' and state in ('available', 'running', 'retryable', 'scheduled')`)
	return w.Count, time.Duration(float64(w.Seconds) * float64(time.Second)), err
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
	m := mail.Message{
		Kind:    mail.Invitation,
		Address: i.Email,
		Token:   token,
		Data:    mail.Data{Permissions: titles(i.Permissions)},
		Expires: i.Expires,
	}
	t.row(`select t.name, u.name, now() from account.tenants t, account.users u
		where t.id = $1 and u.id = $2`, i.WorkspaceID, i.InviterID).read(&m.Data.Workspace, &m.Data.Person, &m.Data.At)
	known := t.recipientAt(i.Email)
	m.Language, m.Zone = known.Language, known.Zone
	t.queue(m)
}

// mailMember tells a user about a change of the user's membership, in the transaction of the change.
func (t *transaction) mailMember(kind mail.Kind, workspaceID, user uuid.UUID, permissions perm.Set) {
	t.mail(user, kind, mail.Data{Workspace: t.workspaceName(workspaceID), Permissions: titles(permissions)})
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

// Webhooks lists the webhook endpoints of a workspace, newest first.
func (c *Clients) Webhooks(ctx context.Context, workspaceID uuid.UUID) ([]webhook.Endpoint, error) {
	return listLong(ctx, c.db, "list webhook endpoints", webhook.Scan, `select `+webhook.Columns+`
		from account.webhooks w where w.tenant_id = $1 order by w.created_at desc, w.id desc`, workspaceID)
}

// Webhook reads an endpoint of the workspace. It returns webhook.ErrNotFound.
func (c *Clients) Webhook(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Endpoint, error) {
	return need(ctx, c.db, "read a webhook endpoint", webhook.ErrNotFound, webhook.Scan, "select "+webhook.Columns+
		" from account.webhooks w where w.tenant_id = $1 and w.id = $2", workspaceID, id)
}

// WebhookDeliveries lists the latest deliveries to an endpoint of the workspace, newest first.
func (c *Clients) WebhookDeliveries(
	ctx context.Context, workspaceID, endpoint uuid.UUID, limit int,
) ([]webhook.Delivery, error) {
	return listLong(ctx, c.db, "list webhook deliveries", webhook.ScanDelivery, "select "+webhook.DeliveryColumns+`
		from account.webhook_deliveries d where d.tenant_id = $1 and d.webhook_id = $2
		order by d.created_at desc, d.id desc limit $3`, workspaceID, endpoint, limit)
}

// WebhookDelivery reads a delivery to an endpoint of the workspace, and what its event says: nil if it is no longer
// stored. It returns webhook.ErrNotFound.
func (c *Clients) WebhookDelivery(
	ctx context.Context, workspaceID, endpoint, id uuid.UUID,
) (webhook.Delivery, *webhook.Event, error) {
	d, err := need(ctx, c.db, "read a webhook delivery", webhook.ErrNotFound, webhook.ScanDelivery, "select "+
		webhook.DeliveryColumns+` from account.webhook_deliveries d
		where d.tenant_id = $1 and d.webhook_id = $2 and d.id = $3`, workspaceID, endpoint, id)
	if err != nil {
		return d, nil, err
	}
	if d.Sequence == nil {
		test := webhook.TestEvent(endpoint, d.CreatedAt)
		return d, &test, nil
	}
	e, stored, err := one(ctx, c.db, "read the event of a webhook delivery", pgx.RowToStructByPos[webhook.Event],
		`select e.type, e.created_at, e.data, e.sequence from account.events e
		where e.tenant_id = $1 and e.sequence = $2`, workspaceID, *d.Sequence)
	if !stored {
		return d, nil, err
	}
	return d, &e, nil
}

// WebhookKey returns the public key for sealing secrets, or webhook.ErrNotReady.
func (c *Clients) WebhookKey(ctx context.Context) ([]byte, error) {
	return need(ctx, c.db, "read the key of webhook secrets", webhook.ErrNotReady, pgx.RowTo[[]byte],
		"select public_key from account.webhook_keys order by published_at desc limit 1")
}

// AddWebhook stores an endpoint, records the event and queues the mails about it. It returns webhook.ErrTooMany or
// webhook.ErrTaken.
func (c *Clients) AddWebhook(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed, event audit.Event) error {
	return c.changeWebhook(ctx, "add a webhook endpoint", event, func(tx *transaction) (webhook.Endpoint, error) {
		tx.fail(webhook.Add(ctx, tx, e, secret))
		tx.mailWebhookAdded(e)
		return e, nil
	})
}

// DeleteWebhook deletes an endpoint and records the event. It returns webhook.ErrNotFound.
func (c *Clients) DeleteWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error {
	return c.changeWebhook(ctx, "delete a webhook endpoint", event, func(tx *transaction) (webhook.Endpoint, error) {
		return webhook.Delete(ctx, tx, workspaceID, id)
	})
}

// EnableWebhook enables an endpoint, which then gets the events that it missed and that the user may read. It records
// the event and returns webhook.ErrNotFound.
func (c *Clients) EnableWebhook(ctx context.Context, workspaceID, id, user uuid.UUID, event audit.Event) error {
	return c.changeWebhook(ctx, "enable a webhook endpoint", event, func(tx *transaction) (webhook.Endpoint, error) {
		return webhook.Enable(ctx, tx, workspaceID, id, webhook.Maker{UserID: user})
	})
}

// SetWebhookPersonalData includes or omits the personal data of events, records the event, and queues the mails if the
// data was omitted before. It returns webhook.ErrNotFound.
func (c *Clients) SetWebhookPersonalData(
	ctx context.Context, workspaceID, id, user uuid.UUID, include bool, event audit.Event,
) error {
	return c.changeWebhook(ctx, "change a webhook endpoint", event, func(tx *transaction) (webhook.Endpoint, error) {
		former, err := webhook.Lock(ctx, tx, workspaceID, id)
		if err != nil {
			return former, err
		}
		e, err := webhook.SetPersonalData(ctx, tx, workspaceID, id, user, include)
		if err == nil && include && !former.PersonalData {
			tx.mailWebhook(mail.WebhookPersonal, e, former.UserID)
		}
		return e, err
	})
}

// SetWebhookTypes changes which events are sent to an endpoint, whose user is then the given one, and records the
// change. It returns webhook.ErrNotFound.
func (c *Clients) SetWebhookTypes(ctx context.Context, e webhook.Endpoint, user uuid.UUID, event audit.Event) error {
	return c.changeWebhook(ctx, "change a webhook endpoint", event, func(tx *transaction) (webhook.Endpoint, error) {
		return webhook.SetTypes(ctx, tx, e, user)
	})
}

// DisableWebhook disables an endpoint and records the event. It returns webhook.ErrNotFound.
func (c *Clients) DisableWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error {
	return c.changeWebhook(ctx, "disable a webhook endpoint", event, func(tx *transaction) (webhook.Endpoint, error) {
		return webhook.Disable(ctx, tx, workspaceID, id)
	})
}

// ReplaceWebhookSecret replaces the secret of an endpoint and records the event. For webhook.SecretOverlap, events are
// also signed with the previous secret. It returns webhook.ErrNotFound or webhook.ErrReplaced.
func (c *Clients) ReplaceWebhookSecret(
	ctx context.Context, workspaceID, id, replacement uuid.UUID, secret webhook.Sealed, event audit.Event,
) error {
	return c.changeWebhook(ctx, "replace a webhook secret", event, func(tx *transaction) (webhook.Endpoint, error) {
		return webhook.ReplaceSecret(ctx, tx, workspaceID, id, replacement, secret, webhook.SecretOverlap)
	})
}

// changeWebhook runs a change and records the event with the host of the endpoint only, since the rest of its URL may
// contain a secret.
func (c *Clients) changeWebhook(
	ctx context.Context, op string, event audit.Event, change func(*transaction) (webhook.Endpoint, error),
) error {
	return c.change(ctx, op, &event, func(tx *transaction) {
		e, err := change(tx)
		tx.fail(err)
		event.Detail = map[string]any{"host": webhookHost(e.URL)}
		if event.Action == audit.WebhookDisabled {
			event.Detail["reason"] = e.Reason
		}
		if event.Action == audit.WebhookChanged || (e.PersonalData && event.Action == audit.WebhookAdded) {
			event.Detail["personal_data"] = e.PersonalData
		}
		if event.Action == audit.WebhookChanged {
			event.Detail["types"], event.Detail["all_types"] = e.Types, e.AllTypes
		}
	})
}

// TestWebhook adds a test event to the deliveries of an endpoint. It returns webhook.ErrNotFound or webhook.ErrWaiting.
func (c *Clients) TestWebhook(ctx context.Context, workspaceID, id, delivery uuid.UUID, by *audit.Authorization) error {
	return c.atomically(ctx, "test a webhook endpoint", func(tx *transaction) {
		if tx.stillAllowed(by); tx.err == nil {
			tx.err = webhook.RequestTest(ctx, tx, workspaceID, id, delivery)
		}
	})
}

// ResendWebhook sends the event of an earlier delivery again. need checks its type. It returns webhook.ErrNotFound,
// webhook.ErrDisabled or webhook.ErrWaiting.
func (c *Clients) ResendWebhook(
	ctx context.Context, workspaceID, id, former, delivery uuid.UUID, by *audit.Authorization,
	need func(eventType string) error,
) error {
	return c.atomically(ctx, "send a webhook again", func(tx *transaction) {
		if tx.stillAllowed(by); tx.err == nil {
			tx.err = webhook.RequestResend(ctx, tx, workspaceID, id, former, delivery, need)
		}
	})
}

// webhookMailsLate is how long after an endpoint was disabled a mail is still sent.
const webhookMailsLate = 48 * time.Hour

// QueueWebhookMails queues the mails about endpoints that resourceapi has added or disabled and returns the number of
// endpoints. Each mail is queued once, even if several processes call QueueWebhookMails at the same time.
func (c *Clients) QueueWebhookMails(ctx context.Context) (queued int, err error) {
	for due, queue := range map[string]func(*transaction, webhook.Endpoint){
		"mail_due": (*transaction).mailWebhookDisabled, "added_mail_due": (*transaction).mailWebhookAdded,
	} {
		var some []webhook.Endpoint
		err := c.atomically(ctx, "queue mails about webhooks", func(tx *transaction) {
			some = rowsOf(tx, webhook.Scan, `select `+webhook.Columns+` from account.webhooks w
				where w.`+due+` order by w.id limit 20 for update skip locked`)
			for _, e := range some {
				tx.exec(`update account.webhooks w set `+due+` = false where w.tenant_id = $2 and w.id = $1`, e.ID,
					e.WorkspaceID)
				queue(tx, e)
			}
		})
		if err != nil {
			return queued, err
		}
		queued += len(some)
	}
	return queued, nil
}

func (t *transaction) mailWebhookDisabled(e webhook.Endpoint) {
	data := mail.Data{Host: webhookHost(e.URL), Gone: e.Reason == webhook.Gone}
	var late bool
	t.row(`select t.name, w.enabled or w.disabled_at < now() - $2::interval
		from account.webhooks w join account.tenants t on t.id = w.tenant_id where w.tenant_id = $3 and w.id = $1`,
		e.ID, webhookMailsLate, e.WorkspaceID).read(&data.Workspace, &late)
	if !late {
		t.mail(e.UserID, mail.WebhookDisabled, data)
	}
}

// mailWebhookAdded queues the mails about a new endpoint.
func (t *transaction) mailWebhookAdded(e webhook.Endpoint) {
	t.mailWebhook(mail.WebhookAdded, e, e.UserID)
}

// mailWebhook queues the mails about an endpoint, to its maker, its former maker and all who can manage the members.
func (t *transaction) mailWebhook(kind mail.Kind, e webhook.Endpoint, former uuid.UUID) {
	if !t.sendsMail() {
		return
	}
	path := "/settings/webhooks?tenant=" + e.WorkspaceID.String()
	data := mail.Data{Host: webhookHost(e.URL), Personal: e.PersonalData, Path: path}
	t.row(`select t.name, u.name, coalesce((select p.name from account.personal_access_tokens p where p.id = $3), '')
		from account.tenants t, account.users u where t.id = $1 and u.id = $2`, e.WorkspaceID, e.UserID, e.TokenID).
		read(&data.Workspace, &data.Person, &data.Token)
	if e.GrantID != nil {
		t.row(`select coalesce((select c.name from account.grants g
			join account.oauth_clients c on c.id = g.client_id where g.tenant_id = $1 and g.id = $2), '')`,
			e.WorkspaceID, *e.GrantID).read(&data.Application)
	}
	for _, reader := range rowsOf(t, pgx.RowTo[uuid.UUID], `select m.user_id from account.memberships m
		where m.tenant_id = $1 and (m.user_id in ($2, $4) or $3 = any(m.permissions)) order by m.user_id`,
		e.WorkspaceID, e.UserID, string(perm.AccountWriteMembers), former) {
		t.mail(reader, kind, data)
	}
}

func webhookHost(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return parsed.Host
}
