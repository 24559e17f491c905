package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

const (
	// redeemedSQL selects the grants g of a workspace that are connections: their code was redeemed.
	redeemedSQL = `g.tenant_id = @in and g.state <> 'pending' and g.generation > 0`
	// liveSQL is true for the connections g that can act.
	liveSQL = `g.state = 'active' and g.ends_at > now() and ` + notOverSQL
)

// A condition is a part of a statement that selects rows, if given.
type condition struct {
	given bool
	sql   string
}

// where returns the conditions that are given. The statement contains no others, so that it has its own plan.
func where(always string, others ...condition) string {
	text := ` where ` + always
	for _, one := range others {
		if one.given {
			text += ` and ` + one.sql
		}
	}
	return text
}

// Connections lists the connections of a workspace that the filter selects, the latest first, also those that have
// ended. What a row of account.endings ends or narrows is shown as if it had been done.
func (g *Grants) Connections(
	ctx context.Context, workspaceID uuid.UUID, filter consent.ConnectionFilter,
) ([]consent.Connection, error) {
	args := pgx.NamedArgs{"in": workspaceID, "id": filter.ID, "user": filter.UserID, "client": filter.ClientID,
		"reason": filter.Reason, "since": filter.Since, "words": spelling.Search(filter.Words), "limit": filter.Limit,
		"before": filter.Before.At, "before_id": filter.Before.ID}
	now := time.Now()
	scan := func(row pgx.CollectableRow) (consent.Connection, error) {
		var ends []pendingEnd
		c, err := scanConnection(row, &ends)
		c.Grant = limitedBy(ends, c.Grant, now)
		return c, err
	}
	return list(ctx, g.db, "list connections", scan, `select `+connectionColumns+`,
`+pendingEndsSQL+connectionTables+where(redeemedSQL,
		condition{filter.ID != nil, `g.id = @id`},
		condition{filter.UserID != nil, `g.user_id = @user`},
		condition{filter.ClientID != nil, `g.client_id = @client`},
		condition{filter.State == consent.ConnectionActive, liveSQL},
		condition{filter.State == consent.ConnectionEnded, `not (` + liveSQL + `)`},
		// Of those that are revoked, and of those that rows of account.endings end.
		condition{filter.Reason != "", `(g.revoke_reason = @reason and g.revoked_at > @since or g.revoked_at is null
			and g.ends_at > now() and exists (select from account.endings e where ` + concernedSQL + `
			and e.reason = @reason and e.until > @since))`},
		condition{filter.Words != "", `strpos(lower(c.name || ' ' || u.name || ' ' || u.email), lower(@words)) > 0`},
		condition{filter.Before.ID != uuid.Nil, `(g.created_at, g.id) < (@before, @before_id)`},
	)+` order by g.created_at desc, g.id desc limit @limit`, args)
}

// NarrowConnection takes from an active grant all permissions but these, with the event that narrowSQL records. It
// returns false if the grant is not active, or lacks one of them.
func (g *Grants) NarrowConnection(
	ctx context.Context, workspaceID, id uuid.UUID, permissions perm.Set, event audit.Event,
) (narrowed bool, err error) {
	err = g.change(ctx, "narrow connection", &event, func(tx *transaction) {
		tx.noEvent = true
		narrowed = tx.exec(fmt.Sprintf(narrowSQL, `g.id = @id and g.permissions @> @permissions and `+liveSQL),
			pgx.NamedArgs{"in": workspaceID, "id": id, "permissions": permissions.Strings(), "life": nil,
				"reason": "narrowed", "actor": event.Actor, "request": event.RequestID}) > 0
	})
	return narrowed, err
}

// WorkspaceTokens lists the active personal access tokens of a workspace that the filter selects, the latest first.
func (g *Grants) WorkspaceTokens(
	ctx context.Context, workspaceID uuid.UUID, filter pat.Filter,
) ([]pat.MemberToken, error) {
	scan := withPermissions(func(t *pat.MemberToken) *perm.Set { return &t.Permissions })
	return list(ctx, g.db, "list tokens of workspace", scan, `
select m.name as person, m.email, `+tokenColumns+` from `+tokenRows+` join account.users m on m.id = p.user_id`+where(
		`p.tenant_id = @in and p.revoked_at is null and p.expires_at > now() and `+tokenNotEndingSQL,
		condition{filter.ID != nil, `p.id = @id`},
		condition{filter.UserID != nil, `p.user_id = @user`},
		condition{filter.Before.ID != uuid.Nil, `(p.created_at, p.id) < (@before, @before_id)`},
	)+` order by p.created_at desc, p.id desc limit @limit`, pgx.NamedArgs{"in": workspaceID, "id": filter.ID,
		"user": filter.UserID, "before": filter.Before.At, "before_id": filter.Before.ID, "limit": filter.Limit})
}
