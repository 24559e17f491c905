package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	mailmetrics "github.com/almonerhq/almoner/authserver/internal/metrics"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/server"
)

// sendsMail reports whether the deployment sends mail. Pages show links to their senders where it does not.
func (c *Config) sendsMail() bool { return c.SMTPURL != "" }

// newMail makes the store queue mails, and returns what sends them in the background: nothing if the deployment sends
// none.
func newMail(
	c Config, store *postgres.Store, keys seal.Keys, registry *server.Registry, now func() time.Time, log *slog.Logger,
) ([]func(context.Context), error) {
	if !c.sendsMail() {
		return nil, nil
	}
	if err := queueMail(store, keys, now); err != nil {
		return nil, err
	}
	server, err := mail.ParseServer(c.SMTPURL)
	if err != nil {
		return nil, fmt.Errorf("ALMONER_SMTP_URL %w", err)
	}
	from, err := mail.ParseFrom(c.MailFrom)
	if err != nil {
		return nil, fmt.Errorf("ALMONER_MAIL_FROM %w", err)
	}
	shown, err := c.Options.Read()
	if err != nil {
		return nil, err
	}
	counts := mailmetrics.NewMail(registry, store.MailsWaiting)
	worker, err := mail.NewWorker(store.JobDriver(), mail.WorkerDeps{
		Schema:    postgres.MailSchema,
		Keys:      keys,
		AppURL:    c.AppURL,
		Brand:     shown,
		Transport: mail.NewSender(server, from, now),
		Prepare: map[mail.Kind]func(context.Context, *mail.Message) (bool, error){
			mail.Reset: prepareReset(store),
		},
		Periodic: store.MailExpiringTokens,
		Count:    counts.Count,
		Now:      now,
		Log:      log,
	})
	if err != nil {
		return nil, err
	}
	return []func(context.Context){
		worker.Run,
		func(ctx context.Context) { queueWebhookMails(ctx, store, log) },
	}, nil
}

// queueMail makes the store queue the mails of its changes.
func queueMail(store *postgres.Store, keys seal.Keys, now func() time.Time) error {
	queue, err := mail.NewQueue[pgx.Tx](store.JobDriver(), postgres.MailSchema, keys, now)
	if err != nil {
		return err
	}
	store.SendMail(queue)
	return nil
}

// prepareReset stores the link of a mail. The page that queues the mail does not know whether the address has an
// account, so that its response and its time are the same for all addresses.
func prepareReset(store *postgres.Store) func(context.Context, *mail.Message) (bool, error) {
	return func(ctx context.Context, m *mail.Message) (bool, error) {
		event := audit.Event{
			Actor:  "anonymous",
			Action: audit.UserResetRequested,
			Detail: map[string]any{"address": m.Data.Network},
		}
		to, made, err := store.BeginReset(ctx, m.Address, password.HashToken(m.Token), m.Expires, event)
		m.Name, m.Address = to.Name, to.Email
		return made, err
	}
}

// webhookMailInterval is how often the database is queried for webhook endpoints that resourceapi has disabled.
const webhookMailInterval = 10 * time.Second

// queueWebhookMails queues the mails about disabled webhook endpoints until ctx ends.
func queueWebhookMails(ctx context.Context, store *postgres.Store, log *slog.Logger) {
	failing := func(err error) { log.WarnContext(ctx, "mails about webhooks not queued; retrying", "error", err) }
	server.Repeat(ctx, failing, func(ctx context.Context) (time.Duration, error) {
		_, err := store.QueueWebhookMails(ctx)
		return webhookMailInterval, err
	})
}
