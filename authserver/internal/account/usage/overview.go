package usage

import (
	"context"
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

// A Selection selects credentials of a workspace.
type Selection struct {
	IDs    []uuid.UUID  // those with these ids, or nil for all
	Before audit.Cursor // those after this place in the list; the zero Cursor is the beginning
	Limit  int

	UserID         *uuid.UUID // those of one user, or nil for all; set by Overviews
	Now            time.Time  // set by Overviews
	Idle, Expiring bool       // set by Overviews
}

// An OverviewStore reads the credentials of workspaces. Its errors wrap store.ErrUnavailable.
type OverviewStore interface {
	// ActiveCredentials lists the active credentials that the selection selects: with Expiring, those that end first,
	// and otherwise the latest first.
	ActiveCredentials(ctx context.Context, workspaceID uuid.UUID, selection Selection) ([]Credential, error)
	// BusiestCredentials lists those with the most requests of a user, or of all if it is nil, since a day.
	BusiestCredentials(
		ctx context.Context, workspaceID uuid.UUID, user *uuid.UUID, since time.Time, limit int,
	) ([]Credential, error)
}

// Overviews list credentials by what they did (contract, section 5b), among those that the actor may see
// (audit.Actor.Sees). They are safe for concurrent use.
type Overviews struct {
	Store OverviewStore
	Now   func() time.Time
}

// Idle lists the active credentials that did nothing in the last 30 days, and are older than SettledAfter.
func (o Overviews) Idle(ctx context.Context, by audit.Actor, selection Selection) ([]Credential, error) {
	selection.Idle = true
	return o.active(ctx, by, selection)
}

// Expiring lists the active credentials that end within EndsWithin.
func (o Overviews) Expiring(ctx context.Context, by audit.Actor, limit int) ([]Credential, error) {
	return o.active(ctx, by, Selection{Expiring: true, Limit: limit})
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

// Busiest lists the credentials that made the most requests in the last 30 days.
func (o Overviews) Busiest(ctx context.Context, by audit.Actor, limit int) ([]Credential, error) {
	user, err := by.Sees(nil)
	if err != nil {
		return nil, err
	}
	return o.Store.BusiestCredentials(ctx, by.WorkspaceID, user, FirstShown(o.Now()), limit)
}
