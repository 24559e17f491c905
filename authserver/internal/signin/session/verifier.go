package session

import (
	"context"
	"net/netip"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/web"
)

// Users know who has which e-mail address and password. false: nobody.
type Users interface {
	UserByEmail(ctx context.Context, email string) (workspace.User, credential.Secret, bool, error)
}

// An Auditor keeps events.
type Auditor interface {
	Record(ctx context.Context, e audit.Event) error
}

// A Verifier checks who somebody is by e-mail address and password, and keeps count of wrong ones. It is safe for
// concurrent use.
type Verifier struct {
	Users     Users
	Passwords *Passwords
	Attempts  *Attempts
	Auditor   Auditor
}

// A Result is what a Verifier found.
type Result struct {
	OK    bool
	Proof Proof         // where Right
	Wait  time.Duration // the address is beyond its limit, and nothing was checked
	Limit web.RateLimit // the limit that it is beyond
}

// Verify checks a password. Beyond the limit a right password is refused like any other; an unknown address, a disabled
// user and a wrong password cost the same work. known: the browser has signed in to this account before. It returns
// ErrBusy, or an error that wraps store.ErrUnavailable.
func (v *Verifier) Verify(
	ctx context.Context,
	email string,
	password credential.Secret,
	from netip.Addr,
	known bool,
) (workspace.User, Result, error) {
	var user workspace.User
	var verdict Result
	if verdict.Wait, verdict.Limit = v.Attempts.waitHere(email, from); verdict.Wait > 0 {
		return user, verdict, nil // without a turn: a flood from one address does not make others wait
	}
	caller := Caller{Email: email, Address: from, Known: known}
	err := v.Passwords.Slot(ctx, caller, func() error {
		if verdict.Wait, verdict.Limit = v.Attempts.Wait(ctx, email, from); verdict.Wait > 0 {
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
		if verdict.OK, err = v.Passwords.Matches(hash, password); err != nil {
			return err
		}
		if verdict.OK {
			verdict.Proof = Proof{Method: Password, PasswordHash: hash}
			return nil
		}
		v.Passwords.Wrong(caller)
		verdict.Wait, verdict.Limit = v.Attempts.Wrong(ctx, email, from)
		return v.Auditor.Record(ctx, wrong(ctx, found, known, from))
	})
	return user, verdict, err
}

// wrong is the event of a wrong password. What was typed as an address is not kept where it is nobody's: it may be a
// password.
func wrong(ctx context.Context, user workspace.User, known bool, from netip.Addr) audit.Event {
	event := audit.Event{
		Actor:     "anonymous",
		Action:    "sign_in.failed",
		Subject:   "user:unknown",
		RequestID: web.RequestID(ctx),
		Detail:    map[string]any{"address": from.String()},
	}
	if known {
		event.UserID, event.Subject = &user.ID, "user:"+user.ID.String()
	}
	return event
}
