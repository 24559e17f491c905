package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// errRolledBack ends the transaction of a rehearsal.
var errRolledBack = errors.New("rolled back")

// Rehearse implements rehearsal.Store (R2). The methods of the store that act calls use the transaction of its context,
// and leave what they end to account.endings: the transaction locks what act checks and changes, but no grants and
// tokens, so that requests of these do not wait. What is locked is read last.
func (g *Grants) Rehearse(
	ctx context.Context, workspaceID uuid.UUID, scope rehearsal.Scope, act func(context.Context) error,
) (before, after rehearsal.State, err error) {
	err = g.atomically(ctx, "rehearse", func(tx *transaction) {
		l := look{transaction: tx, workspaceID: workspaceID, scope: scope}
		l.find()
		before = l.state()
		if tx.err != nil {
			return
		}
		acting := context.WithValue(tx.ctx, writingKey{}, &writing{tx: tx.Tx, rehearses: true})
		if err := act(acting); err != nil {
			tx.refuse(err) // it is already the one for the caller
			return
		}
		after = l.state()
		tx.refuse(errRolledBack)
	})
	if errors.Is(err, errRolledBack) {
		err = nil
	}
	return before, after, err
}

// A look reads what a workspace has at some times of a transaction.
type look struct {
	*transaction
	workspaceID uuid.UUID
	scope       rehearsal.Scope
	found       []candidate // that are read each time
}

// A candidate is a credential that had not ended at first.
type candidate struct {
	ID           uuid.UUID
	Hash         []byte // of a token
	Name, Person string
}

func (l *look) args() pgx.NamedArgs {
	return pgx.NamedArgs{"in": l.workspaceID, "user": l.scope.UserID, "client": l.scope.ClientID,
		"next": rehearsal.MaxCredentials + 1, "api": string(perm.AccountAPIAccess)}
}

// find finds the credentials of the scope.
func (l *look) find() {
	l.found = rowsOf(l.transaction, pgx.RowToStructByPos[candidate], `
select g.id, null::bytea, c.name, u.name from account.grants g join account.oauth_clients c on c.id = g.client_id
  join account.users u on u.id = g.user_id`+where(redeemedSQL+` and g.state = 'active' and g.ends_at > now()`,
		condition{l.scope.UserID != nil, `g.user_id = @user`},
		condition{l.scope.ClientID != nil, `g.client_id = @client`},
	)+` limit @next`, l.args())
	if l.scope.ClientID == nil {
		l.found = append(l.found, rowsOf(l.transaction, pgx.RowToStructByPos[candidate], `
select p.id, p.hash, p.name, u.name from account.personal_access_tokens p join account.users u on u.id = p.user_id`+
			where(`p.tenant_id = @in and p.revoked_at is null and p.expires_at > now()`,
				condition{l.scope.UserID != nil, `p.user_id = @user`},
			)+` limit @next`, l.args())...)
	}
	l.require(len(l.found) <= rehearsal.MaxCredentials, rehearsal.ErrTooMany)
}

// standingsAtOnce is the number of standings that one statement reads.
const standingsAtOnce = 1_000

// standings reads the standing of each credential, as of a request with an access token that was signed now.
func (l *look) standings() (all []rehearsal.Credential) {
	var key string
	l.row(`select kid from account.signing_keys where state = 'current'`).find(&key)
	for part := range slices.Chunk(l.found, standingsAtOnce) {
		queries := make([]standing.Query, len(part))
		for i, c := range part {
			queries[i] = standing.Query{PATHash: c.Hash, GrantID: c.ID, GrantIn: l.workspaceID, KeyID: key}
		}
		if l.err != nil {
			return nil
		}
		rows, err := l.Query(l.ctx, standing.SQL, standing.Args(queries)...)
		var read []*standing.Standing
		if err == nil {
			read, err = standing.Scan(rows, len(part))
		}
		if l.fail(err); err != nil {
			return nil
		}
		for i, c := range part {
			one := rehearsal.Credential{Name: c.Name, Person: c.Person}
			if read[i] != nil {
				one.Standing = *read[i]
			}
			all = append(all, one)
		}
	}
	return all
}

// state reads what the workspace has now. An endpoint of a webhook gets events while what added it has
// account:api:access: resourceapi disables it at the next event otherwise.
func (l *look) state() rehearsal.State {
	type module struct {
		Name string
		rehearsal.Module
	}
	s := rehearsal.State{Credentials: l.standings(), Modules: map[string]rehearsal.Module{}}
	for _, m := range rowsOf(l.transaction, pgx.RowToStructByName[module], `select module as name, enabled, provisioned
		from account.tenant_modules where tenant_id = $1`, l.workspaceID) {
		s.Modules[m.Name] = m.Module
	}
	s.Webhooks = rowsOf(l.transaction, pgx.RowTo[uuid.UUID], `select w.id from account.webhooks w`+where(
		`w.tenant_id = @in and w.enabled and @api = any (account.webhook_standing(w.tenant_id, w.id))`,
		condition{l.scope.UserID != nil, `w.user_id = @user`},
	)+` order by w.id`, l.args())
	if l.scope.ClientID == nil {
		s.Invitations = rowsOf(l.transaction, pgx.RowTo[uuid.UUID], `select i.id from account.invitations i`+where(
			`i.tenant_id = @in and i.ended_at is null and i.expires_at > now()`,
			condition{l.scope.UserID != nil, `i.invited_by = @user`},
		)+` order by i.id limit @next`, l.args())
	}
	return s
}

// Uses implements rehearsal.Store.
func (g *Grants) Uses(
	ctx context.Context, workspaceID uuid.UUID, credentials []uuid.UUID, since time.Time,
) ([]rehearsal.Use, error) {
	return list(ctx, g.db, "add up usage", pgx.RowToStructByName[rehearsal.Use], `
select u.credential_id, u.operation, sum(u.requests - u.refused)::bigint as requests from account.usage u
where u.tenant_id = $1 and u.credential_id = any ($2) and u.day >= $3 group by u.credential_id, u.operation`,
		workspaceID, credentials, since.Format(time.DateOnly))
}
