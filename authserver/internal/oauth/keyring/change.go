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

// A Move takes a key on in its life.
type Move struct {
	KID string
	To  State
}

// A Change is what is to become of the stored keys: Moves in their order, then Reseals, then Adds. A store erases the
// private half of a key that is retired or removed: it never signs again.
type Change struct {
	Moves   []Move
	Reseals []StoredKey // Sealed is new
	Adds    []StoredKey
	Events  []audit.Event
}

// A Decision looks at the keys there are, oldest first, and at the store's clock. Its error changes nothing, and is
// passed on as it is.
type Decision func(now time.Time, have []StoredKey) (Change, error)

// ErrUnknownKID says that no key that is still published has that identifier.
var ErrUnknownKID = errors.New("no published key has that identifier")

// How long a key is published: until the last token that it signed has expired, and a day, for processes that went on
// with it while they could not read that it was retired.
const retirementMargin = 24 * time.Hour

func publishedFor() time.Duration { return client.Confidential.Traits().AccessLife + retirementMargin }

// knownBefore is how long a key is published before its age makes it sign: what caches of the key set keep, and some
// more.
const knownBefore = 10 * time.Minute

// Rotate makes the next key sign from now on. The one that signed until now is still believed for as long as a token of
// its may live. It returns the identifier of the key that signs.
func (r *Keyring) Rotate(ctx context.Context, actor string) (kid string, err error) {
	err = r.change(ctx, func(_ time.Time, have []StoredKey) (Change, error) {
		var change Change
		next, err := r.succeed(&change, have, Retired, actor, "key.rotated")
		kid = next
		return change, err
	})
	return kid, err
}

// Remove takes a key out at once, whatever its state: no token that it signed is believed any more. Where it was the
// current one, the next signs. It returns ErrUnknownKID where there is none to remove.
func (r *Keyring) Remove(ctx context.Context, kid, actor string) error {
	return r.change(ctx, func(_ time.Time, have []StoredKey) (Change, error) {
		key, found := find(have, func(k StoredKey) bool { return k.KID == kid })
		if !found {
			return Change{}, ErrUnknownKID
		}
		change := Change{
			Events: []audit.Event{event("key.removed", kid, actor, map[string]any{"state": string(key.State)})},
		}
		if key.State == Current {
			_, err := r.succeed(&change, have, Removed, actor, "key.promoted")
			return change, err
		}
		change.Moves = []Move{{kid, Removed}}
		return change, nil
	})
}

// Reseal seals every private half anew, under the newest of the keys that the ring was made with, and says how many.
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
			change.Events = append(change.Events, event("key.resealed", k.KID, actor, nil))
		}
		resealed = len(change.Reseals)
		return change, nil
	})
	return resealed, err
}

// maintain does what time asks for: a current key that is old enough is rotated, and what has been retired for long is
// removed.
func (r *Keyring) maintain(ctx context.Context) error {
	return r.change(ctx, func(now time.Time, have []StoredKey) (Change, error) {
		var change Change
		for _, k := range have {
			if outlived(k, now) {
				change.Moves = append(change.Moves, Move{k.KID, Removed})
				change.Events = append(
					change.Events,
					event("key.removed", k.KID, system, map[string]any{"state": string(Retired)}),
				)
			}
		}
		if !r.aged(have, now) {
			return change, nil
		}
		_, err := r.succeed(&change, have, Retired, system, "key.rotated")
		return change, err
	})
}

const system = "system" // the actor of what nobody asked for

// due says whether tend would find something to do.
func (r *Keyring) due(have []StoredKey, now time.Time) bool {
	_, found := find(have, func(k StoredKey) bool { return outlived(k, now) })
	return found || r.aged(have, now)
}

func outlived(k StoredKey, now time.Time) bool {
	return k.State == Retired && k.Retired != nil && !now.Before(k.Retired.Add(publishedFor()))
}

// aged says whether the current key has signed long enough, and the next was published long enough.
func (r *Keyring) aged(have []StoredKey, now time.Time) bool {
	current, signing := find(have, func(k StoredKey) bool { return k.State == Current })
	next, ready := find(have, func(k StoredKey) bool { return k.State == Next })
	return r.maxAge > 0 && signing && current.Activated != nil && !now.Before(current.Activated.Add(r.maxAge)) &&
		ready && !now.Before(next.Created.Add(knownBefore))
}

// succeed puts the current key in the state former and the oldest next one in its place.
func (r *Keyring) succeed(
	change *Change,
	have []StoredKey,
	former State,
	actor, action string,
) (kid string, err error) {
	next, found := find(have, func(k StoredKey) bool { return k.State == Next })
	if !found {
		return "", fmt.Errorf("no key is next: %w", ErrNoKey)
	}
	if _, err := r.open(next); err != nil { // or nobody could sign any more
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

// change has the store apply what decide says, with a new next key where it leaves none, and loads what came of it.
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

func event(action, kid, actor string, detail map[string]any) audit.Event {
	return audit.Event{Actor: actor, Action: action, Subject: "key:" + kid, Detail: detail}
}
