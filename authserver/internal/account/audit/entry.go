package audit

import (
	"time"

	"github.com/google/uuid"
)

// An Entry is an event as the log stores it.
type Entry struct {
	ID uuid.UUID
	Event
	Person      string // name of the user that it concerns, or ""
	Application string // name of the application that it concerns, or ""
	ActorName   string // name of the user who acted, or ""
}

// A Search selects entries of a log. The zero Search selects all.
type Search struct {
	RequestID    string
	Person       string    // part of the name or address of the user who acted, or whom the event concerns
	Application  string    // part of its name
	Client       uuid.UUID // application, or the zero id for all
	Since, Until time.Time
}

// A Cursor is a position in a log that is read from the latest entry back: entries after it are older. The zero Cursor
// is the beginning.
type Cursor struct {
	At time.Time
	ID uuid.UUID
}

// Cursor returns the position of the entry.
func (e Entry) Cursor() Cursor { return Cursor{e.At, e.ID} }
