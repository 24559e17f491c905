package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/almonerhq/almoner/shared/web"
)

// How many wrong passwords are answered within the window, before the door stays shut for a while (contract, section
// 7). An account is limited for one address alone, so that a stranger elsewhere cannot lock its owner out.
const (
	attemptWindow     = 15 * time.Minute
	perAccount        = 10 // for one account from one address
	perAddress        = 100
	begunPerAddress   = 600 // an office behind one address signs in within minutes
	distrustAfterFail = 5 * time.Second
)

// A Tally counts events within a sliding window.
type Tally interface {
	// Count says how long key has to wait until it is below limit again, 0 when it is below. With add, it counts one
	// more event, unless key has to wait.
	Count(ctx context.Context, key string, limit int, window time.Duration, add bool) (time.Duration, error)
}

// Attempts limit wrong passwords, and what else strangers may ask for. They count in the shared tally and in this
// process, which alone decides while the shared one does not answer: people can sign in without it. They are safe for
// concurrent use.
type Attempts struct {
	shared     Tally
	local      *localTally
	log        *slog.Logger
	now        func() time.Time
	localUntil atomic.Int64
}

// NewAttempts makes Attempts.
func NewAttempts(shared Tally, log *slog.Logger, now func() time.Time) *Attempts {
	return &Attempts{shared: shared, local: newLocalTally(now), log: log, now: now}
}

// Wait says how long the address has to wait before it may try this account, 0 for not at all, and because of which
// limit.
func (a *Attempts) Wait(ctx context.Context, email string, address netip.Addr) (time.Duration, web.RateLimit) {
	return a.count(ctx, email, address, false)
}

// Wrong counts a wrong password. It says how long the address has to wait, where this one was already beyond the limit.
func (a *Attempts) Wrong(ctx context.Context, email string, address netip.Addr) (time.Duration, web.RateLimit) {
	return a.count(ctx, email, address, true)
}

// waitHere is Wait as far as this process knows, which asks no store.
func (a *Attempts) waitHere(email string, address netip.Addr) (time.Duration, web.RateLimit) {
	account, from := keysOfAttempt(email, address)
	return longer(
		a.local.count(account, perAccount, attemptWindow, false),
		a.local.count(from, perAddress, attemptWindow, false),
	)
}

// BegunLimit describes the limit of Begun to a caller who has to wait.
func BegunLimit(wait time.Duration) web.RateLimit {
	return exhausted("sign-ins-begun-per-address", begunPerAddress, wait)
}

// longer is the longer of two waits, for one account and for any accounts, with its limit.
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
	return "account:" + digest(email+"\x00"+network), "address:" + digest(network)
}

// Begun counts a sign-in by passkey or at another provider that is begun from an address: each leaves a row until it is
// answered or forgotten. It says how long the address has to wait, where it was already beyond the limit.
func (a *Attempts) Begun(ctx context.Context, address netip.Addr) time.Duration {
	return a.tally(ctx, "begun:"+digest(web.Network(address)), begunPerAddress, true)
}

func (a *Attempts) count(
	ctx context.Context,
	email string,
	address netip.Addr,
	add bool,
) (time.Duration, web.RateLimit) {
	account, from := keysOfAttempt(email, address)
	return longer(a.tally(ctx, account, perAccount, add), a.tally(ctx, from, perAddress, add))
}

// tally counts here as well as in the shared tally, so that a moment without Redis forgets nothing that this process
// has seen.
func (a *Attempts) tally(ctx context.Context, key string, limit int, add bool) time.Duration {
	here := a.local.count(key, limit, attemptWindow, add)
	if a.now().UnixNano() < a.localUntil.Load() {
		return here
	}
	everywhere, err := a.shared.Count(ctx, key, limit, attemptWindow, add)
	if err != nil {
		a.localUntil.Store(a.now().Add(distrustAfterFail).UnixNano())
		a.log.WarnContext(ctx, "attempts to sign in are counted in this process alone for now", "error", err)
		return here
	}
	return max(here, everywhere)
}

// digest keeps e-mail addresses out of the store.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
