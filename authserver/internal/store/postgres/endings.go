package postgres

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// The most that one transaction does, so that it stays well within the statement timeout.
const (
	endAtOnce     = 500   // grants that it revokes or narrows, and tokens that it revokes
	examineAtOnce = 5_000 // grants that it reads, whether or not they have ended
	beginAtOnce   = 20    // workspaces of a person or of a client that belongs to none
)

// An ending ends many grants and tokens of a workspace for one reason. Its transaction ends some. If more may be left,
// it adds a row to account.endings: from then on, no statement that decides about a grant or a token accepts one that
// the row concerns, and EndNext ends them in further transactions (G7, M3, P2). It is not a grant.Reuse, which
// describes a code or token that was presented again.
type ending struct {
	workspaceID uuid.UUID
	client      *uuid.UUID                 // nil: grants of any client
	user        *uuid.UUID                 // nil: grants of any user; the user's tokens end too, if client is nil
	keep        []uuid.UUID                // grants and tokens that stay
	policy      *workspace.ConnectorPolicy // connectors' grants are limited to it; nil: all that is concerned ends
	reason      grant.Reason
	actor       string
	request     string

	// Of a row of account.endings.
	id, after uuid.UUID
	at        *time.Time // what was created later is not concerned
}

// concernedSQL is the condition that a row e of account.endings applies to the grant g. The next three are conditions
// that no row applies.
const (
	concernedSQL = `e.tenant_id = g.tenant_id and g.created_at <= e.until
  and (e.client_id is null or e.client_id = g.client_id) and (e.user_id is null or e.user_id = g.user_id)
  and g.id <> all (e.keep)`
	// notEndingSQL is true unless the grant g ends, or is narrowed, by a row of account.endings.
	notEndingSQL = `not exists (select from account.endings e where ` + concernedSQL + `
  and (e.days is null or g.kind = 'connector'))`
	// notOverSQL is true unless a row ends the grant g. It ignores policies.
	notOverSQL = `not exists (select from account.endings e where ` + concernedSQL + ` and e.days is null)`
	// tokenNotEndingSQL is notEndingSQL for a personal access token p.
	tokenNotEndingSQL = `not exists (select from account.endings e where e.tenant_id = p.tenant_id
  and e.user_id = p.user_id and e.client_id is null and e.days is null and p.created_at <= e.until
  and p.id <> all (e.keep))`
	// pendingEndsSQL selects the rows of account.endings that concern the grant g, for limitedBy.
	pendingEndsSQL = `(select jsonb_agg(jsonb_build_object('reason', e.reason, 'at', e.until, 'platforms', e.platforms,
    'permissions', e.permissions, 'days', e.days, 'platform', coalesce(c.connector_platform, 'other')) order by e.until)
  from account.endings e where ` + concernedSQL + `)`
)

// A pendingEnd is a row of account.endings that concerns a grant.
type pendingEnd struct {
	Reason      grant.Reason
	At          time.Time
	Platforms   []workspace.Platform
	Permissions []string
	Days        *int
	Platform    workspace.Platform // that of the grant's client
}

// limitedBy returns a grant as the rows of account.endings leave it: revoked, narrowed, or unchanged.
func limitedBy(ends []pendingEnd, g grant.Grant, now time.Time) grant.Grant {
	for _, e := range ends {
		left := e.Days != nil
		if g.State == grant.Revoked || (left && g.Kind != client.Connector) {
			continue
		}
		if left {
			limit := workspace.ConnectorPolicy{
				Platforms:   e.Platforms,
				Permissions: perm.FromStrings(e.Permissions),
				Days:        *e.Days,
			}
			g, left = consent.Narrow(limit, g, workspace.PlatformOf(string(e.Platform)), g.Created)
			left = left && g.Ends.After(now)
		}
		if !left {
			g.State, g.Reason, g.RevokedAt = grant.Revoked, e.Reason, &e.At
		}
	}
	return g
}

// args are the arguments of the conditions below.
func (e ending) args() pgx.NamedArgs {
	args := pgx.NamedArgs{}
	if e.policy != nil {
		args = policyArgs(e.workspaceID, *e.policy)
	}
	args["in"], args["at"], args["after"], args["examine"] = e.workspaceID, e.at, e.after, examineAtOnce
	args["client"], args["user"], args["keep"] = e.client, e.user, append([]uuid.UUID{}, e.keep...)
	args["reason"], args["actor"], args["request"] = string(e.reason), e.actor, e.request
	return args
}

// Conditions on the grants g of the workspace.
const (
	endingSQL = `(@at::timestamptz is null or g.created_at <= @at)
  and (@client::uuid is null or g.client_id = @client) and (@user::uuid is null or g.user_id = @user)
  and not g.id = any (@keep) and g.state <> 'revoked'`
	policyEndingSQL    = endingSQL + ` and ` + policyConcerns + ` and ` + policyEnds
	policyNarrowingSQL = endingSQL + ` and ` + policyConcerns + ` and not ` + policyEnds +
		` and (` + policyCuts + ` or ` + policyHastens + `)`
)

