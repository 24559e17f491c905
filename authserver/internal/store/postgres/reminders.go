package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
)

// reminders are how long before the end of a connection its user gets mails, in their order (contract, section 5b). The
// column end_reminders counts those that are done.
var reminders = [...]time.Duration{7 * day, day}

// An endingGrant is one that ends soon.
type endingGrant struct {
	WorkspaceID, ID uuid.UUID
	Ends            time.Time
}

// MailEndingConnections queues a mail 7 days and 1 day before the end of each connection that was made for longer, once
// each. A connection that was made for a shorter time, or whose end was moved so near that the next mail is due too,
// gets that one alone. Users who are disabled or turned these mails off get none.
func (g *Grants) MailEndingConnections(ctx context.Context) error {
	var failed []error
	for done, before := range reminders {
		for last, more := (endingGrant{}), true; more; {
			due, err := list(ctx, g.db, "list ending connections", pgx.RowToStructByPos[endingGrant], `
select g.tenant_id, g.id, g.ends_at from account.grants g
  where g.end_reminders = $1 and g.ends_at > now() and g.ends_at <= now() + $2::interval
    and (g.ends_at, g.id) > ($3, $4)
  order by g.ends_at, g.id limit $5`, done, before, last.Ends, last.ID, maxMailed)
			failed = append(failed, err)
			for _, e := range due {
				failed = append(failed, g.atomically(ctx, "remind of the end of a connection", func(tx *transaction) {
					tx.remind(e, done)
				}))
				last = e
			}
			more = len(due) == maxMailed
		}
	}
	return errors.Join(failed...)
}

// remind does the next reminder of a grant, of which this number is done. Another process may have done it. A grant
// that a row of account.endings concerns is left until the row is done.
func (t *transaction) remind(e endingGrant, done int) {
	var user, app uuid.UUID
	var kind client.Kind
	var created, ends, now time.Time
	var live bool
	if !t.row(`select now()`).find(&now) ||
		!t.row(`update account.grants g set end_reminders = @done + 1
			where g.tenant_id = @in and g.id = @id and g.end_reminders = @done and g.ends_at <= @until
			and `+notEndingSQL+`
			returning g.user_id, g.client_id, g.kind, g.created_at, g.ends_at, g.state = 'active' and g.generation > 0`,
			pgx.NamedArgs{"in": e.WorkspaceID, "id": e.ID, "done": done, "until": now.Add(reminders[done])}).
			find(&user, &app, &kind, &created, &ends, &live) {
		return
	}
	next := done + 1
	if !live || !ends.After(now) || ends.Sub(created) <= reminders[done] ||
		next < len(reminders) && ends.Sub(now) <= reminders[next] {
		return
	}
	m := mail.Message{
		Kind:    mail.ConnectionEnding,
		Data:    mail.Data{Ends: ends, Path: "/settings/connect"},
		Expires: ends,
	}
	if kind != client.Connector {
		m.Data.Path = connectionPage + e.ID.String()
	}
	var document string
	var redirects []string
	t.row(`select c.name, t.name, coalesce(c.metadata_url, ''), c.redirect_uris
		from account.oauth_clients c, account.tenants t where c.id = $1 and t.id = $2`, app, e.WorkspaceID).
		read(&m.Data.Application, &m.Data.Workspace, &document, &redirects)
	m.Data.Home = consent.ProvenHome(document, redirects)
	t.mailMessage(user, m)
}
