package session

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/alexedwards/argon2id"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A Cost is the work of a password hash (argon2id with one lane).
type Cost struct {
	KiB    uint32
	Passes uint32
}

// StandardCost returns OWASP's minimum for argon2id: 19 MiB, two passes, about 30 ms.
func StandardCost() Cost { return Cost{KiB: 19 * 1024, Passes: 2} }

// LowestCost returns the least that argon2id allows, for tests.
func LowestCost() Cost { return Cost{KiB: 8, Passes: 1} }

func (c Cost) params() *argon2id.Params {
	return &argon2id.Params{Memory: c.KiB, Iterations: c.Passes, Parallelism: 1, SaltLength: 16, KeyLength: 32}
}

// HashPassword returns the argon2id hash of a password in PHC form. Passwords that differ only in their spelling have
// one hash (NIST SP 800-63B, section 3.1.1.2).
func HashPassword(password string, cost Cost) (credential.Secret, error) {
	hash, err := argon2id.CreateHash(spelling.Password(password), cost.params())
	if err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	return credential.Secret(hash), nil
}

// ErrBusy reports that too many passwords are being checked, and others have priority (429).
var ErrBusy = errors.New("too many passwords are being checked at this moment")

// Users finds users by e-mail address, with their password hash, and returns false if there is none.
type Users interface {
	UserByEmail(ctx context.Context, email string) (workspace.User, credential.Secret, bool, error)
	// RenewHash replaces the hash of a password by another one of the same password. It returns false, and changes
	// nothing, if the user has another hash by now.
	RenewHash(ctx context.Context, user uuid.UUID, former, hash credential.Secret) (bool, error)
	// Record stores an audit event.
	Record(ctx context.Context, e audit.Event) error
}

// Passwords authenticates users by e-mail address and password, a limited number at a time, and counts wrong passwords.
// It is safe for concurrent use.
type Passwords struct {
	users    Users
	attempts *Attempts
	turns    *turnQueue
	cost     Cost
	dummy    credential.Secret
	rest     func(ctx context.Context, hashed time.Duration)
}

// dummyPassword is the password of the dummy hash. No user signs in with it.
const dummyPassword = "no password"

// NewPasswords creates a dummy hash of the cost of real ones, so that refusing an unknown user takes as long as
// refusing a known one.
func NewPasswords(users Users, attempts *Attempts, cost Cost) (*Passwords, error) {
	dummy, err := HashPassword(dummyPassword, cost)
	turns := newTurnQueue(runtime.GOMAXPROCS(0))
	return &Passwords{users, attempts, turns, cost, dummy, rest}, err
}

// Hash returns the hash of a password. Call it within a Slot.
func (p *Passwords) Hash(password string) (credential.Secret, error) {
	return HashPassword(password, p.cost)
}

// Slot waits for a turn and runs do in it. It returns ErrBusy if no turn comes in time.
func (p *Passwords) Slot(ctx context.Context, c Caller, do func() error) error {
	leave, err := p.turns.enter(ctx, c)
	if err != nil {
		return err
	}
	defer leave()
	return do()
}

// Wrong counts a wrong password, which lowers the priority of its network and account.
func (p *Passwords) Wrong(c Caller) { p.turns.wrong(c) }

// A Result is the result of a verification.
type Result struct {
	OK    bool
	Proof Proof         // if OK
	Limit web.RateLimit // if its Reset is not 0, the address is beyond this limit, and nothing was checked
}