// conditions select the grants that the ending revokes, and those that it narrows.
func (e ending) conditions() (revokes, narrows string) {
	if e.policy == nil {
		return endingSQL, `false`
	}
	return policyEndingSQL, policyNarrowingSQL
}

// found selects the grants that examine reads. The first part uses the index on the client, the user or the workspace.
// Later parts read the workspace's grants by id.
func (e ending) found() string {
	switch {
	case e.id != uuid.Nil:
		return `g.id > @after order by g.id`
	case e.client != nil:
		return `g.client_id = @client order by g.created_at desc`
	case e.user != nil:
		return `g.user_id = @user`
	}
	return `true order by g.created_at desc, g.id desc`
}

// A part is what one transaction of an ending has found and done.
type part struct {
	revoke, narrow []uuid.UUID
	last           uuid.UUID // of the examined grants
	more           bool      // more grants or tokens may be left

	ended  []grant.Grant
	tokens int
}

// credentials returns what the part has revoked.
func (p part) credentials() useraccount.EndedCredentials {
	ended := useraccount.EndedCredentials{Tokens: p.tokens, More: p.more}
	for _, g := range p.ended {
		ended.Grants = append(ended.Grants, useraccount.EndedGrant{ID: g.ID, Ends: g.Ends})
	}
	return ended
}

// examine reads the next grants, and selects at most this number.
func (e ending) examine(tx *transaction, most int) (p part) {
	type examined struct {
		ID             uuid.UUID
		Revoke, Narrow bool
	}
	revokes, narrows := e.conditions()
	found := rowsOf(tx, pgx.RowToStructByPos[examined], `select g.id, `+revokes+`, `+narrows+` from account.grants g
		where g.tenant_id = @in and `+e.found()+` limit @examine`, e.args())
	p.more = len(found) == examineAtOnce
	for _, g := range found {
		switch full := len(p.revoke)+len(p.narrow) >= most; {
		case full && (g.Revoke || g.Narrow):
			p.more = true // this one is the next to be examined
			return p
		case g.Revoke:
			p.revoke = append(p.revoke, g.ID)
		case g.Narrow:
			p.narrow = append(p.narrow, g.ID)
		}
		p.last = g.ID
	}
	return p
}

// next does a part of an ending: at most this number of grants, and of tokens.
func (e ending) next(tx *transaction, most int) part {
	p := e.examine(tx, most)
	revokes, narrows := e.conditions()
	args := e.args()
	if len(p.revoke) > 0 {
		args["ids"] = p.revoke
		p.ended = revokeIn(tx, []uuid.UUID{e.workspaceID}, `g.id = any (@ids) and `+revokes, args, e.reason, e.actor)
	}
	if len(p.narrow) > 0 {
		args["ids"] = p.narrow
		tx.exec(fmt.Sprintf(narrowSQL, `g.id = any (@ids) and `+narrows), args)
	}
	if e.user != nil && e.client == nil {
		p.tokens = e.revokeTokens(tx, most)
		p.more = p.more || p.tokens == most
	}
	return p
}

// begin does the first part of an ending, and leaves the others to EndNext. The caller's transaction holds a lock
// that the creation of such a grant or token needs, so there is none that this transaction cannot see.
func (e ending) begin(tx *transaction, most int) part {
	e.request = web.RequestID(tx.ctx)
	if tx.rehearses { // refreshes of the grants must not wait for a transaction that is rolled back
		most = 0
	}
	p := e.next(tx, most)
	if !p.more {
		return p
	}
	if e.policy != nil { // the new row also covers what the earlier row of the same policy covers
		tx.exec(`delete from account.endings where tenant_id = @in and platforms = @platforms
			and permissions = @permissions and days = @days`, e.args())
	}
	e.leave(tx, []uuid.UUID{e.workspaceID})
	return p
}

// leave leaves an ending in the workspaces to EndNext.
func (e ending) leave(tx *transaction, workspaces []uuid.UUID) {
	args := e.args()
	args["request"], args["workspaces"] = web.RequestID(tx.ctx), workspaces
	if e.policy == nil {
		args["platforms"], args["permissions"], args["days"] = nil, nil, nil
	}
	tx.exec(`
insert into account.endings (id, tenant_id, until, client_id, user_id, keep, platforms, permissions, days, reason,
  actor, request_id)
select gen_random_uuid(), tenant_id, clock_timestamp(), @client, @user, @keep, @platforms, @permissions, @days, @reason,
  @actor, @request from unnest(@workspaces::uuid[]) tenant_id`, args)
}

// beginIn is begin for each of the workspaces, with at most endAtOnce grants in all, and leave for those after the
// first beginAtOnce. They are in the order in which transactions lock them.
func (e ending) beginIn(tx *transaction, workspaces []uuid.UUID) (all part) {
	if len(workspaces) > beginAtOnce {
		all.more = true
		e.leave(tx, workspaces[beginAtOnce:])
		workspaces = workspaces[:beginAtOnce]
	}
	for _, workspaceID := range workspaces {
		e.workspaceID = workspaceID
		p := e.begin(tx, max(0, endAtOnce-len(all.ended)-all.tokens))
		all.ended, all.tokens, all.more = append(all.ended, p.ended...), all.tokens+p.tokens, all.more || p.more
	}
	return all
}

