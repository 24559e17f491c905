// Package programme defines programmes and the rules for changing, listing and importing them.
//
// It does no I/O. Stores and endpoints use its types. Its rules (contract, section 6) are:
//
//	P1  A programme has a name, and does not end before it starts.
//	P2  Its status changes only along these arrows: draft → active → completed → archived, draft → archived.
//	P3  The list has one order, created_at then id, newest first, whatever is inserted meanwhile.
//	P4  A cursor continues only the list that it came from (workspace and filters).
//	P5  Either all rows of an import become programmes, or none does.
//	P6  Programmes become visible in the order of their times: none appears with a createdAt or updatedAt that is not
//	    later than all that could be read before. A client that stops at the newest programme it knows, or continues
//	    with the newest updatedAt that it has seen, misses none.
package programme

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
)

// A Programme is one record of a workspace.
type Programme struct {
	ID       uuid.UUID
	Name     string
	Summary  string
	Status   Status
	StartsOn *Date
	EndsOn   *Date
	// ExternalID is the id that the programme has in another system, or "". It is unique in the workspace.
	ExternalID string

	CreatedAt time.Time // with the microsecond precision of Postgres
	UpdatedAt time.Time
	Version   int // counts the changes from 1; source of the entity tag
}

// Same reports whether p and q are the same version of the same programme.
func (p Programme) Same(q Programme) bool {
	if !sameDay(p.StartsOn, q.StartsOn) || !sameDay(p.EndsOn, q.EndsOn) {
		return false
	}
	p.StartsOn, p.EndsOn = q.StartsOn, q.EndsOn
	return p == q
}

// A Status is the state of a programme.
type Status string

// The statuses.
const (
	Draft     Status = "draft"
	Active    Status = "active"
	Completed Status = "completed"
	Archived  Status = "archived"
)

// ParseStatus parses a status, which must match exactly.
func ParseStatus(text string) (Status, bool) {
	s := Status(text)
	return s, slices.Contains([]Status{Draft, Active, Completed, Archived}, s)
}

// CanBecome reports whether a programme may move from status s to the other (P2).
func (s Status) CanBecome(to Status) bool {
	switch s {
	case Draft:
		return to == Active || to == Archived
	case Active:
		return to == Completed
	case Completed:
		return to == Archived
	}
	return false
}

// Errors other than invalid.Fields.
var (
	ErrNotFound   = errors.New("no such record in this workspace")
	ErrNoDraft    = errors.New("the programme is not a draft")
	ErrTransition = errors.New("the programme's status cannot become that")

	// ErrTooExpensive is returned for a search that exceeds its time limit.
	ErrTooExpensive = errors.New("the search takes too long")
	// ErrImportsWait is returned if too many imports of the workspace wait to be processed.
	ErrImportsWait = errors.New("too many imports of the workspace wait")
)

// A Writer changes the records of a workspace within one transaction.
type Writer interface {
	// Create returns ErrExternalID if another programme has the external id.
	Create(ctx context.Context, workspaceID uuid.UUID, d Details) (Programme, error)
	// Replace stores the result of edit. It returns ErrNotFound, ErrExternalID, or the error of edit.
	Replace(ctx context.Context, workspaceID, id uuid.UUID, edit func(Programme) (Programme, error)) (Programme, error)
	// DeleteDraft deletes a draft. It returns ErrNotFound or ErrNoDraft.
	DeleteDraft(ctx context.Context, workspaceID, id, by uuid.UUID) error
	// LockExternalIDs must come before a Replace that gives an external id.
	LockExternalIDs(ctx context.Context, workspaceID uuid.UUID) error
	// Upsert runs all, in order. A result with an error wrote nothing; the others are written.
	Upsert(ctx context.Context, workspaceID uuid.UUID, all []Upsert) ([]Upserted, error)
	// Move runs all transitions, in order. A transition whose result is ErrNotFound or ErrTransition changed nothing.
	Move(ctx context.Context, workspaceID uuid.UUID, all []Move) ([]Upserted, error)
	// AcceptImport stores a file that CheckImport accepted, to be processed later, and returns its id.
	AcceptImport(ctx context.Context, workspaceID, user uuid.UUID, content string) (uuid.UUID, error)
}
