package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

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

// Wait returns how long the address must wait before it may try this account, or 0, and the limit that requires it.
func (a *Attempts) Wait(ctx context.Context, email string, address netip.Addr) (time.Duration, web.RateLimit) {
	return a.count(ctx, email, address, false)
}

// Wrong counts a wrong password. If the limit was already reached, it returns how long the address must wait.
func (a *Attempts) Wrong(ctx context.Context, email string, address netip.Addr) (time.Duration, web.RateLimit) {
	return a.count(ctx, email, address, true)
}

// waitHere is like Wait, but uses only this process's counts, without I/O.
func (a *Attempts) waitHere(email string, address netip.Addr) (time.Duration, web.RateLimit) {
	account, from := keysOfAttempt(email, address)
	return longer(
		a.local.count(account, perAccount, attemptWindow, false),
		a.local.count(from, perAddress, attemptWindow, false),
	)
}

// BegunLimit describes the limit of Begun to a caller that must wait.
func BegunLimit(wait time.Duration) web.RateLimit {
	return exhausted("sign-ins-begun-per-address", begunPerAddress, wait)
}

// longer returns the longer of two waits, of the account and of the address, with its limit.
func longer(account, address time.Duration) (time.Duration, web.RateLimit) {
	switch {
	case account == 0 && address == 0:
		return 0, web.RateLimit{}
	case account >= address:
		return account, exhausted("wrong-passwords-per-account", perAccount, account)
	}
	return address, exhausted("wrong-passwords-per-address", perAddress, address)
}

func exhausted(name string, quota int, wait time.Duration) web.RateLimit {
	return web.RateLimit{
		Name:   name,
		Quota:  quota,
		Window: attemptWindow,
		Reset:  wait,
	}
}

func keysOfAttempt(email string, address netip.Addr) (account, from string) {
	network := web.Network(address)
	return "account:" + digest(spelling.Key(email)+"\x00"+network), "address:" + digest(network)
}

// Begun counts a sign-in by passkey or at another provider that an address begins; each stores a row until it is
// finished or expires. If the limit was already reached, it returns how long the address must wait.
func (a *Attempts) Begun(ctx context.Context, address netip.Addr) time.Duration {
	return a.countBoth(ctx, "begun:"+digest(web.Network(address)), begunPerAddress, true)
}

// Asked counts a request for a link to set a password, by address alone: a limit by account would tell whether the
// account exists, and would let strangers keep its owner out. If the limit was already reached, it returns how long the
// address must wait.
func (a *Attempts) Asked(ctx context.Context, address netip.Addr) time.Duration {
	return a.countBoth(ctx, "asked:"+digest(web.Network(address)), askedPerAddress, true)
}

// AskedLimit describes the limit of Asked to a caller that must wait.
func AskedLimit(wait time.Duration) web.RateLimit {
	return exhausted("links-per-address", askedPerAddress, wait)
}

// Answered counts an answer to an open invitation, by token and address. Clients at other addresses, and clients
// without the token, cannot lock out the recipient. If the limit was already reached, it returns how long the address
// must wait.
func (a *Attempts) Answered(
	ctx context.Context, token credential.Secret, address netip.Addr,
) (time.Duration, web.RateLimit) {
	key := "answered:" + digest(token.Reveal()+"\x00"+web.Network(address))
	wait := a.countBoth(ctx, key, answersPerLink, true)
	return wait, exhausted("answers-per-invitation", answersPerLink, wait)
}

// UnknownLink counts a request whose link names no invitation. It is called after the lookup, so that valid links
// always work. If the limit was already reached, it returns how long the address must wait.
func (a *Attempts) UnknownLink(ctx context.Context, address netip.Addr) (time.Duration, web.RateLimit) {
	wait := a.countBoth(ctx, "unknown:"+digest(web.Network(address)), unknownPerAddress, true)
	return wait, exhausted("unknown-links-per-address", unknownPerAddress, wait)
}

func (a *Attempts) count(
	ctx context.Context,
	email string,
	address netip.Addr,
	add bool,
) (time.Duration, web.RateLimit) {
	account, from := keysOfAttempt(email, address)
	return longer(a.countBoth(ctx, account, perAccount, add), a.countBoth(ctx, from, perAddress, add))
}

// countBoth is countWithin for attemptWindow.
func (a *Attempts) countBoth(ctx context.Context, key string, limit int, add bool) time.Duration {
	return a.countWithin(ctx, key, limit, attemptWindow, add)
}

// countWithin counts locally as well as in the shared counter, so that this process's events still count during a Redis
// outage.
func (a *Attempts) countWithin(
	ctx context.Context, key string, limit int, window time.Duration, add bool,
) time.Duration {
	local := a.local.count(key, limit, window, add)
	if a.now().UnixNano() < a.localUntil.Load() {
		return local
	}
	shared, err := a.shared.Count(ctx, key, limit, window, add)
	if err != nil {
		a.localUntil.Store(a.now().Add(distrustAfterFail).UnixNano())
		a.log.WarnContext(ctx, "sign-in attempts counted in this process only", "error", err)
		return local
	}
	return max(local, shared)
}

// digest hashes a key, so that the store holds no e-mail addresses.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