// Verify checks a password. Beyond the limit a correct password is refused like any other. An unknown address, a
// disabled user and a wrong password cost the same work. known: the browser has signed in to this account before.
// Verify returns ErrBusy, or an error that wraps store.ErrUnavailable.
func (p *Passwords) Verify(
	ctx context.Context, email string, password credential.Secret, from netip.Addr, known bool,
) (user workspace.User, result Result, err error) {
	if result.Limit = p.attempts.passwordsHere(email, from); result.Limit.Reset > 0 {
		return user, result, nil // without a turn, so a flood from one address does not delay others
	}
	caller := Caller{Email: email, Address: from, Known: known}
	err = p.Slot(ctx, caller, func() error {
		if result.Limit = p.attempts.passwords(ctx, email, from, false); result.Limit.Reset > 0 {
			return nil
		}
		found, hash, exists, err := p.users.UserByEmail(ctx, email)
		if err != nil {
			return err
		}
		if found.DisabledAt != nil {
			hash = ""
		}
		user = found
		began := time.Now()
		result.OK, err = p.Matches(hash, password)
		if err == nil && !result.OK {
			result.OK, hash, err = p.matchesFormer(ctx, found.ID, hash, password)
		}
		hashed := time.Since(began)
		if err != nil {
			return err
		}
		if result.OK {
			result.Proof = Proof{Method: Password, PasswordHash: hash}
			return nil
		}
		p.Wrong(caller)
		result.Limit = p.attempts.passwords(ctx, email, from, true)
		err = p.users.Record(ctx, wrongPassword(ctx, found, exists, from))
		p.rest(ctx, hashed)
		return err
	})
	return user, result, err
}

const longestRest = 100 * time.Millisecond // a few hashes of StandardCost

// rest waits as long as a hash took, so that a flood of wrong passwords leaves half of the time of its turns to other
// work. The time of the stores does not count: it differs between known and unknown users.
func rest(ctx context.Context, hashed time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, min(hashed, longestRest))
	defer cancel()
	<-ctx.Done()
}

// Matches reports whether hash is the hash of password, in any spelling. An empty hash, of an unknown user, takes as
// long and never matches. Call it within a Slot.
func (p *Passwords) Matches(hash, password credential.Secret) (bool, error) {
	return p.compare(hash, spelling.Password(password.Reveal()))
}

// matchesFormer reports whether former is the hash of password without normalization, as earlier releases stored it. If
// so, it replaces it by hash. It compares nothing if normalization does not change password, so that most wrong
// passwords cost one hash.
func (p *Passwords) matchesFormer(
	ctx context.Context, user uuid.UUID, former, password credential.Secret,
) (ok bool, hash credential.Secret, err error) {
	if spelling.Password(password.Reveal()) == password.Reveal() {
		return false, former, nil
	}
	if ok, err = p.compare(former, password.Reveal()); err != nil || !ok {
		return false, former, err
	}
	if hash, err = p.Hash(password.Reveal()); err == nil {
		ok, err = p.users.RenewHash(ctx, user, former, hash)
	}
	return ok && err == nil, hash, err
}

func (p *Passwords) compare(hash credential.Secret, text string) (bool, error) {
	unknown := hash == ""
	if unknown {
		hash = p.dummy
	}
	match, err := argon2id.ComparePasswordAndHash(text, hash.Reveal())
	if err != nil {
		return false, fmt.Errorf("the stored hash of a password cannot be read: %w", err)
	}
	return match && !unknown, nil
}

// wrongPassword returns the event of a wrong password. An e-mail address that belongs to no user is not recorded,
// because it may be a mistyped password.
func wrongPassword(ctx context.Context, user workspace.User, known bool, from netip.Addr) audit.Event {
	event := audit.Anonymous(audit.SignInFailed, "user:unknown", web.RequestID(ctx), from.String())
	if known {
		event.UserID, event.Subject = &user.ID, "user:"+user.ID.String()
	}
	return event
}

// Limits of wrong passwords within the window (contract, section 7). The limit of an account applies to one address, so
// that an attacker elsewhere cannot lock the user out.
const (
	attemptWindow     = 15 * time.Minute
	perAccount        = 10 // for one account from one address
	perAddress        = 100
	begunPerAddress   = 600 // an office behind one address signs in within minutes
	askedPerAddress   = 30
	answersPerLink    = 30  // to one invitation from one address
	unknownPerAddress = 300 // invalid links of invitations
	distrustAfterFail = 5 * time.Second
)

