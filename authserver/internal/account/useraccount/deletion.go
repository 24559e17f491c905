package useraccount

import (
	"time"

	"github.com/google/uuid"
)

// A Workspace is a workspace that the user is a member of.
type Workspace struct {
	ID         uuid.UUID `json:"id"`
	Name       string    `json:"name"`
	LastHolder bool      `json:"lastHolder"` // no other enabled member has one of the user's permissions of account
}

// A Summary counts what ends with an account, and what stays.
type Summary struct {
	Workspaces    []Workspace `json:"workspaces"`
	Connections   int         `json:"connections"`   // active grants
	Tokens        int         `json:"tokens"`        // active personal access tokens
	SignIns       int         `json:"signIns"`       // valid
	SignInMethods int         `json:"signInMethods"` // passkeys, linked accounts and the authenticator app
	Invitations   int         `json:"invitations"`   // open ones that the user sent
	Applications  int         `json:"applications"`  // registered by the user; they stay with their workspaces
}

// Unmanaged returns the workspaces in which a permission of account would be left without an enabled member.
func (s Summary) Unmanaged() (left []Workspace) {
	for _, w := range s.Workspaces {
		if w.LastHolder {
			left = append(left, w)
		}
	}
	return left
}

// Ended describes what ended with an account.
type Ended struct {
	Summary
	Grants []EndedGrant // revoked in Postgres; the caller revokes them in Redis
	More   bool         // there are more, which are refused at once and revoked in the background
}

// EndedCredentials are the grants and personal access tokens that ended.
type EndedCredentials struct {
	Grants []EndedGrant // revoked in Postgres; the caller revokes them in Redis
	Tokens int          // revoked
	More   bool         // there are more, which are refused at once and revoked in the background
}

// An EndedGrant is a grant that ended with an account.
type EndedGrant struct {
	ID   uuid.UUID
	Ends time.Time
}
