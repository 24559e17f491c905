package postgres

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// Networks lists the networks from which a credential of the workspace was used, the latest used first.
func (g *Grants) Networks(ctx context.Context, workspaceID, credential uuid.UUID) ([]usage.Network, error) {
	return list(ctx, g.db, "list networks", pgx.RowToStructByName[usage.Network], `
select network, first_used_at, last_used_at from account.credential_networks
  where tenant_id = $1 and credential_id = $2 order by last_used_at desc, first_used_at desc, network
  limit $3`, workspaceID, credential, standing.NetworksAtMost)
}

// Pages of a connection and of a personal access token, before their id.
const (
	connectionPage = "/settings/apps/app?id="
	tokenPage      = "/settings/tokens/token?id="
)

const (
	networkMailsLate = 48 * time.Hour // how long after the first use from a network a mail is still sent
	// networkMailsADay is how many mails about single networks there are about a credential in a day. One more says
	// that there are many, and is the last for a week.
	networkMailsADay = 5
	networkMailsRest = 7 * day
)

// A usedCredential is one that was used from a new network.
type usedCredential struct{ WorkspaceID, ID uuid.UUID }

// A newNetwork is due a mail.
type newNetwork struct {
	Network netip.Prefix
	At      time.Time
	User    uuid.UUID
	Kind    string
}

// QueueNetworkMails queues the mails about new networks from which credentials were used (account.note_networks). Each
// is queued once, even if several processes call QueueNetworkMails at the same time. There is none about a credential
// that has ended. About one credential there are networkMailsADay in a day, and then one that says that there are many
// and is the last for a week.
func (g *Grants) QueueNetworkMails(ctx context.Context) error {
	due, err := list(ctx, g.db, "list new networks", pgx.RowToStructByPos[usedCredential], `
select distinct tenant_id, credential_id from account.credential_networks where mail_due
  order by tenant_id, credential_id limit $1`, maxMailed)
	failed := []error{err}
	for _, c := range due {
		failed = append(failed, g.atomically(ctx, "mail new networks", func(tx *transaction) { tx.mailNetworks(c) }))
	}
	return errors.Join(failed...)
}

func (t *transaction) mailNetworks(c usedCredential) {
	var now, since time.Time
	var mailed int
	// The lock of the credential, as in account.note_networks. It is missing if the first network was forgotten.
	t.row(`select now()`).read(&now)
	t.row(`select coalesce(mailed_at, 'epoch'), mails from account.credential_networks
		where tenant_id = $1 and credential_id = $2 and is_first for update`, c.WorkspaceID, c.ID).find(&since, &mailed)
	found := rowsOf(t, pgx.RowToStructByPos[newNetwork], `update account.credential_networks set mail_due = false
		where tenant_id = $1 and credential_id = $2 and mail_due returning network, first_used_at, user_id, kind`,
		c.WorkspaceID, c.ID)
	slices.SortFunc(found, func(a, b newNetwork) int { return a.At.Compare(b.At) })
	var data mail.Data
	var created time.Time
	if len(found) == 0 || !t.liveCredential(c, found[0].Kind, &data, &created) || t.learning(created) {
		return
	}
	quiet := day
	if mailed > networkMailsADay {
		quiet = networkMailsRest
	}
	if now.Sub(since) >= quiet {
		since, mailed = now, 0
	}
	for _, n := range found {
		if now.Sub(n.At) > networkMailsLate || mailed > networkMailsADay {
			continue
		}
		data.Network, data.At = n.Network.String(), n.At
		if data.Many = mailed == networkMailsADay; data.Many {
			data.Network, since = "", now
		}
		t.mail(n.User, mail.NewNetwork, data)
		mailed++
	}
	t.exec(`update account.credential_networks set mailed_at = $3, mails = $4
		where tenant_id = $1 and credential_id = $2 and is_first`, c.WorkspaceID, c.ID, since, mailed)
}

// learning reports whether the networks of a credential are only noted: for a week, if it was made before any were
// recorded.
func (t *transaction) learning(created time.Time) bool {
	return t.has(`select true from account.finished_upgrades where name = 'networks_recorded'
		and finished_at > $1 and now() < finished_at + interval '7 days' limit 1`, created)
}

// liveCredential reads the names of a credential and its page, and when it was made. It returns false if the credential
// has ended.
func (t *transaction) liveCredential(c usedCredential, kind string, data *mail.Data, created *time.Time) bool {
	args := pgx.NamedArgs{"in": c.WorkspaceID, "id": c.ID}
	if kind == standing.PersonalAccessToken {
		data.Path = tokenPage + c.ID.String()
		return t.row(`select p.name, t.name, p.created_at from account.personal_access_tokens p join account.tenants t
			on t.id = p.tenant_id where p.tenant_id = @in and p.id = @id and p.revoked_at is null
			and p.expires_at > now() and `+tokenNotEndingSQL, args).find(&data.Token, &data.Workspace, created)
	}
	data.Path = connectionPage + c.ID.String()
	return t.row(`select c.name, t.name, g.created_at`+connectionTables+`
		where g.tenant_id = @in and g.id = @id and g.generation > 0 and `+liveSQL, args).
		find(&data.Application, &data.Workspace, created)
}
