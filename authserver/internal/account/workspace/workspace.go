// Package workspace defines workspaces, their users and memberships, and their connector policies.
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
	LLMIntegration bool // connectors may act here (spec 4.4)
	SecondFactor   bool // its members must sign in with a second factor
	Connectors     ConnectorPolicy
}

// A User is a person. Only memberships give a user permissions.
type User struct {
	ID         uuid.UUID
	Email      string // lower case
	Name       string
	DisabledAt *time.Time
	Proven     bool // it was proven that the address is the user's (useraccount.Proof); set by reads of users
}

// A Membership is a user's membership of one workspace. Without one, the user has no access (spec 5.3).
type Membership struct {
	Workspace   Workspace
	Permissions perm.Set
}

// ModuleState says whether a module can be used in a workspace. The operator of the server changes it.
type ModuleState struct {
	Enabled     bool
	Provisioned bool
}
