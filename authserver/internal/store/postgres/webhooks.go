package postgres

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
)

// Webhooks lists the webhook endpoints of a workspace, newest first.
func (s *Store) Webhooks(ctx context.Context, workspaceID uuid.UUID) ([]webhook.Endpoint, error) {
	return listLong(ctx, s, "list webhook endpoints", webhook.Scan, "select "+webhook.Columns+` from account.webhooks w
		where w.tenant_id = $1 order by w.created_at desc, w.id desc`, workspaceID)
}

// Webhook reads an endpoint of the workspace. It returns webhook.ErrNotFound.
func (s *Store) Webhook(ctx context.Context, workspaceID, id uuid.UUID) (webhook.Endpoint, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	e, err := webhook.Find(ctx, s.pool, workspaceID, id)
	if errors.Is(err, webhook.ErrNotFound) {
		return webhook.Endpoint{}, err
	}
	return e, unavailable("read a webhook endpoint", err)
}

// WebhookDeliveries lists the latest deliveries to an endpoint of the workspace, newest first.
func (s *Store) WebhookDeliveries(
	ctx context.Context, workspaceID, endpoint uuid.UUID, limit int,
) ([]webhook.Delivery, error) {
	return listLong(ctx, s, "list webhook deliveries", webhook.ScanDelivery, "select "+webhook.DeliveryColumns+`
		from account.webhook_deliveries d where d.tenant_id = $1 and d.webhook_id = $2
		order by d.created_at desc, d.id desc limit $3`, workspaceID, endpoint, limit)
}

// WebhookKey returns the public key for sealing secrets, or webhook.ErrNotReady.
func (s *Store) WebhookKey(ctx context.Context) ([]byte, error) {
	key, found, err := one(ctx, s, "read the key of webhook secrets", pgx.RowTo[[]byte],
		"select public_key from account.webhook_keys order by published_at desc limit 1")
	if err == nil && !found {
		err = webhook.ErrNotReady
	}
	return key, err
}

// AddWebhook stores an endpoint, records the event and queues the mails about it. It returns webhook.ErrTooMany or
// webhook.ErrTaken.
func (s *Store) AddWebhook(ctx context.Context, e webhook.Endpoint, secret webhook.Sealed, event audit.Event) error {
	return s.changeWebhook(ctx, "add a webhook endpoint", event, func(tx pgx.Tx) (webhook.Endpoint, error) {
		if err := webhook.Add(ctx, tx, e, secret); err != nil {
			return e, err
		}
		return e, s.mailWebhookAdded(ctx, tx, e)
	})
}

// DeleteWebhook deletes an endpoint and records the event. It returns webhook.ErrNotFound.
func (s *Store) DeleteWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error {
	return s.changeWebhook(ctx, "delete a webhook endpoint", event, func(tx pgx.Tx) (webhook.Endpoint, error) {
		return webhook.Delete(ctx, tx, workspaceID, id)
	})
}

// EnableWebhook enables an endpoint, which then gets the events that it missed and that the user may read. It records
// the event and returns webhook.ErrNotFound.
func (s *Store) EnableWebhook(ctx context.Context, workspaceID, id, user uuid.UUID, event audit.Event) error {
	return s.changeWebhook(ctx, "enable a webhook endpoint", event, func(tx pgx.Tx) (webhook.Endpoint, error) {
		return webhook.Enable(ctx, tx, workspaceID, id, webhook.Maker{UserID: user})
	})
}

// SetWebhookPersonalData includes or omits the personal data of events, records the event, and queues the mails if the
// data was omitted before. It returns webhook.ErrNotFound.
func (s *Store) SetWebhookPersonalData(
	ctx context.Context, workspaceID, id, user uuid.UUID, include bool, event audit.Event,
) error {
	return s.changeWebhook(ctx, "change a webhook endpoint", event, func(tx pgx.Tx) (webhook.Endpoint, error) {
		former, err := webhook.Lock(ctx, tx, workspaceID, id)
		if err != nil {
			return former, err
		}
		e, err := webhook.SetPersonalData(ctx, tx, workspaceID, id, user, include)
		if err != nil || !include || former.PersonalData {
			return e, err
		}
		return e, s.mailWebhook(ctx, tx, mail.WebhookPersonal, e, former.UserID)
	})
}

