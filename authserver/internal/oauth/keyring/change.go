package keyring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
)

// A Move changes the state of a key.
type Move struct {
	KID string
	To  State
}

// A Change is a change of the stored keys: Moves in their order, then Reseals, then Adds. A store erases the private
// half of a key that is retired or removed, because it never signs again.
type Change struct {
	Moves   []Move
	Reseals []StoredKey // with a new Sealed
	Adds    []StoredKey
	Events  []audit.Event
}

// A Decision receives the existing keys, oldest first, and the store's clock. If it returns an error, nothing changes
// and the error is returned unchanged.
type Decision func(now time.Time, have []StoredKey) (Change, error)

// ErrUnknownKID reports that no published key has that identifier.
var ErrUnknownKID = errors.New("no published key with that id")

// A retired key stays published until the last token that it signed has expired, and retirementMargin longer, for
// processes that continued to sign with it because they could not read that it was retired.
const retirementMargin = 24 * time.Hour

func publishedFor() time.Duration { return client.Confidential.Traits().AccessLife + retirementMargin }

// knownBefore is how long a key must be published before it replaces an aged key. It exceeds the cache life of the key
// set.
const knownBefore = 10 * time.Minute

// Rotate makes the next key sign from now on. The former key is accepted for as long as its tokens may live. Rotate
// returns the identifier of the new signing key.
func (k *Keyring) Rotate(ctx context.Context, actor string) (kid string, err error) {
	err = k.change(ctx, func(_ time.Time, have []StoredKey) (Change, error) {
		var change Change
		next, err := k.succeed(&change, have, Retired, actor, audit.KeyRotated)
		kid = next
		return change, err
	})
	return kid, err
}

// Remove removes a key at once, in any state: tokens that it signed are no longer accepted. If it was the current key,
// the next one signs. It returns ErrUnknownKID if there is no such key.
func (r *Keyring) Remove(ctx context.Context, kid, actor string) error {
	return r.change(ctx, func(_ time.Time, have []StoredKey) (Change, error) {
		key, found := find(have, func(k StoredKey) bool { return k.KID == kid })
		if !found {
			return Change{}, ErrUnknownKID
		}
		change := Change{
			Events: []audit.Event{event(audit.KeyRemoved, kid, actor, map[string]any{"state": string(key.State)})},
		}
		if key.State == Current {
			_, err := r.succeed(&change, have, Removed, actor, audit.KeyPromoted)
			return change, err
		}
		change.Moves = []Move{{kid, Removed}}
		return change, nil
	})
}

// Reseal seals every private half again under the newest master key, and returns their number.
func (r *Keyring) Reseal(ctx context.Context, actor string) (resealed int, err error) {
	err = r.change(ctx, func(_ time.Time, have []StoredKey) (Change, error) {
		var change Change
		for _, k := range have {
			if k.State != Current && k.State != Next {
				continue
			}
			private, err := r.open(k)
			if err != nil {
				return Change{}, err
			}
			k.Sealed = r.box.SealBytes(private)
			change.Reseals = append(change.Reseals, k)
			change.Events = append(change.Events, event(audit.KeyResealed, k.KID, actor, nil))
		}
		resealed = len(change.Reseals)
		return change, nil
	})
	return resealed, err
}

// maintain rotates a current key that is old enough, and removes keys whose retirement is over.
func (r *Keyring) maintain(ctx context.Context) error {
	return r.change(ctx, func(now time.Time, have []StoredKey) (Change, error) {
		var change Change
		for _, k := range have {
			if outlived(k, now) {
				change.Moves = append(change.Moves, Move{k.KID, Removed})
				change.Events = append(change.Events,
					event(audit.KeyRemoved, k.KID, system, map[string]any{"state": string(Retired)}))
			}
		}
		if !r.aged(have, now) {
			return change, nil
		}
		_, err := r.succeed(&change, have, Retired, system, audit.KeyRotated)
		return change, err
	})
}

const system = "system" // the actor of automatic changes

// due reports whether maintain has something to do.
func (r *Keyring) due(have []StoredKey, now time.Time) bool {
	_, found := find(have, func(k StoredKey) bool { return outlived(k, now) })
	return found || r.aged(have, now)
}

func outlived(k StoredKey, now time.Time) bool {
	return k.State == Retired && k.Retired != nil && !now.Before(k.Retired.Add(publishedFor()))
}

// aged reports whether the current key has signed long enough and the next one was published long enough.
func (r *Keyring) aged(have []StoredKey, now time.Time) bool {
	current, signing := find(have, func(k StoredKey) bool { return k.State == Current })
	next, ready := find(have, func(k StoredKey) bool { return k.State == Next })
	return r.maxAge > 0 && signing && current.Activated != nil && !now.Before(current.Activated.Add(r.maxAge)) &&
		ready && !now.Before(next.Created.Add(knownBefore))
}

// succeed moves the current key to the state former, and makes the oldest next key current.
func (r *Keyring) succeed(
	change *Change, have []StoredKey, former State, actor string, action audit.Action,
) (kid string, err error) {
	next, found := find(have, func(k StoredKey) bool { return k.State == Next })
	if !found {
		return "", fmt.Errorf("no next key: %w", ErrNoKey)
	}
	if _, err := r.open(next); err != nil { // otherwise no process could sign
		return "", err
	}
	detail := map[string]any{}
	if current, signing := find(have, func(k StoredKey) bool { return k.State == Current }); signing {
		change.Moves = append(change.Moves, Move{current.KID, former})
		detail["former"] = current.KID
	}
	change.Moves = append(change.Moves, Move{next.KID, Current})
	change.Events = append(change.Events, event(action, next.KID, actor, detail))
	return next.KID, nil
}

// change applies decide in the store, adds a next key if none is left, and loads the result.
func (r *Keyring) change(ctx context.Context, decide Decision) error {
	err := r.store.ChangeSigningKeys(ctx, func(now time.Time, have []StoredKey) (Change, error) {
		change, err := decide(now, have)
		if err != nil {
			return Change{}, err
		}
		if _, left := find(have, func(k StoredKey) bool { return k.State == Next && !change.moves(k.KID) }); !left {
			next, err := r.generate(Next)
			change.Adds = append(change.Adds, next)
			return change, err
		}
		return change, nil
	})
	if err != nil {
		return err
	}
	return r.Load(ctx)
}

func (c Change) moves(kid string) bool {
	return slices.ContainsFunc(c.Moves, func(m Move) bool { return m.KID == kid })
}

func find(keys []StoredKey, is func(StoredKey) bool) (StoredKey, bool) {
	for _, k := range keys {
		if is(k) {
			return k, true
		}
	}
	return StoredKey{}, false
}

func event(action audit.Action, kid, actor string, detail map[string]any) audit.Event {
	return audit.Event{Actor: actor, Action: action, Subject: "key:" + kid, Detail: detail}
}
