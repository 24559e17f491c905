package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Limits of codes of an authenticator app and recovery codes. A person who tries codes knows the password, so they
// apply to the account at any address, with a separate allowance for browsers that have signed in to it: an attacker
// cannot lock those out. A new password has a new allowance.
//
// Within attemptWindow all tries count, before they are checked; over longer times, only wrong codes count. The waits
// grow, so that an attacker who keeps trying gets two tries a day instead of eighty an hour.
const (
	codesPerUser    = 20
	wrongBeforeMail = 4 // within a day; the user gets a mail at the next wrong code
	mailInterval    = 24 * time.Hour
)

// codeWaits returns the limits of wrong codes within longer times.
func codeWaits() []codeWait {
	return []codeWait{{30, 6 * time.Hour}, {40, 48 * time.Hour}, {60, 30 * 24 * time.Hour}}
}

type codeWait struct {
	most   int
	within time.Duration
}

// A CodeTry is a try of a code after the right password.
type CodeTry struct {
	User     uuid.UUID
	Password []byte // PasswordDigest of the password that was right
	Known    bool   // the browser has signed in to this account before (Devices)
	Address  netip.Addr
	Device   string // see DeviceName
}

// PasswordDigest returns a digest of the stored hash of a password. It changes when the password is replaced.
func PasswordDigest(hash credential.Secret) []byte {
	sum := sha256.Sum256([]byte("sign-in ticket\x00" + hash.Reveal()))
	return sum[:]
}

func (c CodeTry) key() string {
	return "code:" + digest(c.User.String()+"\x00"+hex.EncodeToString(c.Password)+"\x00"+strconv.FormatBool(c.Known))
}

// Code counts a try of a second factor, before it is checked, so that concurrent tries count. If a limit was already
// reached, it returns how long the browser must wait, and the limit.
func (a *Attempts) Code(ctx context.Context, t CodeTry) (time.Duration, web.RateLimit) {
	limit := web.RateLimit{Name: "codes-per-account", Quota: codesPerUser, Window: attemptWindow}
	limit.Reset = a.countBoth(ctx, t.key(), codesPerUser, true)
	for _, w := range codeWaits() {
		if wait := a.countWithin(ctx, w.key(t), w.most, w.within, false); wait > limit.Reset {
			limit.Quota, limit.Window, limit.Reset = w.most, w.within, wait
		}
	}
	return limit.Reset, limit
}

func (c codeWait) key(t CodeTry) string { return t.key() + ":" + c.within.String() }

// A CodeStore stores wrong codes.
type CodeStore interface {
	// RecordWrongCode stores the event of a wrong code. If mail is true, it also queues a mail to the user in the
	// same transaction.
	RecordWrongCode(ctx context.Context, t CodeTry, mail bool, e audit.Event) error
}

// WrongCode counts and records a wrong code that Code has counted as a try. After a few within a day, the user gets a
// mail, at most once in mailInterval.
func (a *Attempts) WrongCode(ctx context.Context, store CodeStore, t CodeTry) error {
	for _, w := range codeWaits() {
		a.countWithin(ctx, w.key(t), w.most, w.within, true)
	}
	account := "code-mail:" + digest(t.User.String())
	mail := a.countWithin(ctx, account+":wrong", wrongBeforeMail, mailInterval, true) > 0 &&
		a.countWithin(ctx, account, 1, mailInterval, true) == 0
	return store.RecordWrongCode(ctx, t, mail, audit.Event{
		UserID:    &t.User,
		Actor:     "anonymous",
		Action:    audit.CodeFailed,
		Subject:   "user:" + t.User.String(),
		RequestID: web.RequestID(ctx),
		Detail:    map[string]any{"address": t.Address.String()},
	})
}
