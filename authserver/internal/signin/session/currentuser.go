package session

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Password is the method of a sign-in by e-mail and password.
const Password = "password"

// A SignIn is one sign-in of a user at one browser.
type SignIn struct {
	ID              uuid.UUID
	UserID          uuid.UUID
	Method          string
	Proof           Proof  // for Begin
	Address         string // of the browser, as reported by the deployment's proxies
	UserAgent       string
	Created         time.Time // set by the store
	LastSeen        time.Time // set by the store, to the minute
	Expires         time.Time
	Email           string    // for Begin: of the user
	NewBrowser      bool      // set by Begin: the browser has not signed in to this account before
	AuthenticatedAt time.Time // for Begin: when the user authenticated; the zero time if unknown
}

// A CurrentUser is the user at a browser.
type CurrentUser struct {
	SignInID        uuid.UUID
	User            workspace.User
	Held            perm.Set  // permissions that the user holds in any workspace, for the navigation
	AuthenticatedAt time.Time // when the user last authenticated at this browser
	SecondFactor    SecondFactor
	Method          string // of the sign-in: Password, Passkey or OIDC
	HasPasskey      bool   // also one that is stopped
}

// A SecondFactor says whether a user has and used a second factor: an authenticator app, or a passkey, because the
// authenticator verifies the user.
type SecondFactor struct {
	Has  bool // the user has one
	Used bool // at this sign-in: it was not made with the password alone
}

// Satisfies reports whether the sign-in may use a workspace that requires a second factor.
func (s SecondFactor) Satisfies() bool { return s.Has && s.Used }

// MustConfirm reports whether the user must use the second factor before changing any factor, whether or not a
// workspace requires one: else a stolen password would be enough to replace it.
func (s SecondFactor) MustConfirm() bool { return s.Has && !s.Used }

// Freshness is how long after an authentication a browser may create new credentials.
const Freshness = 10 * time.Minute

// Fresh reports whether the last authentication is recent enough to create new credentials.
func (c CurrentUser) Fresh(now time.Time) bool { return now.Sub(c.AuthenticatedAt) < Freshness }

// MayChangeFactors reports whether the user may now change how they sign in: password, passkeys, authenticator app,
// recovery codes, linked account and e-mail address. The store checks the second factor again.
func (c CurrentUser) MayChangeFactors(now time.Time) bool {
	return c.Fresh(now) && !c.SecondFactor.MustConfirm()
}

// Actor returns the user as the audit log names users.
func (c CurrentUser) Actor() string { return "user:" + c.User.ID.String() }

// Event returns an audit event of something that the user did and that concerns the user.
func (c CurrentUser) Event(ctx context.Context, action audit.Action, subject string) audit.Event {
	return audit.Event{
		UserID:        &c.User.ID,
		Actor:         c.Actor(),
		Action:        action,
		Subject:       subject,
		RequestID:     web.RequestID(ctx),
		Authorization: &audit.Authorization{UserID: c.User.ID, SignInID: c.SignInID},
	}
}