// DisableWebhook disables an endpoint and records the event. It returns webhook.ErrNotFound.
func (s *Store) DisableWebhook(ctx context.Context, workspaceID, id uuid.UUID, event audit.Event) error {
	return s.changeWebhook(ctx, "disable a webhook endpoint", event, func(tx pgx.Tx) (webhook.Endpoint, error) {
		return webhook.Disable(ctx, tx, workspaceID, id)
	})
}

// ReplaceWebhookSecret replaces the secret of an endpoint and records the event. For webhook.SecretOverlap, events are
// also signed with the previous secret. It returns webhook.ErrNotFound or webhook.ErrReplaced.
func (s *Store) ReplaceWebhookSecret(
	ctx context.Context, workspaceID, id, replacement uuid.UUID, secret webhook.Sealed, event audit.Event,
) error {
	return s.changeWebhook(ctx, "replace a webhook secret", event, func(tx pgx.Tx) (webhook.Endpoint, error) {
		return webhook.ReplaceSecret(ctx, tx, workspaceID, id, replacement, secret, webhook.SecretOverlap)
	})
}

// changeWebhook runs a change and records the event with the host of the endpoint only, since the rest of its URL may
// contain a secret.
func (s *Store) changeWebhook(
	ctx context.Context, op string, event audit.Event, change func(pgx.Tx) (webhook.Endpoint, error),
) error {
	return s.change(ctx, op, &event, func(tx pgx.Tx) error {
		e, err := change(tx)
		event.Detail = map[string]any{"host": webhookHost(e.URL)}
		if event.Action == audit.WebhookDisabled {
			event.Detail["reason"] = e.Reason
		}
		if event.Action == audit.WebhookChanged || (e.PersonalData && event.Action == audit.WebhookAdded) {
			event.Detail["personal_data"] = e.PersonalData
		}
		return err
	})
}

// TestWebhook adds a test event to the deliveries of an endpoint. It returns webhook.ErrNotFound or webhook.ErrWaiting.
func (s *Store) TestWebhook(
	ctx context.Context, workspaceID, id, delivery uuid.UUID, allowed *audit.Authorization,
) error {
	return s.atomically(ctx, "test a webhook endpoint", func(tx pgx.Tx) error {
		if err := stillAllowed(ctx, tx, allowed); err != nil {
			return err
		}
		return webhook.RequestTest(ctx, tx, workspaceID, id, delivery)
	})
}

// ResendWebhook sends the event of an earlier delivery again. need checks its type. It returns webhook.ErrNotFound,
// webhook.ErrDisabled or webhook.ErrWaiting.
func (s *Store) ResendWebhook(
	ctx context.Context,
	workspaceID, id, former, delivery uuid.UUID,
	allowed *audit.Authorization,
	need func(eventType string) error,
) error {
	return s.atomically(ctx, "send a webhook again", func(tx pgx.Tx) error {
		if err := stillAllowed(ctx, tx, allowed); err != nil {
			return err
		}
		return webhook.RequestResend(ctx, tx, workspaceID, id, former, delivery, need)
	})
}

// webhookMailsLate is how long after an endpoint was disabled a mail is still sent.
const webhookMailsLate = 48 * time.Hour

