package session

import (
	"context"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Users finds users by e-mail address, with their password hash, and returns false if there is none.
type Users interface {
	UserByEmail(ctx context.Context, email string) (workspace.User, credential.Secret, bool, error)
	// RenewHash replaces the hash of a password by another one of the same password. It returns false, and changes
	// nothing, if the user has another hash by now.
	RenewHash(ctx context.Context, user uuid.UUID, former, hash credential.Secret) (bool, error)
}

// An Auditor stores audit events.
type Auditor interface {
	Record(ctx context.Context, e audit.Event) error
}

// A Verifier authenticates users by e-mail address and password, and counts wrong passwords. It is safe for concurrent
// use.
type Verifier struct {
	Users     Users
	Passwords *Passwords
	Attempts  *Attempts
	Auditor   Auditor
}

// A Result is the result of a verification.
type Result struct {
	OK    bool
	Proof Proof         // if OK
	Wait  time.Duration // if not 0, the address is beyond its limit, and nothing was checked
	Limit web.RateLimit // the exceeded limit
}

// Verify checks a password. Beyond the limit a correct password is refused like any other. An unknown address, a
// disabled user and a wrong password cost the same work. known: the browser has signed in to this account before.
// Verify returns ErrBusy, or an error that wraps store.ErrUnavailable.
func (v *Verifier) Verify(
	ctx context.Context,
	email string,
	password credential.Secret,
	from netip.Addr,
	known bool,
) (workspace.User, Result, error) {
	var user workspace.User
	var result Result
	if result.Wait, result.Limit = v.Attempts.waitHere(email, from); result.Wait > 0 {
		return user, result, nil // without a turn, so a flood from one address does not delay others
	}
	caller := Caller{Email: email, Address: from, Known: known}
	err := v.Passwords.Slot(ctx, caller, func() error {
		if result.Wait, result.Limit = v.Attempts.Wait(ctx, email, from); result.Wait > 0 {
			return nil
		}
		found, hash, known, err := v.Users.UserByEmail(ctx, email)
		if err != nil {
			return err
		}
		if found.DisabledAt != nil {
			hash = ""
		}
		user = found
		result.OK, err = v.Passwords.Matches(hash, password)
		if err == nil && !result.OK {
			result.OK, hash, err = v.former(ctx, found.ID, hash, password)
		}
		if err != nil {
			return err
		}
		if result.OK {
			result.Proof = Proof{Method: Password, PasswordHash: hash}
			return nil
		}
		v.Passwords.Wrong(caller)
		result.Wait, result.Limit = v.Attempts.Wrong(ctx, email, from)
		return v.Auditor.Record(ctx, wrong(ctx, found, known, from))
	})
	return user, result, err
}

// former checks a password against a hash of an earlier release (Passwords.MatchesFormer), and replaces that hash.
func (v *Verifier) former(
	ctx context.Context, user uuid.UUID, former, password credential.Secret,
) (ok bool, hash credential.Secret, err error) {
	if ok, err = v.Passwords.MatchesFormer(former, password); err != nil || !ok {
		return false, former, err
	}
	if hash, err = HashPassword(password.Reveal(), v.Passwords.cost); err == nil {
		ok, err = v.Users.RenewHash(ctx, user, former, hash)
	}
	return ok && err == nil, hash, err
}

// wrong returns the event of a wrong password. An e-mail address that belongs to no user is not recorded, because it
// may be a mistyped password.
func wrong(ctx context.Context, user workspace.User, known bool, from netip.Addr) audit.Event {
	event := audit.Event{
		Actor:     "anonymous",
		Action:    audit.SignInFailed,
		Subject:   "user:unknown",
		RequestID: web.RequestID(ctx),
		Detail:    map[string]any{"address": from.String()},
	}
	if known {
		event.UserID, event.Subject = &user.ID, "user:"+user.ID.String()
	}
	return event
}
