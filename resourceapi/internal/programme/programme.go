// Package programme answers: what is a programme, and what may become of one?
//
// It does no I/O. Stores and endpoints speak in its types, and its rules (contract, section 6) are these:
//
//	P1  A programme has a name, and does not end before it starts.
//	P2  Its status changes along the arrows alone: draft → active → completed → archived, draft → archived.
//	P3  The list is in one order, created_at then id, newest first, whatever is inserted meanwhile.
//	P4  A cursor continues the list that it came from (workspace and filters), and no other.
//	P5  Of an import, all rows become programmes or none does.
//	P6  Programmes become visible in the order of their times: none appears with a createdAt or updatedAt that is not later
//	    than all that could be read before. So a client that stops at the newest programme it knows, or asks next with the
//	    newest updatedAt that it has seen, misses none.
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
	ID        uuid.UUID
	Name      string
	Summary   string
	Status    Status
	StartsOn  *Date
	EndsOn    *Date
	CreatedAt time.Time // to the microsecond, as Postgres keeps it
	UpdatedAt time.Time
	Version   int // counts the changes from 1; what an entity tag is made of
}

// Same says whether p and q are one version of one programme, with nothing changed in between.
func (p Programme) Same(q Programme) bool {
	if !sameDay(p.StartsOn, q.StartsOn) || !sameDay(p.EndsOn, q.EndsOn) {
		return false
	}
	p.StartsOn, p.EndsOn = q.StartsOn, q.EndsOn
	return p == q
}

// A Status is where a programme stands in its life.
type Status string

// The statuses.
const (
	Draft     Status = "draft"
	Active    Status = "active"
	Completed Status = "completed"
	Archived  Status = "archived"
)

// ParseStatus reads a status, to the letter.
func ParseStatus(text string) (Status, bool) {
	s := Status(text)
	return s, slices.Contains([]Status{Draft, Active, Completed, Archived}, s)
}

// CanBecome says whether a programme may move from one status to the other (P2).
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

// Refusals. What is wrong with a value is said by Problems.
var (
	ErrNotFound   = errors.New("no such record in this workspace")
	ErrStale      = errors.New("the programme was changed since it was read")
	ErrTransition = errors.New("the programme's status cannot become that")

	// ErrTooExpensive says that a search would take longer than it may.
	ErrTooExpensive = errors.New("the search takes too long")
	// ErrImportsWait says that too many imports of the workspace wait to be processed.
	ErrImportsWait = errors.New("too many imports of the workspace wait")
)

// Problems says what is wrong with which field, in words for a person: field → message.
type Problems map[string]string

func (p Problems) Error() string { return "invalid fields" }

// orNil keeps an empty map from becoming an error that is not nil.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// A Writer changes what a workspace has, within one transaction.
type Writer interface {
	Create(ctx context.Context, workspaceID uuid.UUID, d Details) (Programme, error)
	// Replace writes what edit makes of the programme. It returns ErrNotFound, or the error of edit.
	Replace(ctx context.Context, workspaceID, id uuid.UUID, edit func(Programme) (Programme, error)) (Programme, error)
	// AcceptImport keeps a file that CheckImport found good, to be processed later, and returns its id.
	AcceptImport(ctx context.Context, workspaceID, user uuid.UUID, content string) (uuid.UUID, error)
}