// A RateCounter counts events within a sliding window.
type RateCounter interface {
	// Count returns how long key must wait until it is below limit, or 0 if it is. With add, it also counts one more
	// event unless key must wait.
	Count(ctx context.Context, key string, limit int, window time.Duration, add bool) (time.Duration, error)
}

// Attempts limits wrong passwords and other anonymous requests. It counts in the shared counter and in this process.
// While the shared counter does not respond, the local one decides alone, so that users can sign in. It is safe for
// concurrent use.
//
// Its methods return the limit. If it was already reached, its Reset is how long the client must wait; otherwise 0.
type Attempts struct {
	shared     RateCounter
	local      *localCounter
	log        *slog.Logger
	now        func() time.Time
	localUntil atomic.Int64
}

// NewAttempts returns Attempts.
func NewAttempts(shared RateCounter, log *slog.Logger, now func() time.Time) *Attempts {
	return &Attempts{shared: shared, local: newLocalCounter(now), log: log, now: now}
}

// passwords returns the limit of wrong passwords for this account from the address. With add, it counts one more.
func (a *Attempts) passwords(ctx context.Context, email string, address netip.Addr, add bool) web.RateLimit {
	account, from := passwordLimits(email, address)
	return longer(a.count(ctx, account, add), a.count(ctx, from, add))
}

// passwordsHere is like passwords, but uses only this process's counts, without I/O.
func (a *Attempts) passwordsHere(email string, address netip.Addr) web.RateLimit {
	account, from := passwordLimits(email, address)
	return longer(a.countHere(account, false), a.countHere(from, false))
}

func passwordLimits(email string, address netip.Addr) (account, from limit) {
	network := web.Network(address)
	account = limitOf("wrong-passwords-per-account", perAccount, "account:", spelling.Key(email)+"\x00"+network)
	return account, limitOf("wrong-passwords-per-address", perAddress, "address:", network)
}

// Begun counts a sign-in by passkey or at another provider that an address begins; each stores a row until it is
// finished or expires.
func (a *Attempts) Begun(ctx context.Context, address netip.Addr) web.RateLimit {
	return a.count(ctx, limitOf("sign-ins-begun-per-address", begunPerAddress, "begun:", web.Network(address)), true)
}

// Asked counts a request for a link to set a password, by address alone: a limit by account would tell whether the
// account exists, and would let strangers keep its owner out.
func (a *Attempts) Asked(ctx context.Context, address netip.Addr) web.RateLimit {
	return a.count(ctx, limitOf("links-per-address", askedPerAddress, "asked:", web.Network(address)), true)
}

// Answered counts an answer to an open invitation, by token and address. Clients at other addresses, and clients
// without the token, cannot lock out the recipient.
func (a *Attempts) Answered(ctx context.Context, token credential.Secret, address netip.Addr) web.RateLimit {
	link := token.Reveal() + "\x00" + web.Network(address)
	return a.count(ctx, limitOf("answers-per-invitation", answersPerLink, "answered:", link), true)
}

// UnknownLink counts a request whose link names no invitation. It is called after the lookup, so that valid links
// always work.
func (a *Attempts) UnknownLink(ctx context.Context, address netip.Addr) web.RateLimit {
	return a.count(ctx, limitOf("unknown-links-per-address", unknownPerAddress, "unknown:", web.Network(address)), true)
}

// A limit is the limit of the events of a key.
type limit struct {
	web.RateLimit
	key string
}

// limitOf returns a limit within attemptWindow, of the events of a kind about something, such as an address.
func limitOf(name string, quota int, kind, about string) limit {
	return limit{web.RateLimit{Name: name, Quota: quota, Window: attemptWindow}, kind + digest(about)}
}

// longer returns the limit that requires the longer wait.
func longer(first, second web.RateLimit) web.RateLimit {
	if second.Reset > first.Reset {
		return second
	}
	return first
}

