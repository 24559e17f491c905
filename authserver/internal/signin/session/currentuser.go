package session

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/web"
)

// Password is the method of a sign-in by e-mail and password.
const Password = "password"

// A SignIn is one time that a user signed in at one browser.
type SignIn struct {
	ID              uuid.UUID
	UserID          uuid.UUID
	Method          string
	Proof           Proof  // for Begin
	Address         string // of the browser, as the deployment's proxies tell it
	UserAgent       string
	Created         time.Time // set by the store
	LastSeen        time.Time // set by the store, to the minute
	Expires         time.Time
	AuthenticatedAt time.Time // for Begin: when the user proved who they are, the zero time where that is not known
}

// A CurrentUser is the user at a browser.
type CurrentUser struct {
	SignInID uuid.UUID
	User     workspace.User
	// holds account:api:access in some workspace, without which no page about workspaces opens
	Manages         bool
	AuthenticatedAt time.Time // when the user last proved at this browser who they are
}

// Freshness is how long after a proof of who is there a browser may make new credentials.
const Freshness = 10 * time.Minute

// Fresh says whether the last proof is recent enough to make new credentials.
func (v CurrentUser) Fresh(now time.Time) bool { return now.Sub(v.AuthenticatedAt) < Freshness }

// Actor is the visitor as the audit log names users.
func (v CurrentUser) Actor() string { return "user:" + v.User.ID.String() }

// Event is an audit event of something that the visitor did and that concerns the visitor.
func (v CurrentUser) Event(ctx context.Context, action, subject string) audit.Event {
	return audit.Event{
		UserID:        &v.User.ID,
		Actor:         v.Actor(),
		Action:        action,
		Subject:       subject,
		RequestID:     web.RequestID(ctx),
		Authorization: &audit.Authorization{UserID: v.User.ID, SignInID: v.SignInID},
	}
}
