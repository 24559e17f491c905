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
type Decision func(now time.Time, stored []StoredKey) (Change, error)

// ErrUnknownKID reports that no published key has that identifier.
var ErrUnknownKID = errors.New("no published key with that id")

// retirementMargin is how much longer than the last token that it signed a retired key stays published, for processes
// that continued to sign with it because they could not read that it was retired.
const retirementMargin = 24 * time.Hour

// knownBefore is how long a key must be published before it replaces an aged key. It exceeds the cache life of the key
// set.
const knownBefore = 10 * time.Minute

// Rotate makes the next key sign from now on. The former key is accepted for as long as its tokens may live. Rotate
// returns the identifier of the new signing key.
func (k *Keyring) Rotate(ctx context.Context, actor string) (kid string, err error) {
	err = k.change(ctx, func(_ time.Time, stored []StoredKey) (change Change, err error) {
		kid, err = k.succeed(&change, stored, Retired, actor, audit.KeyRotated)
		return change, err
	})
	return kid, err
}

// Remove removes a key at once, in any state: tokens that it signed are no longer accepted. If it was the current key,
// the next one signs. It returns ErrUnknownKID if there is no such key.
func (k *Keyring) Remove(ctx context.Context, kid, actor string) error {
	return k.change(ctx, func(_ time.Time, stored []StoredKey) (Change, error) {
		at := slices.IndexFunc(stored, func(one StoredKey) bool { return one.KID == kid })
		if at < 0 {
			return Change{}, ErrUnknownKID
		}
		detail := map[string]any{"state": string(stored[at].State)}
		change := Change{Events: []audit.Event{event(audit.KeyRemoved, kid, actor, detail)}}
		if stored[at].State == Current {
			_, err := k.succeed(&change, stored, Removed, actor, audit.KeyPromoted)
			return change, err
		}
		change.Moves = []Move{{kid, Removed}}
		return change, nil
	})
}

// Reseal seals every private half again under the newest master key, and returns their number.
func (k *Keyring) Reseal(ctx context.Context, actor string) (resealed int, err error) {
	err = k.change(ctx, func(_ time.Time, stored []StoredKey) (Change, error) {
		var change Change
		for _, one := range stored {
			if one.State != Current && one.State != Next {
				continue
			}
			private, err := k.open(one)
			if err != nil {
				return Change{}, err
			}
			one.Sealed = k.box.SealBytes(private)
			change.Reseals = append(change.Reseals, one)
			change.Events = append(change.Events, event(audit.KeyResealed, one.KID, actor, nil))
		}
		resealed = len(change.Reseals)
		return change, nil
	})
	return resealed, err
}

const system = "system" // the actor of automatic changes

// maintenance is the Decision to rotate a current key that is old enough, and to remove keys whose retirement is over.
func (k *Keyring) maintenance(now time.Time, stored []StoredKey) (change Change, err error) {
	publishedFor := client.Confidential.Traits().AccessLife + retirementMargin
	for _, one := range stored {
		if one.State == Retired && one.Retired != nil && !now.Before(one.Retired.Add(publishedFor)) {
			change.Moves = append(change.Moves, Move{one.KID, Removed})
			change.Events = append(change.Events,
				event(audit.KeyRemoved, one.KID, system, map[string]any{"state": string(Retired)}))
		}
	}
	if k.aged(stored, now) {
		_, err = k.succeed(&change, stored, Retired, system, audit.KeyRotated)
	}
	return change, err
}

// aged reports whether the current key has signed long enough and the next one was published long enough.
func (k *Keyring) aged(stored []StoredKey, now time.Time) bool {
	current, signing := find(stored, Current)
	next, ready := find(stored, Next)
	return k.maxAge > 0 && signing && current.Activated != nil && !now.Before(current.Activated.Add(k.maxAge)) &&
		ready && !now.Before(next.Created.Add(knownBefore))
}

// succeed moves the current key to the state former, and makes the oldest next key current.
func (k *Keyring) succeed(
	change *Change, stored []StoredKey, former State, actor string, action audit.Action,
) (kid string, err error) {
	next, found := find(stored, Next)
	if !found {
		return "", fmt.Errorf("no next key: %w", ErrNoKey)
	}
	if _, err := k.open(next); err != nil { // otherwise no process could sign
		return "", err
	}
	detail := map[string]any{}
	if current, signing := find(stored, Current); signing {
		change.Moves = append(change.Moves, Move{current.KID, former})
		detail["former"] = current.KID
	}
	change.Moves = append(change.Moves, Move{next.KID, Current})
	change.Events = append(change.Events, event(action, next.KID, actor, detail))
	return next.KID, nil
}

// change applies decide in the store, adds a next key if none is left, and loads the result.
func (k *Keyring) change(ctx context.Context, decide Decision) error {
	err := k.store.ChangeSigningKeys(ctx, func(now time.Time, stored []StoredKey) (Change, error) {
		change, err := decide(now, stored)
		if err != nil {
			return Change{}, err
		}
		stays := func(one StoredKey) bool {
			moves := slices.ContainsFunc(change.Moves, func(m Move) bool { return m.KID == one.KID })
			return one.State == Next && !moves
		}
		if !slices.ContainsFunc(stored, stays) {
			next, err := k.generate(Next)
			change.Adds = append(change.Adds, next)
			return change, err
		}
		return change, nil
	})
	if err != nil {
		return err
	}
	return k.Load(ctx)
}

// find returns the oldest key in a state.
func find(keys []StoredKey, state State) (StoredKey, bool) {
	at := slices.IndexFunc(keys, func(one StoredKey) bool { return one.State == state })
	if at < 0 {
		return StoredKey{}, false
	}
	return keys[at], true
}

func event(action audit.Action, kid, actor string, detail map[string]any) audit.Event {
	return audit.Event{Actor: actor, Action: action, Subject: "key:" + kid, Detail: detail}
}
