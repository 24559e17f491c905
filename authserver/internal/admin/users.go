package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

type userCommands struct {
	Add                AddUser            `cmd:"" help:"Add a user without a password."`
	List               ListUsers          `cmd:"" help:"List the users."`
	Duplicates         ListDuplicates     `cmd:"" help:"List the users whose addresses are spellings of one address, such as ada@münchen.example and ada@xn--mnchen-3ya.example. Each user signs in with the spelling shown. Keep one, and run users delete ID or users set-email ID ADDRESS for the other. The list also has users whose address has invisible characters, shown as \\u200b. They may be unable to sign in: ask them for their address, and set it with users set-email. Then run migrate --finish."`
	Show               ShowUser           `cmd:"" help:"Show a user, and whether and how the user's address was confirmed."`
	Disable            DisableUser        `cmd:"" help:"Disable a user: sign them out, and refuse their tokens and grants."`
	Enable             EnableUser         `cmd:"" help:"Enable a user again."`
	SetPassword        SetPassword        `cmd:"" help:"Set a user's password, read from standard input, and sign them out everywhere. Keeps passkeys and linked accounts unless --remove-others is given."`
	ResetLink          ResetLink          `cmd:"" help:"Create a link that lets a user set a new password. It works once, within 30 minutes, and can also remove passkeys. Needs ALMONER_APP_URL."`
	ConfirmEmail       ConfirmEmail       `cmd:"" help:"Confirm that the account with this address belongs to the owner of the address. Do this only if you are sure: another person may have created an account with an unconfirmed address. This ends nothing; to end everything that gives access to the account, use reset-link."`
	SetEmail           SetEmail           `cmd:"" help:"Change the e-mail address of a user who has lost the old mailbox. Both addresses get a mail. Users who can read both mailboxes change it in Settings."`
	Delete             DeleteUser         `cmd:"" help:"Delete a user: end their memberships, grants, tokens, sign-ins and sign-in methods, and remove their name and address. This cannot be undone. Audit events and applications stay. Use --dry-run first to see what would end."`
	SignInMethods      ListSignInMethods  `cmd:"" help:"List a user's passkeys, linked accounts and authenticator app."`
	RemoveSignInMethod RemoveSignInMethod `cmd:"" help:"Remove a passkey or linked account, even the last sign-in method, or the authenticator app, and sign the user out everywhere."`
}

// A User is a user as operators see it.
type User struct {
	ID            uuid.UUID         `json:"id"`
	Email         string            `json:"email"`
	EmailProven   *time.Time        `json:"emailProvenAt"` // null: it was never proven that the address is the user's
	EmailProvenBy useraccount.Proof `json:"emailProvenBy,omitempty"`
	Name          string            `json:"name"`
	HasPassword   bool              `json:"hasPassword"`
	DisabledAt    *time.Time        `json:"disabledAt"`
	Created       rest.Time         `json:"createdAt"`
}

// UserStore stores users.
type UserStore interface {
	AddUser(ctx context.Context, id uuid.UUID, email, name string, event audit.Event) error
	Users(ctx context.Context) ([]User, error)
	// DuplicateUsers lists the users whose addresses are spellings of one address, next to each other, and those whose
	// address has invisible characters.
	DuplicateUsers(ctx context.Context) ([]Duplicate, error)
	User(ctx context.Context, id uuid.UUID) (User, error)
	// ConfirmEmail proves a user's address by the operator's word. false means that it was proven already.
	ConfirmEmail(ctx context.Context, user uuid.UUID, event audit.Event) (bool, error)
	// FindUser returns the id of the user with that e-mail address.
	FindUser(ctx context.Context, email string) (uuid.UUID, error)
	// SetDisabled disables or enables a user; disabling ends the user's sign-ins. false means that nothing changed.
	SetDisabled(ctx context.Context, id uuid.UUID, disabled bool, event audit.Event) (bool, error)
	// SetEmail replaces the address of a user, and mails both addresses.
	SetEmail(ctx context.Context, user uuid.UUID, email string, event audit.Event) error
	useraccount.Store
}

