package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// errRolledBack ends the transaction of a rehearsal.
var errRolledBack = errors.New("rolled back")

// Concerned implements rehearsal.Store.
func (g *Grants) Concerned(
	ctx context.Context, workspaceID uuid.UUID, scope rehearsal.Scope,
) ([]rehearsal.Credential, error) {
	l := look{workspaceID: workspaceID, Part: rehearsal.Part{Scope: scope}}
	found, err := listLong(ctx, g.db, "find credentials", pgx.RowToStructByPos[rehearsal.Credential], `
select g.id, g.user_id, null::bytea, c.name, u.name from account.grants g
  join account.oauth_clients c on c.id = g.client_id
  join account.users u on u.id = g.user_id`+where(redeemedSQL+` and g.state = 'active' and g.ends_at > now()`,
		condition{l.UserID != nil, `g.user_id = @user`},
		condition{l.ClientID != nil, `g.client_id = @client`},
		condition{l.Assistants, `g.kind = 'connector'`},
	)+` limit @next`, l.args())
	if err == nil && l.ClientID == nil && !l.Assistants {
		var tokens []rehearsal.Credential
		tokens, err = listLong(ctx, g.db, "find credentials", pgx.RowToStructByPos[rehearsal.Credential], `
select p.id, p.user_id, p.hash, p.name, u.name from account.personal_access_tokens p
  join account.users u on u.id = p.user_id`+
			where(`p.tenant_id = @in and p.revoked_at is null and p.expires_at > now()`,
				condition{l.UserID != nil, `p.user_id = @user`},
			)+` limit @next`, l.args())
		found = append(found, tokens...)
	}
	if len(found) > rehearsal.MaxCredentials {
		err = rehearsal.ErrTooMany
	}
	return found, err
}

// Rehearse implements rehearsal.Store (R2, R4). The methods of the store that act calls use the transaction of its
// context, and leave what they end to account.endings: the transaction locks what act checks and changes, but no grants
// and tokens, so that requests of these do not wait. What is locked is read last, with the time limit of an operation.
func (g *Grants) Rehearse(
	ctx context.Context, workspaceID uuid.UUID, part rehearsal.Part, act func(context.Context) error,
) (before, after rehearsal.State, err error) {
	err = g.atomically(ctx, "rehearse", func(tx *transaction) {
		// What others commit meanwhile is no difference. If they change what act locks, atomically tries again.
		tx.exec(`set transaction isolation level repeatable read`)
		l := look{tx, workspaceID, part}
		before = l.state()
		tx.exec(`select set_config('statement_timeout', $1, true)`, fmt.Sprint(g.operationLimit.Milliseconds()))
		if tx.err != nil {
			return
		}
		acting := context.WithValue(tx.ctx, writingKey{}, &writing{tx: tx.Tx, rehearses: true})
		if err := act(acting); err != nil {
			tx.refuse(err) // it is already the one for the caller
			return
		}
		after = l.state()
		if tx.err == nil {
			tx.refuse(errRolledBack)
		}
	})
	if errors.Is(err, errRolledBack) {
		return before, after, nil
	}
	if slow, ok := errors.AsType[*pgconn.PgError](err); ok && slow.Code == queryCanceled {
		err = rehearsal.ErrTooSlow
	}
	return before, after, err
}

// A look reads what a part of a workspace has at some times of a transaction.
type look struct {
	*transaction
	workspaceID uuid.UUID
	rehearsal.Part
}

func (l *look) args() pgx.NamedArgs {
	return pgx.NamedArgs{"in": l.workspaceID, "user": l.UserID, "client": l.ClientID,
		"next": rehearsal.MaxCredentials + 1, "api": string(perm.AccountAPIAccess)}
}

// standings reads the standing of each credential, as of a request with an access token that was signed now.
func (l *look) standings() []standing.Standing {
	var key string
	l.row(`select kid from account.signing_keys where state = 'current'`).find(&key)
	queries := make([]standing.Query, len(l.Credentials))
	for i, c := range l.Credentials {
		queries[i] = standing.Query{PATHash: c.Hash, GrantID: c.ID, GrantIn: l.workspaceID, KeyID: key}
	}
	if l.err != nil || len(queries) == 0 {
		return nil
	}
	read, err := standing.ReadAll(l.ctx, l, queries)
	l.fail(err)
	all := make([]standing.Standing, len(read))
	for i, one := range read {
		if one != nil {
			all[i] = *one
		}
	}
	return all
}

// baseSQL selects what changes start from, besides the modules. They are refused once their member or client is gone.
const baseSQL = `select row(
  (select f.enabled from account.tenant_features f where f.tenant_id = @in and f.feature = 'llm_integration'),
  (select p from account.connector_policies p where p.tenant_id = @in),
  (select m.permissions from account.memberships m where m.tenant_id = @in and m.user_id = @user))::text`

// state reads what the workspace has now. An endpoint of a webhook gets events while what added it has
// account:api:access: resourceapi disables it at the next event otherwise.
func (l *look) state() rehearsal.State {
	type module struct {
		Name string
		rehearsal.Module
	}
	s := rehearsal.State{Standings: l.standings(), Modules: map[string]rehearsal.Module{}}
	for _, m := range rowsOf(l.transaction, pgx.RowToStructByName[module], `select module as name, enabled, provisioned
		from account.tenant_modules where tenant_id = $1`, l.workspaceID) {
		s.Modules[m.Name] = m.Module
	}
	l.row(baseSQL, l.args()).read(&s.Base)
	if !l.Others {
		return s
	}
	s.Webhooks = rowsOf(l.transaction, pgx.RowTo[uuid.UUID], `select w.id from account.webhooks w`+where(
		`w.tenant_id = @in and w.enabled and @api = any (account.webhook_standing(w.tenant_id, w.id))`,
		condition{l.UserID != nil, `w.user_id = @user`},
	)+` order by w.id`, l.args())
	if l.ClientID == nil {
		s.Invitations = rowsOf(l.transaction, pgx.RowTo[uuid.UUID], `select i.id from account.invitations i`+where(
			`i.tenant_id = @in and i.ended_at is null and i.expires_at > now()`,
			condition{l.UserID != nil, `i.invited_by = @user`},
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
