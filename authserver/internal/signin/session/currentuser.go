package session

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Methods of a sign-in.
const (
	Password = "password" // by e-mail address and password
	Passkey  = "passkey"
	OIDC     = "upstream" // an account at the deployment's OpenID Connect provider
)

// A SignIn is one sign-in of a user at one browser.
type SignIn struct {
	ID         uuid.UUID
	UserID     uuid.UUID
	Method     string
	Proof      Proof  // for BeginSignIn
	Address    string // of the browser, as reported by the deployment's proxies
	UserAgent  string
	Created    time.Time // set by the store
	LastSeen   time.Time // set by the store, to the minute
	Expires    time.Time
	Email      string // for BeginSignIn: of the user
	NewBrowser bool   // for BeginSignIn: the browser has not signed in to this account before
}

// A Proof is how a user authenticated, and with what. Checking it takes time, so its result is stored only if it still
// holds at that moment: the password, passkey or account is still the user's, and the user is not disabled.
type Proof struct {
	Method       string            // Password, Passkey or OIDC
	PasswordHash credential.Secret // for Password: the hash that was verified
	Code         credential.Secret // for Password: of an authenticator app, or a recovery code; not yet verified
	PasskeyID    uuid.UUID         // for Passkey
	Issuer       string            // for OIDC
	Subject      string            // for OIDC
	ProvedAt     time.Time         // for OIDC: when the user authenticated there; the zero time if unknown
}

// Errors about a proof. Nothing was written.
var (
	// ErrCodeNeeded reports that the user has an authenticator app, and the proof has a password and no code.
	ErrCodeNeeded = errors.New("a code of the authenticator app is needed")
	// ErrCodeInvalid reports that the code of a proof is wrong or was used.
	ErrCodeInvalid = errors.New("the code is not valid")
	// ErrSecondFactor reports that the sign-in lacks a required second factor.
	ErrSecondFactor = errors.New("a second factor is needed")
	// ErrProofInvalid reports that a proof no longer holds, because what it was made with was replaced or removed.
	ErrProofInvalid = errors.New("the authentication method was replaced or removed")
)

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

// DeviceName returns the display name of a browser and its system. The User-Agent header is not proof of either.
func DeviceName(agent string) string {
	return named(agent, "A browser", [][2]string{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
		{"curl/", "curl"},
	}) + named(agent, "", [][2]string{
		{"Android", " on Android"}, {"iPhone", " on an iPhone"}, {"iPad", " on an iPad"}, {"Windows", " on Windows"},
		{"Mac OS X", " on a Mac"}, {"Linux", " on Linux"},
	})
}

func named(agent, otherwise string, names [][2]string) string {
	for _, name := range names {
		if strings.Contains(agent, name[0]) {
			return name[1]
		}
	}
	return otherwise
}
