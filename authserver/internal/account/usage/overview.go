package usage

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/contract/usage"
)

// Periods of an overview.
const (
	// Shown is how many days an overview, and the page of a credential, look back, with today.
	Shown = usage.ShownDays
	// SettledAfter is how old a credential is when an overview may call it idle.
	SettledAfter = 7 * 24 * time.Hour
	// EndsWithin is the time before its end in which a credential is about to end.
	EndsWithin = 14 * 24 * time.Hour

	// longestLife is longer than any connection or token lives: 90 days (spec 8), and a minute more for a connection.
	longestLife = 91 * 24 * time.Hour
)

// Bounds of what a list of an overview reads, however much a workspace has.
const (
	// LooksAt is the number of connections and tokens that a list looks at, those that have ended included.
	LooksAt = 10_000
	// Counts is the number of rows of usage that Busiest counts, the latest days first.
	Counts = 20_000
)

// FirstShown returns the first day of those that an overview looks back, midnight in UTC.
func FirstShown(now time.Time) time.Time {
	return usage.Day(now).AddDate(0, 0, 1-Shown)
}

// A Credential is a connection or a personal access token in an overview.
type Credential struct {
	Kind     string // as that of a Row
	ID       uuid.UUID
	UserID   uuid.UUID
	Name     string // of the application or of the token, or "" if it is no longer stored
	Person   string // name of the user
	Email    string // of the user
	Created  time.Time
	LastUsed *time.Time
	Ends     time.Time
	Ended    bool // only of Busiest, which also lists ended ones
	Requests int  // only of Busiest: in the last 30 days
	Refused  int  // of these
}

// Connection reports whether it is a connection, and otherwise a personal access token.
func (c Credential) Connection() bool { return c.Kind == standing.Connection }

// Place returns the place of the credential in a list by creation.
func (c Credential) Place() audit.Cursor { return audit.Cursor{At: c.Created, ID: c.ID} }

// A List is a list of an overview.
type List struct {
	Credentials []Credential
	Next        audit.Cursor // of Idle: before this place, the list goes on; the zero Cursor is its end
	Partial     bool         // more may belong to the list: it looked at LooksAt, or Counts, and there are more
	Since       time.Time    // of a partial Busiest: the first day that it counted, which it may have counted in part
}

// A Selection selects credentials of a workspace.
type Selection struct {
	IDs          []uuid.UUID  // those with these ids, or nil for all
	From, Before audit.Cursor // those at or after the first place of a list by creation, and before the second
	UserID       *uuid.UUID   // those of one user, or nil for all
	Now          time.Time
	Idle         bool
	Expiring     bool // the order is that of the ends, or otherwise the latest first
	Limit        int
}

// An OverviewStore reads the credentials of workspaces. Its errors wrap store.ErrUnavailable.
type OverviewStore interface {
	// ActiveCredentials lists the active credentials that the selection selects.
	ActiveCredentials(ctx context.Context, workspaceID uuid.UUID, selection Selection) ([]Credential, error)
	// Bound returns the place of the last of the first LooksAt credentials of the selection, ended ones included, the
	// latest first or, with Expiring, the earliest first. It is the zero Cursor if there are no more.
	Bound(ctx context.Context, workspaceID uuid.UUID, selection Selection) (audit.Cursor, error)
	// BusiestCredentials lists those with the most requests of a user, or of all if it is nil, since a day.
	BusiestCredentials(
		ctx context.Context, workspaceID uuid.UUID, user *uuid.UUID, since time.Time, limit int,
	) (List, error)
}

// Overviews list credentials by what they did (contract, section 5b), among those that the actor may see
// (audit.Actor.Sees). They are safe for concurrent use.
type Overviews struct {
	Store OverviewStore
	Now   func() time.Time
}

// Idle lists the active credentials that did nothing in the last 30 days, and are older than SettledAfter: those before
// a place in the list, whose beginning is the zero Cursor.
func (o Overviews) Idle(ctx context.Context, by audit.Actor, before audit.Cursor, limit int) (out List, err error) {
	if before.At.IsZero() {
		before.At = o.Now().Add(-SettledAfter)
	}
	selection := Selection{Before: before, Idle: true, Limit: limit + 1}
	if selection.From, err = o.bound(ctx, by, selection); err != nil {
		return out, err
	}
	if out.Credentials, err = o.active(ctx, by, selection); err != nil {
		return out, err
	}
	if len(out.Credentials) > limit {
		out.Credentials = out.Credentials[:limit]
		out.Next = out.Credentials[limit-1].Place()
		return out, nil
	}
	out.Next, out.Partial = selection.From, !selection.From.At.IsZero()
	return out, nil
}

// StillIdle lists those of these credentials that Idle would list.
func (o Overviews) StillIdle(ctx context.Context, by audit.Actor, ids []uuid.UUID) ([]Credential, error) {
	return o.active(ctx, by, Selection{IDs: ids, Idle: true, Limit: len(ids)})
}

// Expiring lists the active credentials that end within EndsWithin, first those that end first. In a workspace with
// more than LooksAt, it looks at the earliest of the longest life, of which most have ended, and at the earliest of
// those that can still be alive as connections of assistants, which live for some days.
func (o Overviews) Expiring(ctx context.Context, by audit.Actor, days, limit int) (out List, err error) {
	for _, life := range []time.Duration{longestLife, time.Duration(days) * 24 * time.Hour} {
		from := audit.Cursor{At: o.Now().Add(-life)}
		selection := Selection{From: from, Expiring: true, Limit: limit}
		if selection.Before, err = o.bound(ctx, by, selection); err != nil {
			return out, err
		}
		found, err := o.active(ctx, by, selection)
		if err != nil {
			return out, err
		}
		out.Credentials = append(out.Credentials, found...)
		if selection.Before.At.IsZero() {
			break
		}
		out.Partial = true
	}
	slices.SortFunc(out.Credentials, func(a, b Credential) int {
		return cmp.Or(a.Ends.Compare(b.Ends), slices.Compare(a.ID[:], b.ID[:]))
	})
	out.Credentials = slices.CompactFunc(out.Credentials, func(a, b Credential) bool { return a.ID == b.ID })
	out.Credentials = out.Credentials[:min(len(out.Credentials), limit)]
	return out, nil
}

// Busiest lists the credentials that made the most requests in the last 30 days.
func (o Overviews) Busiest(ctx context.Context, by audit.Actor, limit int) (List, error) {
	user, err := by.Sees(nil)
	if err != nil {
		return List{}, err
	}
	return o.Store.BusiestCredentials(ctx, by.WorkspaceID, user, FirstShown(o.Now()), limit)
}

func (o Overviews) bound(ctx context.Context, by audit.Actor, selection Selection) (place audit.Cursor, err error) {
	if selection.UserID, err = by.Sees(nil); err != nil {
		return place, err
	}
	return o.Store.Bound(ctx, by.WorkspaceID, selection)
}

func (o Overviews) active(
	ctx context.Context, by audit.Actor, selection Selection,
) (found []Credential, err error) {
	selection.Now = o.Now()
	if selection.UserID, err = by.Sees(nil); err != nil {
		return nil, err
	}
	return o.Store.ActiveCredentials(ctx, by.WorkspaceID, selection)
}
