package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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

func (s SignInMethod) cells() []cell {
	return []cell{
		{"KIND", s.Kind}, {"ID", s.ID}, {"NAME", s.Name}, {"CREATED", s.Created}, {"LAST USED", s.LastUsed},
	}
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

// ListSignInMethods lists a user's passkeys, linked accounts and authenticator app.
type ListSignInMethods struct {
	User string `arg:"" help:"UUID or e-mail address of the user."`
}

func (c ListSignInMethods) run(ctx context.Context, s *Service) (Result, error) {
	id, err := s.findUser(ctx, c.User)
	if err != nil {
		return nil, err
	}
	return listed(s.Store.SignInMethods(ctx, id))
}

// RemoveSignInMethod removes one passkey or linked account of a user, even the last sign-in method, or the
// authenticator app, and signs the user out everywhere.
type RemoveSignInMethod struct {
	User   string `arg:"" help:"UUID or e-mail address of the user."`
	Method string `arg:"" help:"Id of a passkey or issuer of a linked account, as listed by sign-in-methods."`
}

func (c RemoveSignInMethod) run(ctx context.Context, s *Service) (Result, error) {
	id, err := s.findUser(ctx, c.User)
	if err != nil {
		return nil, err
	}
	removed, err := s.Store.RemoveSignInMethod(ctx, id, c.Method)
	return Outcome{
		fmt.Sprintf("Removed the %s %s, and signed the user out everywhere.", removed.Kind, removed.ID),
		map[string]any{"id": id, "removed": removed},
	}, err
}

// SetPassword reads a password, one line, and sets it. The result names the user's other sign-in methods, if they are
// not removed.
type SetPassword struct {
	User         string    `arg:"" help:"UUID or e-mail address of the user."`
	RemoveOthers bool      `help:"Also remove the user's passkeys and linked accounts, so that only the password remains."`
	From         io.Reader `kong:"-"` // set by Check
}

// Check implements Checked. It refuses a password typed at a terminal, where it would be visible.
func (c *SetPassword) Check() error {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return errors.New("standard input is a terminal: pass the password with set-password USER < FILE")
	}
	c.From = os.Stdin
	return nil
}

func (c SetPassword) run(ctx context.Context, s *Service) (Result, error) {
	id, err := s.findUser(ctx, c.User)
	if err != nil {
		return nil, err
	}
	chosen, err := readPassword(c.From)
	if err != nil {
		return nil, err
	}
	known, err := s.Store.User(ctx, id)
	if err != nil {
		return nil, err
	}
	if problem := password.Check(chosen, known.Name, known.Email); problem != "" {
		return nil, refuse(problem)
	}
	hash, err := session.HashPassword(chosen.Reveal(), session.StandardCost())
	if err != nil {
		return nil, err
	}
	others, err := s.Store.SetPassword(ctx, id, hash, c.RemoveOthers, userEvent(audit.UserPasswordSet, id))
	return Outcome{
		afterPassword(others, c.RemoveOthers),
		map[string]any{"id": id, "others": List[SignInMethod](others), "removed": c.RemoveOthers},
	}, err
}

// readPassword reads one line. Of a longer text it reads enough to refuse it.
func readPassword(in io.Reader) (credential.Secret, error) {
	raw, err := io.ReadAll(io.LimitReader(in, password.Longest+3))
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	if text == "" {
		return "", refuse("pass the password on standard input, for example: … set-password ada@example.org < file")
	}
	return credential.Secret(text), nil
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
