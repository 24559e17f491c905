package admin

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/spelling"
)

// A User is a user as operators see it.
type User struct {
	ID            uuid.UUID         `json:"id"`
	Email         string            `json:"email"`
	EmailProven   *time.Time        `json:"emailProvenAt"` // null: it was never proven that the address is the user's
	EmailProvenBy useraccount.Proof `json:"emailProvenBy,omitempty"`
	Name          string            `json:"name"`
	HasPassword   bool              `json:"hasPassword"`
	Created       time.Time         `json:"createdAt"`
	DisabledAt    *time.Time        `json:"disabledAt"`
}

// Users stores users.
type Users interface {
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
	// UserByID reads a user, and returns false if there is none.
	UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error)
	// SetDisabled disables or enables a user; disabling ends the user's sign-ins. false means that nothing changed.
	SetDisabled(ctx context.Context, id uuid.UUID, disabled bool, event audit.Event) (bool, error)
	// SetPassword replaces the password hash, ends the user's sign-ins, and returns the other sign-in methods. With
	// alone it removes them.
	SetPassword(
		ctx context.Context,
		id uuid.UUID,
		hash credential.Secret,
		alone bool,
		event audit.Event,
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

func (User) columns() []string {
	return []string{"ID", "E-MAIL", "CONFIRMED", "NAME", "PASSWORD", "CREATED", "DISABLED"}
}

func (u User) cells() []string {
	password := "none"
	if u.HasPassword {
		password = "set"
	}
	return []string{u.ID.String(), u.Email, u.confirmed(), u.Name, password, stamp(&u.Created), stamp(u.DisabledAt)}
}

// AddUser creates a user without a password and without memberships.
func (d *Service) AddUser(ctx context.Context, email, name string) (Result, error) {
	email, err := parseEmail(email)
	if err != nil {
		return nil, err
	}
	if name, err = parseName(name); err != nil {
		return nil, err
	}
	id := identity.New()
	entry := event(audit.UserAdded, "user", id)
	entry.UserID = &id
	if err := d.Store.AddUser(ctx, id, email, name, entry); err != nil {
		return nil, err
	}
	return Outcome{fmt.Sprintf("Added the user %s. To set a password, run: users set-password %s", id, email),
		map[string]any{"id": id, "email": email, "name": name}}, nil
}

// parseEmail returns an address in its canonical spelling, in which it is stored.
func parseEmail(text string) (string, error) {
	email, err := membership.ParseEmail(text)
	if err != nil {
		return "", refuse("the e-mail address must look like ada@example.org")
	}
	return email, nil
}

// Users lists all users, by e-mail address.
func (d *Service) Users(ctx context.Context) (Result, error) {
	found, err := d.Store.Users(ctx)
	return List[User](found), err
}

// A Duplicate is a user whose address is another spelling of another user's address, or has invisible characters, as
// earlier releases allowed.
type Duplicate struct {
	Address string `json:"address"` // in its canonical spelling
	User
}

func (Duplicate) columns() []string { return append([]string{"ADDRESS"}, User{}.columns()...) }

func (d Duplicate) cells() []string {
	if spelling.HasInvisible(d.Email) {
		d.Email = strconv.QuoteToASCII(d.Email)
	}
	return append([]string{d.Address}, d.User.cells()...)
}

// DuplicateUsers lists the users whose addresses are spellings of one address or have invisible characters. The
// operator decides what happens to them.
func (d *Service) DuplicateUsers(ctx context.Context) (Result, error) {
	found, err := d.Store.DuplicateUsers(ctx)
	return List[Duplicate](found), err
}

// ShowUser shows one user.
func (d *Service) ShowUser(ctx context.Context, user string) (Result, error) {
	id, err := d.user(ctx, user)
	if err != nil {
		return nil, err
	}
	found, err := d.Store.User(ctx, id)
	return userResult{found}, err
}

// A userResult is one user. Its JSON is the user.
type userResult struct{ User }

// Text writes a line for each property.
func (u userResult) Text(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, cell := range u.cells() {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", u.columns()[i], cell) // the writer returns its error from Flush
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// confirmed returns when and by what the address was proven to be the user's.
func (u User) confirmed() string {
	if u.EmailProven == nil {
		return "never"
	}
	return stamp(u.EmailProven) + " (" + string(u.EmailProvenBy) + ")"
}

// ConfirmEmail proves the address of a user by the operator's word, or of all users if user is "". It ends nothing.
func (d *Service) ConfirmEmail(ctx context.Context, user string) (Result, error) {
	var ids []uuid.UUID
	if user == "" {
		all, err := d.Store.Users(ctx)
		if err != nil {
			return nil, err
		}
		for _, u := range all {
			if u.EmailProven == nil {
				ids = append(ids, u.ID)
			}
		}
	} else {
		id, err := d.user(ctx, user)
		if err != nil {
			return nil, err
		}
		ids = []uuid.UUID{id}
	}
	done := []uuid.UUID{}
	for _, id := range ids {
		entry := event(audit.UserEmailProven, "user", id)
		entry.UserID, entry.Detail = &id, map[string]any{"by": useraccount.ByOperator}
		confirmed, err := d.Store.ConfirmEmail(ctx, id, entry)
		if err != nil {
			return nil, err
		}
		if confirmed {
			done = append(done, id)
		}
	}
	return Outcome{
		fmt.Sprintf("Confirmed the address of %s.", plural(len(done), "user", "users")),
		map[string]any{"confirmed": done},
	}, nil
}

// user returns the id of the user with an id or e-mail address. It does not check that a user with the id exists; the
// store does.
func (d *Service) user(ctx context.Context, text string) (uuid.UUID, error) {
	if id, err := identity.Parse(spelling.Pasted(text)); err == nil {
		return id, nil
	}
	if !strings.Contains(text, "@") {
		return uuid.Nil, refuse("the user must be a UUID or an e-mail address; users list shows both")
	}
	return d.Store.FindUser(ctx, text)
}

// SetDisabled disables or enables a user. A disabled user has no access.
func (d *Service) SetDisabled(ctx context.Context, user string, disabled bool) (Result, error) {
	id, err := d.user(ctx, user)
	if err != nil {
		return nil, err
	}
	action, state := audit.UserEnabled, "enabled"
	if disabled {
		action, state = audit.UserDisabled, "disabled"
	}
	entry := event(action, "user", id)
	entry.UserID = &id
	changed, err := d.Store.SetDisabled(ctx, id, disabled, entry)
	if err != nil {
		return nil, err
	}
	sentence := "The user is now " + state + "."
	if !changed {
		sentence = "The user is already " + state + "."
	}
	return Outcome{sentence, map[string]any{"id": id, "disabled": disabled, "changed": changed}}, nil
}

// SetPassword reads a password, one line, from in and sets it. With alone it removes the user's passkeys and linked
// accounts; otherwise the result names them.
func (d *Service) SetPassword(ctx context.Context, user string, in io.Reader, alone bool) (Result, error) {
	id, err := d.user(ctx, user)
	if err != nil {
		return nil, err
	}
	chosen, err := readPassword(in)
	if err != nil {
		return nil, err
	}
	known, _, exists, err := d.Store.UserByID(ctx, id)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, ErrNoUser
	}
	if problem := password.Check(chosen, known.Name, known.Email); problem != "" {
		return nil, refuse(problem)
	}
	hash, err := session.HashPassword(chosen.Reveal(), session.StandardCost())
	if err != nil {
		return nil, err
	}
	entry := event(audit.UserPasswordSet, "user", id)
	entry.UserID = &id
	others, err := d.Store.SetPassword(ctx, id, hash, alone, entry)
	if err != nil {
		return nil, err
	}
	return Outcome{
		afterPassword(others, alone),
		map[string]any{"id": id, "others": List[SignInMethod](others), "removed": alone},
	}, nil
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