// count returns how long a key must wait. With add, it counts one more event unless the key must wait: locally as well
// as in the shared counter, so that this process's events still count during a Redis outage.
func (a *Attempts) count(ctx context.Context, l limit, add bool) web.RateLimit {
	local := a.countHere(l, add)
	if a.now().UnixNano() < a.localUntil.Load() {
		return local
	}
	wait, err := a.shared.Count(ctx, l.key, l.Quota, l.Window, add)
	if err != nil {
		a.localUntil.Store(a.now().Add(distrustAfterFail).UnixNano())
		a.log.WarnContext(ctx, "sign-in attempts counted in this process only", "error", err)
		return local
	}
	local.Reset = max(local.Reset, wait)
	return local
}

func (a *Attempts) countHere(l limit, add bool) web.RateLimit {
	l.Reset = a.local.count(l.key, l.Quota, l.Window, add)
	return l.RateLimit
}

// digest hashes a key, so that the store holds no e-mail addresses.
func digest(text string) string { return hex.EncodeToString(hashOf(text)[:16]) }

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

// A CodeTry is a try of a code after the right password.
type CodeTry struct {
	User     uuid.UUID
	Password []byte // PasswordDigest of the password that was right
	Known    bool   // the browser has signed in to this account before (Sessions.Knows)
	Address  netip.Addr
	Device   string // see DeviceName
}

// PasswordDigest returns a digest of the stored hash of a password. It changes when the password is replaced.
func PasswordDigest(hash credential.Secret) []byte {
	return hashOf("sign-in ticket\x00" + hash.Reveal())
}

// limits returns the limit of all tries, and those of wrong codes within longer times.
func (c CodeTry) limits() (tries limit, wrong []limit) {
	about := c.User.String() + "\x00" + hex.EncodeToString(c.Password) + "\x00" + strconv.FormatBool(c.Known)
	tries = limitOf("codes-per-account", codesPerUser, "code:", about)
	for _, quota := range []struct {
		most   int
		within time.Duration
	}{{30, 6 * time.Hour}, {40, 48 * time.Hour}, {60, 30 * 24 * time.Hour}} {
		l := tries
		l.Quota, l.Window, l.key = quota.most, quota.within, tries.key+":"+quota.within.String()
		wrong = append(wrong, l)
	}
	return tries, wrong
}

// Code counts a try of a second factor, before it is checked, so that concurrent tries count.
func (a *Attempts) Code(ctx context.Context, t CodeTry) web.RateLimit {
	tries, wrong := t.limits()
	reached := a.count(ctx, tries, true)
	for _, l := range wrong {
		reached = longer(reached, a.count(ctx, l, false))
	}
	return reached
}

// A CodeStore stores wrong codes.
type CodeStore interface {
	// RecordWrongCode stores the event of a wrong code. If mail is true, it also queues a mail to the user in the
	// same transaction.
	RecordWrongCode(ctx context.Context, t CodeTry, mail bool, e audit.Event) error
}

// WrongCode counts and records a wrong code that Code has counted as a try. After a few within a day, the user gets a
// mail, at most once in mailInterval.
func (a *Attempts) WrongCode(ctx context.Context, store CodeStore, t CodeTry) error {
	_, wrong := t.limits()
	for _, l := range wrong {
		a.count(ctx, l, true)
	}
	mails := limitOf("", 1, "code-mail:", t.User.String())
	mails.Window = mailInterval
	codes := mails
	codes.Quota, codes.key = wrongBeforeMail, mails.key+":wrong"
	mail := a.count(ctx, codes, true).Reset > 0 && a.count(ctx, mails, true).Reset == 0
	event := audit.Anonymous(audit.CodeFailed, "user:"+t.User.String(), web.RequestID(ctx), t.Address.String())
	event.UserID = &t.User
	return store.RecordWrongCode(ctx, t, mail, event)
}