// SignInStore stores how users sign in.
type SignInStore interface {
	// SetPassword replaces the password hash, ends the user's sign-ins, and returns the other sign-in methods. With
	// alone it removes them.
	SetPassword(
		ctx context.Context, id uuid.UUID, hash credential.Secret, alone bool, event audit.Event,
	) ([]SignInMethod, error)
	// AddReset stores a link to set a password.
	AddReset(ctx context.Context, user uuid.UUID, tokenHash []byte, expires time.Time, event audit.Event) error
	// ResealAuthenticators seals the secrets of authenticator apps with the newest master key.
	ResealAuthenticators(ctx context.Context) (int, error)
	// SignInMethods lists the passkeys, linked accounts and the authenticator app of a user.
	SignInMethods(ctx context.Context, user uuid.UUID) ([]SignInMethod, error)
	// RemoveSignInMethod removes one of them, ends the user's sign-ins, and returns the removed method.
	RemoveSignInMethod(ctx context.Context, user uuid.UUID, id string) (SignInMethod, error)
}

func (u User) cells() []cell {
	password := "none"
	if u.HasPassword {
		password = "set"
	}
	confirmed := "never"
	if u.EmailProven != nil {
		confirmed = stamp(u.EmailProven) + " (" + string(u.EmailProvenBy) + ")"
	}
	return []cell{
		{"ID", u.ID}, {"E-MAIL", u.Email}, {"CONFIRMED", confirmed}, {"NAME", u.Name}, {"PASSWORD", password},
		{"CREATED", u.Created}, {"DISABLED", u.DisabledAt},
	}
}

// AddUser creates a user without a password and without memberships.
type AddUser struct {
	Email string `required:"" placeholder:"ADDRESS" help:"E-mail address to sign in with."`
	Name  string `required:"" help:"Name of the user."`
}

func (c AddUser) run(ctx context.Context, s *Service) (Result, error) {
	email, err := parseEmail(c.Email)
	if err != nil {
		return nil, err
	}
	name, err := parseName(c.Name)
	if err != nil {
		return nil, err
	}
	id := uuid.Must(uuid.NewV7())
	err = s.Store.AddUser(ctx, id, email, name, userEvent(audit.UserAdded, id))
	return Outcome{
		fmt.Sprintf("Added the user %s. To set a password, run: users set-password %s", id, email),
		map[string]any{"id": id, "email": email, "name": name},
	}, err
}

// parseEmail returns an address in its canonical spelling, in which it is stored.
func parseEmail(text string) (string, error) {
	email, err := membership.ParseEmail(text)
	if err != nil {
		return "", refuse("the e-mail address must look like ada@example.org")
	}
	return email, nil
}

// ListUsers lists all users, by e-mail address.
type ListUsers struct{}

func (ListUsers) run(ctx context.Context, s *Service) (Result, error) {
	return listed(s.Store.Users(ctx))
}

// A Duplicate is a user whose address is another spelling of another user's address, or has invisible characters, as
// earlier releases allowed.
type Duplicate struct {
	Address string `json:"-"` // in its canonical spelling
	User
}

func (d Duplicate) cells() []cell {
	if spelling.HasInvisible(d.Email) {
		d.Email = strconv.QuoteToASCII(d.Email)
	}
	return append([]cell{{"ADDRESS", d.Address}}, d.User.cells()...)
}

// ListDuplicates lists the users whose addresses are spellings of one address or have invisible characters. The
// operator decides what happens to them.
type ListDuplicates struct{}

func (ListDuplicates) run(ctx context.Context, s *Service) (Result, error) {
	return listed(s.Store.DuplicateUsers(ctx))
}

// ShowUser shows one user.
type ShowUser struct {
	User string `arg:"" help:"UUID or e-mail address of the user."`
}

