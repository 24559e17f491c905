package audit

import (
	"time"

	"github.com/google/uuid"
)

// An Entry is an event as the log holds it.
type Entry struct {
	ID uuid.UUID
	Event
	Person      string // name of the user whom it concerns, or ""
	Application string // name of the application that it concerns, or ""
	ActorName   string // name of the user who did it, or ""
}

// A Cursor is a place in a log that is read from the latest entry back: what comes after it is older. The zero Cursor
// is the beginning.
type Cursor struct {
	At time.Time
	ID uuid.UUID
}

// Cursor is the place of the entry.
func (e Entry) Cursor() Cursor { return Cursor{e.At, e.ID} }