// EndNext does the next part of an ending that its request left to the background, and returns the grants that it
// revoked so that the caller can update Redis. It returns false if there is none, or if other processes are at work on
// all of them.
func (g *Grants) EndNext(ctx context.Context) (ended []grant.Grant, found bool, err error) {
	err = g.atomically(ctx, "end grants", func(tx *transaction) {
		ended = nil
		tx.sequentially()
		var e ending
		if e, found = nextEnding(tx); !found {
			return
		}
		p := e.next(tx, endAtOnce)
		if tx.err != nil { // nothing is revoked; after an error of the commit it may be
			return
		}
		ended = p.ended
		if !p.more {
			tx.exec(`delete from account.endings where id = $1`, e.id)
			return
		}
		if p.last == uuid.Nil { // only tokens are left
			p.last = e.after
		}
		tx.exec(`update account.endings set after = $2, moved_at = clock_timestamp() where id = $1`, e.id, p.last)
	})
	return ended, found && err == nil, err
}

// nextEnding locks the ending that has waited longest, or returns false.
func nextEnding(tx *transaction) (e ending, found bool) {
	var limit workspace.ConnectorPolicy
	found = tx.row(`select id, tenant_id, until, client_id, user_id, keep, reason, actor, request_id, after,
		` + policyColumns + ` from account.endings p order by moved_at limit 1 for update skip locked`).
		find(append([]any{&e.id, &e.workspaceID, &e.at, &e.client, &e.user, &e.keep, &e.reason, &e.actor, &e.request,
			&e.after}, policyTargets(&limit)...)...)
	if limit.Days != 0 {
		limit = foundPolicy(limit)
		e.policy = &limit
	}
	return e, found
}

// revokeInSQL revokes the grants g of one workspace that match a condition. It locks rows in the order of their ids.
const revokeInSQL = `
with chosen as (
  select g.id, now() as at, g.state as former from account.grants g
  where g.tenant_id = @in and g.state <> 'revoked' and %s order by g.id for update
), g as (
  update account.grants g set state = 'revoked', revoked_at = chosen.at, revoke_reason = @reason
  from chosen where g.tenant_id = @in and g.id = chosen.id returning g.*, chosen.former
), recorded as (
  insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
  select gen_random_uuid(), tenant_id, user_id, @actor, '` + audit.GrantRevoked + `', 'grant:' || id,
    jsonb_build_object('reason', @reason::text, 'client_id', client_id::text, 'unused', former = 'pending'), @request
  from g
)
select ` + grantColumns + ` from g`

// revokeIn revokes every grant g of these workspaces that matches the condition, and records an audit event for each.
// The condition selects at most endAtOnce grants. The workspaces are in the order of their ids, so that two calls
// cannot deadlock.
func revokeIn(
	tx *transaction, workspaces []uuid.UUID, condition string, args pgx.NamedArgs, reason grant.Reason, actor string,
) (ended []grant.Grant) {
	if len(workspaces) == 0 || tx.err != nil {
		return nil
	}
	batch := &pgx.Batch{}
	for _, workspaceID := range workspaces {
		each := maps.Clone(args)
		each["in"], each["reason"], each["actor"] = workspaceID, string(reason), actor
		if each["request"] == nil {
			each["request"] = web.RequestID(tx.ctx)
		}
		batch.Queue(fmt.Sprintf(revokeInSQL, condition), each).Query(func(rows pgx.Rows) error {
			revoked, err := pgx.CollectRows(rows, scanGrant)
			ended = append(ended, revoked...)
			return err
		})
	}
	if err := tx.SendBatch(tx.ctx, batch).Close(); err != nil {
		tx.fail(fmt.Errorf("revoke grants: %w", err))
	}
	return ended
}

// revokeTokens revokes at most this number of the personal access tokens that an ending concerns, and records an event
// for each. It returns their number.
func (e ending) revokeTokens(tx *transaction, most int) int {
	args := e.args()
	args["most"] = most
	return int(tx.exec(`
with ended as (
  update account.personal_access_tokens set revoked_at = now(), revoke_reason = @reason
  where revoked_at is null and id = any (array(
    select p.id from account.personal_access_tokens p
    where p.tenant_id = @in and p.user_id = @user and p.revoked_at is null and p.expires_at > now()
      and not p.id = any (@keep) and (@at::timestamptz is null or p.created_at <= @at) limit @most))
  returning id, tenant_id, name
)
insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id)
select gen_random_uuid(), tenant_id, @user, @actor, '`+audit.TokenRevoked+`', 'token:' || id,
  jsonb_build_object('reason', @reason::text, 'name', name), @request from ended`, args))
}