func (c ShowUser) run(ctx context.Context, s *Service) (Result, error) {
	id, err := s.findUser(ctx, c.User)
	if err != nil {
		return nil, err
	}
	return s.Store.User(ctx, id)
}

// Text writes a line for each property.
func (u User) Text(out io.Writer) error {
	var rows [][]string
	for _, c := range u.cells() {
		rows = append(rows, []string{c.heading, c.text()})
	}
	return writeTable(out, rows)
}

// ConfirmEmail proves the address of a user, or of all users, by the operator's word. It ends nothing.
type ConfirmEmail struct {
	User string `arg:"" optional:"" xor:"users" help:"UUID or e-mail address of the user."`
	All  bool   `xor:"users" help:"Confirm all unconfirmed addresses. Do this only if the deployment has always sent mail, and its invitations were opened by the people they were sent to."`
}

// Check implements Checked. It needs a user or --all, so that an operator who forgets the user does not confirm every
// address.
func (c ConfirmEmail) Check() error {
	if c.All == (c.User != "") {
		return errors.New("name a user, or use --all for every unconfirmed address")
	}
	return nil
}

func (c ConfirmEmail) run(ctx context.Context, s *Service) (Result, error) {
	var ids []uuid.UUID
	if c.User == "" {
		all, err := s.Store.Users(ctx)
		if err != nil {
			return nil, err
		}
		for _, u := range all {
			if u.EmailProven == nil {
				ids = append(ids, u.ID)
			}
		}
	} else {
		id, err := s.findUser(ctx, c.User)
		if err != nil {
			return nil, err
		}
		ids = []uuid.UUID{id}
	}
	done := []uuid.UUID{}
	for _, id := range ids {
		entry := userEvent(audit.UserEmailProven, id)
		entry.Detail = map[string]any{"by": useraccount.ByOperator}
		confirmed, err := s.Store.ConfirmEmail(ctx, id, entry)
		if err != nil {
			return nil, err
		}
		if confirmed {
			done = append(done, id)
		}
	}
	return Outcome{
		fmt.Sprintf("Confirmed the address of %s.", plural(len(done), "user")),
		map[string]any{"confirmed": done},
	}, nil
}

// findUser returns the id of the user with an id or e-mail address. It does not check that a user with the id exists;
// the store does.
func (s *Service) findUser(ctx context.Context, text string) (uuid.UUID, error) {
	if id, err := web.ParseID(spelling.Pasted(text)); err == nil {
		return id, nil
	}
	if !strings.Contains(text, "@") {
		return uuid.Nil, refuse("the user must be a UUID or an e-mail address; users list shows both")
	}
	return s.Store.FindUser(ctx, text)
}

// DisableUser disables a user, who then has no access.
type DisableUser struct {
	User string `arg:"" help:"UUID or e-mail address of the user."`
}

func (c DisableUser) run(ctx context.Context, s *Service) (Result, error) {
	return s.setDisabled(ctx, c.User, true)
}

// EnableUser enables a disabled user. It has the argument of DisableUser.
type EnableUser DisableUser

func (c EnableUser) run(ctx context.Context, s *Service) (Result, error) {
	return s.setDisabled(ctx, c.User, false)
}

func (s *Service) setDisabled(ctx context.Context, user string, disabled bool) (Result, error) {
	id, err := s.findUser(ctx, user)
	if err != nil {
		return nil, err
	}
	action, state := audit.UserEnabled, "enabled"
	if disabled {
		action, state = audit.UserDisabled, "disabled"
	}
	changed, err := s.Store.SetDisabled(ctx, id, disabled, userEvent(action, id))
	sentence := "The user is now " + state + "."
	if !changed {
		sentence = "The user is already " + state + "."
	}
	return Outcome{sentence, map[string]any{"id": id, "disabled": disabled, "changed": changed}}, err
}

