// Package workspace answers: who works where, and what may they do there?
package workspace

import (
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"
)

// A Workspace is a workspace of an organisation (spec 1).
type Workspace struct {
	ID             uuid.UUID
	Name           string
	Organisation   string
	LLMIntegration bool // may connectors act here at all (spec 4.4)
	Connectors     ConnectorPolicy
}

// A User is a person. What the person may do is said by memberships alone.
type User struct {
	ID         uuid.UUID
	Email      string // lower case
	Name       string
	DisabledAt *time.Time
}

// A Membership is a user's place in one workspace. No membership, no access (spec 5.3).
type Membership struct {
	Workspace   Workspace
	Permissions perm.Set
}
