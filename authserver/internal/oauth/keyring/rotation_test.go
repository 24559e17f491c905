package keyring_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestRotate_NextKeySignsAndFormerStillVerifies(t *testing.T) {
	b := newTestEnv(t)
	former, token := b.kid(b.first), b.token(b.first)
	published := b.published(b.second)
	kid := b.rotate()
	if kid == former || b.kid(b.first) != kid {
		t.Errorf("%s signs after %s, and the rotation said %s", b.kid(b.first), former, kid)
	}
	if !strings.Contains(published, kid) {
		t.Error("the key that signs now was not published before")
	}
	b.states("rotated", 1, 1, 1)
	b.event(audit.KeyRotated, kid, "admin")
	if fresh := b.token(b.first); !b.verifies(b.second, fresh) || !b.verifies(b.first, token) {
		t.Error("a process that has not noticed yet refuses the new key, or one that has refuses the old")
	}
	testkit.Must(b, b.second.Update(t.Context()))
	if b.kid(b.second) != kid || !b.verifies(b.second, token) {
		t.Error("the second process does not use the new key")
	}
}

// A loadCounter is a store that does not respond, and counts how often it is read.
type loadCounter struct {
	keyring.Store
	loads atomic.Int32
}

func (c *loadCounter) SigningKeys(context.Context) ([]keyring.StoredKey, error) {
	c.loads.Add(1)
	return nil, store.ErrUnavailable
}

func TestRun_UpdatesWithinFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counter := &loadCounter{}
		r, err := keyring.New(counter, seal.NewKeys(newKey()))
		testkit.Must(t, err)
		go r.Run(t.Context(), slog.New(slog.DiscardHandler))
		for at := range 5 {
			synctest.Wait()
			if counter.loads.Load() <= int32(at) {
				t.Errorf("after %d seconds the keys were loaded %d times", 5*at, counter.loads.Load())
			}
			time.Sleep(5 * time.Second)
		}
	})
}

func TestRotate_RetiredKeysVerifyUntilTokensExpire(t *testing.T) {
	b := newTestEnv(t)
	var tokens []credential.Secret
	for range 4 {
		tokens = append(tokens, b.token(b.first))
		b.rotate()
	}
	b.states("four times", 1, 1, 4)
	b.fixture.Exec(`update account.signing_keys set retired_at = now() - interval '90 days 23 hours'
		where state = 'retired'`)
	testkit.Must(b, b.first.Update(t.Context()))
	testkit.Must(b, b.second.Load(t.Context()))
	for i, token := range tokens {
		if !b.verifies(b.second, token) {
			t.Errorf("token %d is refused before it expires", i)
		}
	}
	b.states("nearly over", 1, 1, 4)
}

func TestUpdate_RemovesKeyAfterTokensExpire(t *testing.T) {
	b := newTestEnv(t)
	former, token := b.kid(b.first), b.token(b.first)
	b.rotate()
	b.fixture.Exec(`update account.signing_keys set retired_at = now() - interval '91 days' where kid = $1`, former)
	testkit.Must(b, b.first.Update(t.Context()))
	b.gone(b.first, former, token)
	b.states("removed", 1, 1, 0)
	b.event(audit.KeyRemoved, former, "system")
}

// age makes every key so old.
func (b *testEnv) age(by string) {
	b.Helper()
	b.fixture.Exec(`update account.signing_keys set created_at = now() - $1::interval,
		activated_at = now() - $1::interval`, by)
}

func TestRun_ConcurrentProcessesRotateAgedKeyOnce(t *testing.T) {
	b := newTestEnv(t)
	former := b.kid(b.first)
	b.age("721 hours")
	// While this lock is held, all processes see that the rotation is due and wait to decide.
	lock, err := b.fixture.Owner.Begin(t.Context())
	testkit.Must(b, err)
	_, err = lock.Exec(t.Context(), `lock table account.signing_keys in share row exclusive mode`)
	testkit.Must(b, err)
	var rings [6]*keyring.Keyring
	for i := range rings {
		rings[i] = b.ring(seal.NewKeys(b.master))
		rings[i].RotateAfter(720 * time.Hour)
		go rings[i].Run(t.Context(), slog.New(slog.DiscardHandler))
	}
	await.True(t, "they wait", func() bool {
		waiting := b.count(`select count(*) from ` + testkit.Locks + `
			where relation = 'account.signing_keys'::regclass and not granted`)
		return waiting == len(rings)
	})
	testkit.Must(b, lock.Rollback(t.Context()))
	for _, r := range rings {
		await.True(t, "a process signs with the new key", func() bool {
			key, err := r.Current(t.Context())
			return err == nil && key.KeyID() != former
		})
	}
	b.states("aged", 1, 1, 1)
	b.event(audit.KeyRotated, b.kid(rings[0]), "system")
}