// SetEmail changes the address of a user who has lost the old mailbox, and mails both addresses.
type SetEmail struct {
	User  string `arg:"" help:"UUID or e-mail address of the user."`
	Email string `arg:"" help:"The new address."`
}

func (c SetEmail) run(ctx context.Context, s *Service) (Result, error) {
	email, err := parseEmail(c.Email)
	if err != nil {
		return nil, err
	}
	id, err := s.findUser(ctx, c.User)
	if err != nil {
		return nil, err
	}
	err = s.Store.SetEmail(ctx, id, email, userEvent(audit.UserEmailChanged, id))
	return Outcome{
		fmt.Sprintf("The user signs in with %s now. The password and the sign-ins stay as they are.", email),
		map[string]any{"id": id, "email": email},
	}, err
}

// DeleteUser deletes a user, or shows what would end.
type DeleteUser struct {
	User   string `arg:"" help:"UUID or e-mail address of the user."`
	DryRun bool   `help:"Change nothing; show what would end."`
}

func (c DeleteUser) run(ctx context.Context, s *Service) (Result, error) {
	id, err := s.findUser(ctx, c.User)
	if err != nil {
		return nil, err
	}
	if c.DryRun {
		if _, err := s.Store.User(ctx, id); err != nil {
			return nil, err
		}
		summary, err := s.Store.DeletionSummary(ctx, id)
		return deletion("This would delete the user. Nothing was changed.", id, summary, false), err
	}
	ended, err := s.Store.DeleteUser(ctx, id, userEvent(audit.UserDeleted, id))
	if err != nil {
		return nil, err
	}
	s.PropagateRevocation(ctx, Revoked(ended.Grants, grant.MembershipOver))
	return deletion("Deleted the user.", id, ended.Summary, true), nil
}

// deletion describes what ends with a user.
func deletion(sentence string, id uuid.UUID, s useraccount.Summary, deleted bool) Outcome {
	lines := []string{
		sentence,
		fmt.Sprintf("Ends: %s, %s, %s, %s, %s and %s.", plural(len(s.Workspaces), "membership"),
			plural(s.Connections, "grant"), plural(s.Tokens, "personal access token"), plural(s.SignIns, "sign-in"),
			plural(s.SignInMethods, "sign-in method"), plural(s.Invitations, "sent invitation")),
		"Stays: " + plural(s.Applications, "application") + " that the user registered, and the " +
			"audit events with the id of the user. They show no name.",
	}
	for _, w := range s.Unmanaged() {
		lines = append(lines, fmt.Sprintf("A permission of account has no enabled holder left in %s (%s): run members "+
			"set-permissions or members add.", w.Name, w.ID))
	}
	return Outcome{strings.Join(lines, "\n"), map[string]any{"id": id, "deleted": deleted, "ends": s}}
}

// ResetLink makes a link with which a user sets a new password, as the mail of /login/forgotten has it. The operator
// gives it to the user. With this link, the user can also remove passkeys that a workspace requires.
type ResetLink struct {
	User string `arg:"" help:"UUID or e-mail address of the user."`
}

func (c ResetLink) run(ctx context.Context, s *Service) (Result, error) {
	if s.AppURL == "" {
		return nil, refuse("set ALMONER_APP_URL: the link leads to the pages of the deployment")
	}
	id, err := s.findUser(ctx, c.User)
	if err != nil {
		return nil, err
	}
	token, err := password.NewToken(rand.Reader)
	if err != nil {
		return nil, err
	}
	expires := time.Now().Add(mail.ResetLife)
	entry := userEvent(audit.UserResetRequested, id)
	err = s.Store.AddReset(ctx, id, password.HashToken(token), expires, entry)
	link := s.AppURL + mail.ResetPath + "?token=" + url.QueryEscape(token.Reveal())
	return Outcome{
		fmt.Sprintf("This link works once, until %s. Give it to the user only:\n%s", stamp(&expires), link),
		map[string]any{"id": id, "url": link, "expiresAt": stamp(&expires)},
	}, err
}
