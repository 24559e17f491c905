package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// ErrNoSignInMethod means that the user has no sign-in method with that identifier.
var ErrNoSignInMethod = refuse("the user has no passkey, linked account or authenticator app with that id: " +
	"see users sign-in-methods")

// The kinds of SignInMethod.
const (
	Passkey       = "passkey"
	LinkedAccount = "linked account"
	Authenticator = "authenticator app" // its id is AuthenticatorID
)

// AuthenticatorID is the id of a user's authenticator app, of which there is at most one.
const AuthenticatorID = "authenticator"

// A SignInMethod is a method of sign-in besides the password, or the second factor of the password.
type SignInMethod struct {
	Kind     string     `json:"kind"`
	ID       string     `json:"id"` // UUID of a passkey, or issuer of a linked account
	Name     string     `json:"name"`
	Created  time.Time  `json:"createdAt"`
	LastUsed *time.Time `json:"lastUsedAt"` // null for a linked account
}

func (SignInMethod) columns() []string { return []string{"KIND", "ID", "NAME", "CREATED", "LAST USED"} }

func (s SignInMethod) cells() []string {
	return []string{s.Kind, s.ID, s.Name, stamp(&s.Created), stamp(s.LastUsed)}
}

// Event returns the audit event of the method's removal by an administrator.
func (s SignInMethod) Event(user uuid.UUID) audit.Event {
	removed := userEvent(audit.IdentityUnlinked, user)
	switch s.Kind {
	case Passkey:
		removed.Action, removed.Subject = audit.PasskeyRemoved, "passkey:"+s.ID
	case Authenticator:
		removed.Action = audit.AuthenticatorRemoved
	default:
		removed.Detail = map[string]any{"issuer": s.ID}
	}
	return removed
}

// SignInMethods lists a user's passkeys, linked accounts and authenticator app.
func (s *Service) SignInMethods(ctx context.Context, user string) (Result, error) {
	id, err := s.findUser(ctx, user)
	if err != nil {
		return nil, err
	}
	found, err := s.Store.SignInMethods(ctx, id)
	return List[SignInMethod](found), err
}

// RemoveSignInMethod removes one passkey or linked account of a user, even the last sign-in method, or the
// authenticator app, and signs the user out everywhere.
func (s *Service) RemoveSignInMethod(ctx context.Context, user, method string) (Result, error) {
	id, err := s.findUser(ctx, user)
	if err != nil {
		return nil, err
	}
	removed, err := s.Store.RemoveSignInMethod(ctx, id, method)
	if err != nil {
		return nil, err
	}
	return Outcome{
		fmt.Sprintf("Removed the %s %s, and signed the user out everywhere.", removed.Kind, removed.ID),
		map[string]any{"id": id, "removed": removed},
	}, nil
}

// afterPassword returns the sentence that follows a new password: it names the other sign-in methods, which are removed
// if removed is set.
func afterPassword(others []SignInMethod, removed bool) string {
	const set = "Set the password, and signed the user out everywhere."
	if len(others) == 0 {
		return set + " The user has no other sign-in method."
	}
	names := make([]string, len(others))
	for i, m := range others {
		names[i] = m.Kind + " " + m.ID
	}
	list := strings.Join(names, ", ")
	if removed {
		return set + " Removed: " + list + "."
	}
	return set + " The user can still sign in with: " + list +
		". To remove them: users remove-sign-in-method, or set-password with --remove-others."
}