func TestUpdate_DoesNotRotateYoungKey(t *testing.T) {
	for what, c := range map[string]struct {
		maxAge    time.Duration
		age, next string // of all keys, and of the next one
	}{
		"not old enough":            {720 * time.Hour, "719 hours", "719 hours"},
		"no age is set":             {0, "9000 hours", "9000 hours"},
		"the next is not known yet": {720 * time.Hour, "900 hours", "9 minutes"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newTestEnv(t)
			former := b.kid(b.first)
			b.age(c.age)
			b.fixture.Exec(`update account.signing_keys set created_at = now() - $1::interval
				where state = 'next'`, c.next)
			b.first.RotateAfter(c.maxAge)
			testkit.Must(b, b.first.Update(t.Context()))
			if b.kid(b.first) != former {
				t.Error("the key was rotated")
			}
			b.states(what, 1, 1, 0)
		})
	}
}

func TestRemove_CurrentKey(t *testing.T) {
	b := newTestEnv(t)
	leaked, token := b.kid(b.first), b.token(b.first)
	testkit.Must(b, b.first.Remove(t.Context(), leaked, "admin"))
	testkit.Must(b, b.second.Load(t.Context()))
	b.gone(b.first, leaked, token)
	b.gone(b.second, leaked, token)
	if !b.verifies(b.second, b.token(b.first)) {
		t.Error("what the promoted key signs is refused")
	}
	b.states("removed", 1, 1, 0)
	b.event(audit.KeyRemoved, leaked, "admin")
	b.event(audit.KeyPromoted, b.kid(b.first), "admin")
}

// A process that has not noticed the removal signs with the next key, from what a token request has read.
func TestCurrent_NeverReturnsRemovedKey(t *testing.T) {
	b := newTestEnv(t)
	removed := map[string]bool{}
	for range 3 { // the second process never reloads by itself
		kid := b.kid(b.first)
		testkit.Must(b, b.first.Remove(t.Context(), kid, "admin"))
		removed[kid] = true
		stored, err := b.store.SigningKeys(t.Context())
		testkit.Must(b, err)
		var published []string
		for _, key := range stored {
			published = append(published, key.KID)
		}
		key, err := b.second.Current(t.Context(), published...)
		testkit.Must(b, err)
		if removed[key.KeyID()] || key.KeyID() != b.kid(b.first) {
			t.Errorf("after %d removals, a removed key signs: %t", len(removed), removed[key.KeyID()])
		}
	}
	if key, err := b.second.Current(t.Context()); err != nil || key.KeyID() != b.kid(b.second) {
		t.Errorf("without a list: %v", err)
	}
}

func TestRemove_NextAndRetiredKey(t *testing.T) {
	b := newTestEnv(t)
	retired, token := b.kid(b.first), b.token(b.first)
	current := b.rotate()
	testkit.Must(b, b.first.Remove(t.Context(), retired, "admin"))
	b.gone(b.first, retired, token)
	if b.kid(b.first) != current {
		t.Error("the current key changed")
	}
	b.states("retired removed", 1, 1, 0)
	var next string
	b.fixture.Read(`select kid from account.signing_keys where state = 'next'`, &next)
	testkit.Must(b, b.first.Remove(t.Context(), next, "admin"))
	b.states("next removed", 1, 1, 0)
	if n := b.count(`select count(*) from account.signing_keys where state = 'next' and kid <> $1`, next); n != 1 ||
		b.kid(b.first) != current {
		t.Errorf("%d new next keys", n)
	}
}

func TestRemove_UnpublishedKeyIsUnknown(t *testing.T) {
	b := newTestEnv(t)
	gone := b.kid(b.first)
	testkit.Must(b, b.first.Remove(t.Context(), gone, "admin"))
	for _, kid := range []string{gone, "unknown", ""} {
		if err := b.first.Remove(t.Context(), kid, "admin"); !errors.Is(err, keyring.ErrUnknownKID) ||
			errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%q: %v", kid, err)
		}
	}
	b.states("after refusals", 1, 1, 0)
}

