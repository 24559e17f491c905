package postgres

import (
	"cmp"
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// managersSQL selects the members who can give access: those with the permission @decides who hold the requested
// permissions or, if there are none, all with @decides. With @mailed, it omits members who turned this mail off.
const managersSQL = `
with managers as (
  select u.id, u.name, u.email, m.created_at, m.permissions @> @needs as holds
  from account.memberships m join account.users u on u.id = m.user_id and u.disabled_at is null
  where m.tenant_id = @tenant and u.id <> @but and @decides = any(m.permissions)
    and not (@mailed and exists (select from account.unwanted_mails w where w.user_id = u.id and w.kind = @kind))
)
select id as user_id, name, email from managers
where holds or not exists (select from managers where holds)
order by created_at, id limit @most`

func managersArgs(q membership.AccessRequest, mailed bool) pgx.NamedArgs {
	return pgx.NamedArgs{"tenant": q.WorkspaceID, "but": q.UserID, "decides": string(q.Decides()),
		"needs": append([]string{}, q.Needs().Strings()...), "mailed": mailed,
		"kind": string(mail.AccessRequested), "most": membership.MaxRequestRecipients}
}

var scanManager = pgx.RowToStructByName[membership.Manager]

// Managers implements membership.Managers.
func (a *Accounts) Managers(
	ctx context.Context, q membership.AccessRequest, mailed bool,
) ([]membership.Manager, error) {
	return listLong(ctx, a.db, "list managers", scanManager, managersSQL, managersArgs(q, mailed))
}

// SendAccessRequest mails the request to the members who can give the access, and records the event. It changes nothing
// if the outcome is not membership.RequestSent.
func (a *Accounts) SendAccessRequest(
	ctx context.Context, q membership.AccessRequest, event audit.Event,
) (outcome membership.Outcome, err error) {
	if a.mails == nil {
		return membership.NoMail, nil
	}
	err = a.change(ctx, "ask for access", &event, func(tx *transaction) { // locks the user: one request at a time
		var member bool
		var managers []membership.Manager
		outcome, member, managers = tx.mayAsk(q)
		if outcome == membership.RequestSent {
			outcome = tx.saveRequest(q, member)
		}
		if outcome != membership.RequestSent {
			tx.noEvent = true
			return
		}
		m := mail.Message{Kind: mail.AccessRequested, Data: requestData(q, member)}
		tx.row(`select t.name, u.name, u.email from account.tenants t, account.users u
			where t.id = $1 and u.id = $2`, q.WorkspaceID, q.UserID).
			read(&m.Data.Workspace, &m.Data.Person, &m.Data.Email)
		for _, manager := range managers {
			tx.mailMessage(manager.UserID, m)
		}
		event.Detail["recipients"], event.Detail["member"] = len(managers), member
	})
	return outcome, err
}

// mayAsk returns membership.RequestSent if the user may send the request, whether the user is a member, and who gets
// it.
func (t *transaction) mayAsk(
	q membership.AccessRequest,
) (outcome membership.Outcome, member bool, managers []membership.Manager) {
	if !t.isProven(q.UserID) {
		return membership.RequesterUnproven, false, nil
	}
	held, member := t.lockMember(q.WorkspaceID, q.UserID)
	if member && !q.LLMIntegration && !q.Policy && held.HasAll(q.Permissions) {
		return membership.AccessGiven, member, nil
	}
	managers = rowsOf(t, scanManager, managersSQL, managersArgs(q, true))
	if len(managers) == 0 {
		return membership.NoManager, member, nil
	}
	return membership.RequestSent, member, managers
}

// saveRequest stores the request unless a limit is reached (R2).
func (t *transaction) saveRequest(q membership.AccessRequest, member bool) membership.Outcome {
	if !member {
		t.lock("access requests " + q.WorkspaceID.String())
		var others int
		t.row(`select count(*) from account.access_requests
			where tenant_id = $1 and not member and user_id <> $2 and asked_at > now() - $3::interval`,
			q.WorkspaceID, q.UserID, membership.RequestInterval).read(&others)
		if others >= membership.MaxRequestsByNonMembers {
			return membership.TooManyRequests
		}
	}
	saved := t.exec(`
insert into account.access_requests as a (user_id, tenant_id, permissions, application, member, asked_at)
values ($1, $2, $3, $4, $5, now())
on conflict (user_id, tenant_id) do update set permissions = excluded.permissions,
  application = excluded.application, member = excluded.member, asked_at = excluded.asked_at
where a.asked_at <= excluded.asked_at - $6::interval`, q.UserID, q.WorkspaceID,
		append([]string{}, q.Permissions.Strings()...), q.Application, member, membership.RequestInterval)
	if saved == 0 {
		return membership.RequestSentBefore
	}
	return membership.RequestSent
}

// requestData returns what the mail says and where its link leads.
func requestData(q membership.AccessRequest, member bool) mail.Data {
	d := mail.Data{
		Permissions:    titles(q.Permissions),
		Application:    q.Application,
		LLMIntegration: q.LLMIntegration,
		Policy:         q.Policy,
	}
	at := "?tenant=" + q.WorkspaceID.String()
	switch {
	case q.Policy:
		d.Path = "/settings/connectors" + at + "#policy"
	case q.LLMIntegration:
		d.Path = "/settings/connectors" + at
	case member:
		d.Path = "/settings/members/member" + at + "&id=" + q.UserID.String() + "&asked=1"
	default:
		d.Path = "/settings/members" + at + "&asked=" + q.UserID.String()
	}
	return d
}

// requestsSQL selects the open requests of users for permissions that they do not have: of one user, or of all.
const requestsSQL = `
select u.id as user_id, u.name, u.email, a.permissions, a.application, a.asked_at as at, m.user_id is not null as member
from account.access_requests a
join account.users u on u.id = a.user_id and u.disabled_at is null
left join account.memberships m on m.tenant_id = a.tenant_id and m.user_id = a.user_id
where a.tenant_id = @tenant and (@user::uuid is null or a.user_id = @user) and a.asked_at > now() - @kept::interval
  and (a.answered_at is null or a.answered_at < a.asked_at)
  and cardinality(a.permissions) > 0 and not a.permissions <@ coalesce(m.permissions, '{}')
order by a.asked_at desc limit @most`

func (a *Accounts) accessRequests(
	ctx context.Context, workspaceID uuid.UUID, user *uuid.UUID,
) ([]membership.SentRequest, error) {
	scan := withPermissions(func(q *membership.SentRequest) *perm.Set { return &q.Permissions })
	return listLong(ctx, a.db, "list access requests", scan, requestsSQL, pgx.NamedArgs{"tenant": workspaceID,
		"user": user, "kept": membership.RequestsKept, "most": membership.MaxRequestsListed})
}

// AccessRequests lists the open requests for permissions in a workspace, the latest first.
func (a *Accounts) AccessRequests(ctx context.Context, workspaceID uuid.UUID) ([]membership.SentRequest, error) {
	return a.accessRequests(ctx, workspaceID, nil)
}

// AccessRequest reads the open request of a user, or returns membership.ErrAnswered.
func (a *Accounts) AccessRequest(
	ctx context.Context, workspaceID, user uuid.UUID,
) (membership.SentRequest, error) {
	found, err := a.accessRequests(ctx, workspaceID, &user)
	if err != nil || len(found) == 0 {
		return membership.SentRequest{}, cmp.Or(err, membership.ErrAnswered)
	}
	return found[0], nil
}

// DeclineAccess answers a request with the event, or returns membership.ErrAnswered.
func (a *Accounts) DeclineAccess(
	ctx context.Context, workspaceID uuid.UUID, q membership.SentRequest, event audit.Event,
) error {
	return a.changeMembers(ctx, "decline access", workspaceID, &event, func(tx *transaction) {
		tx.answerRequest(workspaceID, q)
	})
}

// answerRequest ends a request that is still open, or fails with membership.ErrAnswered.
func (t *transaction) answerRequest(workspaceID uuid.UUID, q membership.SentRequest) {
	answered := t.exec(`update account.access_requests set answered_at = now()
		where tenant_id = $1 and user_id = $2 and asked_at = $3 and (answered_at is null or answered_at < asked_at)`,
		workspaceID, q.UserID, q.At)
	t.require(answered == 1, membership.ErrAnswered)
}
