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

// A Mark is a place in a log that is read from the latest entry back: what comes after it is older. The zero Mark is the
// beginning.
type Mark struct {
	At time.Time
	ID uuid.UUID
}

// Mark is the place of the entry.
func (e Entry) Mark() Mark { return Mark{e.At, e.ID} }