func TestReseal_ReplacesMasterKey(t *testing.T) {
	b := newTestEnv(t)
	token, fresh := b.token(b.first), newKey()
	onlyNew := b.ring(seal.NewKeys(fresh))
	if err := onlyNew.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "ALMONER_KEYS") {
		t.Fatalf("before: %v", err)
	}
	both := b.ring(seal.NewKeys(fresh, b.master))
	testkit.Must(b, both.Load(t.Context()))
	resealed, err := both.Reseal(t.Context(), "admin")
	testkit.Must(b, err)
	if resealed != 2 {
		t.Errorf("%d keys were resealed, want the current and the next", resealed)
	}
	testkit.Must(b, onlyNew.Load(t.Context()))
	if !b.verifies(onlyNew, token) || b.kid(onlyNew) != b.kid(b.first) {
		t.Error("the key changed")
	}
	_, err = onlyNew.Rotate(t.Context(), "admin")
	testkit.Must(b, err)
	b.event(audit.KeyResealed, b.kid(b.first), "admin")
	if err := b.second.Load(t.Context()); err == nil {
		t.Error("a process with the old master key alone opens resealed keys")
	}
	if !b.verifies(b.second, token) {
		t.Error("the loaded keys are lost")
	}
}

func TestKeyring_ForeignMasterKeyChangesNothing(t *testing.T) {
	b := newTestEnv(t)
	foreign := b.ring(seal.NewKeys(newKey()))
	current := b.kid(b.first)
	const events = `select count(*) from account.audit_events`
	before := b.count(events)
	_, rotated := foreign.Rotate(t.Context(), "admin")
	removed := foreign.Remove(t.Context(), current, "admin")
	_, resealed := foreign.Reseal(t.Context(), "admin")
	if rotated == nil || removed == nil || resealed == nil {
		t.Errorf("with another master key: rotate: %v, remove: %v, reseal: %v", rotated, removed, resealed)
	}
	b.states("without the master key", 1, 1, 0)
	if n := b.count(events) - before; n != 0 {
		t.Errorf("%d events", n)
	}
	testkit.Must(b, b.second.Load(t.Context()))
	if b.kid(b.second) != current {
		t.Error("another key signs")
	}
}

func TestLoad_CreatesFirstKeysOnce(t *testing.T) {
	b := newTestEnv(t)
	b.fixture.Exec(`delete from account.signing_keys`) // those of newTestEnv
	b.atOnce(8, func(int) error { return b.ring(seal.NewKeys(b.master)).Load(t.Context()) })
	b.states("at first", 1, 1, 0)
}

func TestRotate_ConcurrentRotationsLeaveOneCurrentKey(t *testing.T) {
	b := newTestEnv(t)
	b.atOnce(8, func(i int) error {
		_, err := []*keyring.Keyring{b.first, b.second}[i%2].Rotate(t.Context(), "admin")
		return err
	})
	b.states("eight rotations", 1, 1, 8)
}

func TestKeyring_LoadedKeysSurviveStoreOutage(t *testing.T) {
	b := newTestEnv(t)
	token := b.token(b.first)
	b.store.Close()
	loaded := b.first.Load(t.Context())
	_, rotated := b.first.Rotate(t.Context(), "admin")
	if !errors.Is(loaded, store.ErrUnavailable) || !errors.Is(rotated, store.ErrUnavailable) {
		t.Errorf("load: %v, rotate: %v, want store.ErrUnavailable", loaded, rotated)
	}
	if !b.verifies(b.first, token) || b.kid(b.first) == "" {
		t.Error("the keys are gone")
	}
}

func TestKeyring_HasNoKeysBeforeLoad(t *testing.T) {
	b := newTestEnv(t)
	r := b.ring(seal.NewKeys(b.master))
	if _, err := r.Current(t.Context()); !errors.Is(err, keyring.ErrNoKey) {
		t.Error(err)
	}
	if _, err := r.JWKS(); !errors.Is(err, keyring.ErrNoKey) {
		t.Error(err)
	}
	if r.Public().Len() != 0 {
		t.Error("there are keys before the first load")
	}
}

// Ready loads the keys on the first request after a start.
func TestReady_LoadsKeysOnce(t *testing.T) {
	b := newTestEnv(t)
	late, never := b.ring(seal.NewKeys(b.master)), b.ring(seal.NewKeys(b.master))
	testkit.Must(t, late.Ready(t.Context()))
	if _, err := late.Current(t.Context()); err != nil {
		t.Error(err)
	}
	b.store.Close()
	if err := late.Ready(t.Context()); err != nil {
		t.Errorf("loaded keys are read again: %v", err)
	}
	if err := never.Ready(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%v, want store.ErrUnavailable", err)
	}
}
