package engage

import (
	"errors"

	"github.com/google/uuid"
)

// MaxErasedAtOnce is the number of submissions up to which a request erases them itself. A worker erases more of them
// in batches (contract, section 6a).
const MaxErasedAtOnce = 1000

// The kinds of records that are erased with their submissions, as the audit log has them.
const (
	ErasedForm      = "form"
	ErasedSupporter = "supporter"
)

// An Erasure is the erasure of a form or of a supporter with their submissions. From the moment it is accepted, none of
// them can be read.
type Erasure struct {
	ID      uuid.UUID // zero if the request has erased everything
	Kind    string
	Status  Status // Accepted or Processed
	Deleted int    // submissions so far
}

var (
	// ErrNoErasure is returned if the workspace has no such erasure, or none of the last 30 days.
	ErrNoErasure = errors.New("no such erasure in this workspace")
	// ErrTooManyErasures is returned if too many erasures of the workspace are not finished.
	ErrTooManyErasures = errors.New("too many erasures of the workspace are not finished")
)
