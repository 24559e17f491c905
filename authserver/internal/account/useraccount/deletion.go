package useraccount

import (
	"time"

	"github.com/google/uuid"
)

// A Workspace is one that a user is a member of.
type Workspace struct {
	ID          uuid.UUID `json:"id"`
	Name        string    `json:"name"`
	LastManager bool      `json:"lastManager"` // no other enabled member has account:write:members
}

// A Summary is what ends with an account, and what stays.
type Summary struct {
	Workspaces    []Workspace `json:"workspaces"`
	Connections   int         `json:"connections"`   // active grants
	Tokens        int         `json:"tokens"`        // active personal access tokens
	SignIns       int         `json:"signIns"`       // valid
	SignInMethods int         `json:"signInMethods"` // passkeys, linked accounts and the authenticator app
	Invitations   int         `json:"invitations"`   // open, that the user sent
	Applications  int         `json:"applications"`  // that the user registered; they stay with their workspaces
}

// Managed returns the workspaces that would have no member who manages their members.
func (s Summary) Managed() (left []Workspace) {
	for _, w := range s.Workspaces {
		if w.LastManager {
			left = append(left, w)
		}
	}
	return left
}

// Ended is what ended with an account.
type Ended struct {
	Summary
	Grants []EndedGrant // for Redis
}

// An EndedGrant is a grant that ended with an account.
type EndedGrant struct {
	ID   uuid.UUID
	Ends time.Time
}