// QueueWebhookMails queues the mails about endpoints that resourceapi has added or disabled and returns the number of
// endpoints. Each mail is queued once, even if several processes call QueueWebhookMails at the same time.
func (s *Store) QueueWebhookMails(ctx context.Context) (queued int, err error) {
	for due, queue := range map[string]func(context.Context, pgx.Tx, webhook.Endpoint) error{
		"mail_due": s.mailWebhookDisabled, "added_mail_due": s.mailWebhookAdded,
	} {
		err := s.atomically(ctx, "queue mails about webhooks", func(tx pgx.Tx) error {
			some, err := collect(ctx, tx, webhook.Scan, `select `+webhook.Columns+` from account.webhooks w
				where w.`+due+` order by w.id limit 20 for update skip locked`)
			if err != nil {
				return err
			}
			for _, e := range some {
				_, err := tx.Exec(ctx, `update account.webhooks w set `+due+` = false
					where w.tenant_id = $2 and w.id = $1`, e.ID, e.WorkspaceID)
				if err == nil {
					err = queue(ctx, tx, e)
				}
				if err != nil {
					return err
				}
			}
			queued += len(some)
			return nil
		})
		if err != nil {
			return queued, err
		}
	}
	return queued, nil
}

func (s *Store) mailWebhookDisabled(ctx context.Context, tx pgx.Tx, e webhook.Endpoint) error {
	m := mail.Message{Kind: mail.WebhookDisabled, Data: mail.Data{
		Host: webhookHost(e.URL),
		Gone: e.Reason == webhook.Gone,
	}}
	var late bool
	err := tx.QueryRow(ctx, `select t.name, w.enabled or w.disabled_at < now() - $2::interval
		from account.webhooks w join account.tenants t on t.id = w.tenant_id where w.tenant_id = $3 and w.id = $1`,
		e.ID, webhookMailsLate, e.WorkspaceID).Scan(&m.Data.Workspace, &late)
	if err != nil || late {
		return err
	}
	return s.queueMail(ctx, tx, e.UserID, m)
}

// mailWebhookAdded queues the mails about a new endpoint.
func (s *Store) mailWebhookAdded(ctx context.Context, tx pgx.Tx, e webhook.Endpoint) error {
	return s.mailWebhook(ctx, tx, mail.WebhookAdded, e, e.UserID)
}

// mailWebhook queues the mails about an endpoint, to its maker, its former maker and all who can manage the members.
func (s *Store) mailWebhook(
	ctx context.Context, tx pgx.Tx, kind mail.Kind, e webhook.Endpoint, former uuid.UUID,
) error {
	if s.mails == nil {
		return nil
	}
	m := mail.Message{Kind: kind, Data: mail.Data{
		Host:     webhookHost(e.URL),
		Personal: e.PersonalData,
		Path:     "/settings/webhooks?tenant=" + e.WorkspaceID.String(),
	}}
	err := tx.QueryRow(ctx, `select t.name, u.name,
		coalesce((select p.name from account.personal_access_tokens p where p.id = $3), '')
		from account.tenants t, account.users u where t.id = $1 and u.id = $2`, e.WorkspaceID, e.UserID, e.TokenID).
		Scan(&m.Data.Workspace, &m.Data.Person, &m.Data.Token)
	if err == nil && e.GrantID != nil {
		err = tx.QueryRow(ctx, `select coalesce((select c.name from account.grants g
			join account.oauth_clients c on c.id = g.client_id where g.tenant_id = $1 and g.id = $2), '')`,
			e.WorkspaceID, *e.GrantID).Scan(&m.Data.Application)
	}
	if err != nil {
		return err
	}
	readers, err := collect(ctx, tx, pgx.RowTo[uuid.UUID], `select m.user_id from account.memberships m
		where m.tenant_id = $1 and (m.user_id in ($2, $4) or $3 = any(m.permissions)) order by m.user_id`,
		e.WorkspaceID, e.UserID, string(perm.AccountWriteMembers), former)
	for i := 0; err == nil && i < len(readers); i++ {
		err = s.queueMail(ctx, tx, readers[i], m)
	}
	return err
}

func webhookHost(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return parsed.Host
}
