package grant_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/seal"
)

const (
	someKey  credential.Secret = "mb5rOOUfPX4eZgDn"
	otherKey credential.Secret = "mb5rOOUfPX4eZgDm"
)

// lost makes a request whose response is lost, and returns the refresh token in it.
func (b *testEnv) lost(issued grant.Issued, err error) credential.Secret {
	b.Helper()
	if err != nil || issued.Repeated {
		b.Fatalf("the first request: repeated %t, %v", issued.Repeated, err)
	}
	return issued.Refresh
}

// again checks that a request got the same refresh token again.
func (b *testEnv) again(what string, want credential.Secret) func(grant.Issued, error) {
	b.Helper()
	return func(issued grant.Issued, err error) {
		b.Helper()
		if err != nil || !issued.Repeated || issued.Refresh != want {
			b.Errorf("%s: repeated %t, the same token %t, %v", what, issued.Repeated, issued.Refresh == want, err)
		}
	}
}

func (b *testEnv) key(id string) string { return "g:{" + id + "}" }

// age makes the last decision about the grant older.
func (b *testEnv) age(g grant.Grant, by time.Duration) {
	b.Helper()
	if err := b.rdb.HIncrBy(b.Context(), b.key(g.ID.String()), "at", -by.Milliseconds()).Err(); err != nil {
		b.Fatal(err)
	}
}

func TestG11_RepeatedRequestGetsSameToken(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	first := b.lost(b.redeemWith(code, b.terms(), someKey))
	for range 5 { // more tries than are recorded
		b.again("exchange", first)(b.anotherProcess().redeemWith(code, b.terms(), someKey))
	}
	second := b.lost(b.rotateWith(first, someKey)) // a key belongs to one credential
	for range 5 {
		b.again("refresh", second)(b.anotherProcess().rotateWith(first, someKey))
	}
	b.age(g, 59*time.Second)
	b.again("refresh, 59 s later", second)(b.rotateWith(first, someKey))
	third := b.mustRotate(second)
	b.wantActive(g.ID)
	_, err := b.rotateWith(second, someKey)
	b.refused("a key for a request without one", err)
	b.wantRevoked(g.ID, grant.Replayed)
	_, err = b.rotate(third)
	b.refused("after the replay", err)
}

func TestG11_ConfidentialExchangeIsRepeated(t *testing.T) {
	b := newTestEnv(t)
	b.app, _ = b.fixture.Confidential(perm.ProgrammesRead)
	g, code := b.consent()
	b.lost(b.redeemWith(code, b.terms(), someKey))
	b.again("exchange", "")(b.redeemWith(code, b.terms(), someKey))
	b.wantActive(g.ID)
	_, err := b.redeemWith(code, b.terms(), otherKey)
	b.refused("another key", err)
	b.wantRevoked(g.ID, grant.CodeReused)
	_, err = b.redeemWith(code, b.terms(), someKey)
	b.refused("after the reuse", err)
}

// If the second request differs from the first, it is a replay and revokes the grant.
func TestG11_OtherSenderEndsGrant(t *testing.T) {
	b := newTestEnv(t)
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	byClient := grant.Sender{Proof: grant.ProofByClient(string(someKey))}
	for name, c := range map[string]struct {
		before func(grant.Grant, credential.Secret)
		again  func(first credential.Secret) error
	}{
		"no key": {nil, func(first credential.Secret) error { _, err := b.rotate(first); return err }},
		"another key": {nil, func(first credential.Secret) error {
			_, err := b.rotateWith(first, otherKey)
			return err
		}},
		"a client's name for a key": {nil, func(first credential.Secret) error {
			_, err := b.rotateBy(first, b.app.ID, resource, byClient)
			return err
		}},
		"another resource": {nil, func(first credential.Secret) error {
			_, err := b.rotateBy(first, b.app.ID, resource+"/", sender(someKey))
			return err
		}},
		"60 s later": {
			func(g grant.Grant, _ credential.Secret) { b.age(g, time.Minute) },
			func(first credential.Secret) error { _, err := b.rotateWith(first, someKey); return err },
		},
		"successor used": {
			func(_ grant.Grant, second credential.Secret) { b.mustRotate(second) },
			func(first credential.Secret) error { _, err := b.rotateWith(first, someKey); return err },
		},
		"Redis lost its memory": {
			func(grant.Grant, credential.Secret) { b.rdb.FlushAll(t.Context()) },
			func(first credential.Secret) error { _, err := b.rotateWith(first, someKey); return err },
		},
		"Redis was repaired": {
			func(g grant.Grant, _ credential.Secret) {
				b.rdb.FlushAll(t.Context())
				if err := redis.NewGrants(b.rdb).Repair(t.Context(), b.state(g.ID)); err != nil {
					t.Fatal(err)
				}
			},
			func(first credential.Secret) error { _, err := b.rotateWith(first, someKey); return err },
		},
	} {
		g, first := b.active()
		second := b.lost(b.rotateWith(first, someKey))
		_, err := b.rotateBy(first, other.ID, resource, sender(someKey))
		b.refused("another client", err)
		b.wantActive(g.ID)
		if c.before != nil {
			c.before(g, second)
		}
		b.refused(name, c.again(first))
		b.wantRevoked(g.ID, grant.Replayed)
		_, err = b.rotate(second)
		b.refused(name+": the successor", err)
	}
}

func TestG11_OtherExchangeEndsGrant(t *testing.T) {
	b := newTestEnv(t)
	for name, c := range map[string]struct {
		before func(g grant.Grant, refresh credential.Secret)
		key    credential.Secret
	}{
		"no key":                {nil, ""},
		"another key":           {nil, otherKey},
		"60 s later":            {func(g grant.Grant, _ credential.Secret) { b.age(g, time.Minute) }, someKey},
		"refreshed":             {func(_ grant.Grant, r credential.Secret) { b.mustRotate(r) }, someKey},
		"Redis lost its memory": {func(grant.Grant, credential.Secret) { b.rdb.FlushAll(t.Context()) }, someKey},
	} {
		g, code := b.consent()
		refresh := b.lost(b.redeemWith(code, b.terms(), someKey))
		wrong := b.terms()
		wrong.RedirectURI += "x"
		_, err := b.redeemWith(code, wrong, someKey)
		b.refused("another redirect URI", err)
		wrong = b.terms()
		wrong.Challenge = "x"
		_, err = b.redeemWith(code, wrong, someKey)
		b.refused("another verifier", err)
		b.wantActive(g.ID)
		if c.before != nil {
			c.before(g, refresh)
		}
		_, err = b.redeemWith(code, b.terms(), c.key)
		b.refused(name, err)
		b.wantRevoked(g.ID, grant.CodeReused)
	}
}

// A repeated request is refused for the same reasons as a first request, and the refusal consumes nothing.
func TestG11_StandingComesBeforeRepetition(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	second := b.lost(b.rotateWith(first, someKey))
	_, code := b.consent()
	exchanged := b.lost(b.redeemWith(code, b.terms(), someKey))
	b.fixture.SetLLM(false)
	_, err := b.rotateWith(first, someKey)
	b.refused("LLM integration off", err)
	if refusal, _ := errors.AsType[*grant.Refusal](err); refusal == nil || refusal.Block != grant.LLMOff {
		t.Errorf("%v", err)
	}
	_, err = b.redeemWith(code, b.terms(), someKey)
	b.refused("exchange, LLM integration off", err)
	b.wantActive(g.ID)
	b.fixture.SetLLM(true)
	b.again("refresh", second)(b.rotateWith(first, someKey))
	b.again("exchange", exchanged)(b.redeemWith(code, b.terms(), someKey))
	if err := b.grants.Revoke(t.Context(), b.state(g.ID), grant.ByUser, "user:x"); err != nil {
		t.Fatal(err)
	}
	_, err = b.rotateWith(first, someKey)
	b.refused("revoked", err)
	b.wantRevoked(g.ID, grant.ByUser)
}

// Concurrent requests with the same key get the same token, and none revokes the grant.
func TestG11_ConcurrentRequestsGetOneToken(t *testing.T) {
	b := newTestEnv(t)
	processes := []*testEnv{b, b.anotherProcess()}
	for range 10 {
		g, code := b.consent()
		first := same(t, func(i int) (grant.Issued, error) {
			return processes[i%2].redeemWith(code, b.terms(), someKey)
		})
		second := same(t, func(i int) (grant.Issued, error) { return processes[i%2].rotateWith(first, someKey) })
		b.mustRotate(second)
		b.wantActive(g.ID)
	}
}

func same(t *testing.T, request func(int) (grant.Issued, error)) credential.Secret {
	t.Helper()
	const callers = 8
	tokens := make([]credential.Secret, callers)
	var group sync.WaitGroup
	for i := range tokens {
		group.Go(func() {
			issued, err := request(i)
			if err != nil {
				t.Error(err)
			}
			tokens[i] = issued.Refresh
		})
	}
	group.Wait()
	if slices.Sort(tokens); tokens[0] != tokens[callers-1] || tokens[0] == "" {
		t.Fatal("callers with one key got different tokens")
	}
	return tokens[0]
}

// A process that creates tokens with another master key returns the token that the first process created.
func TestG11_RepetitionSurvivesKeyRotation(t *testing.T) {
	b := newTestEnv(t)
	keys := [2][]byte{make([]byte, 32), make([]byte, 32)}
	_, _ = rand.Read(keys[1])
	processes := [2]*testEnv{}
	for i, order := range []seal.Keys{seal.NewKeys(keys[0], keys[1]), seal.NewKeys(keys[1], keys[0])} {
		codec, err := grant.NewTokenCodec(order)
		if err != nil {
			t.Fatal(err)
		}
		process := *b
		process.codec = codec
		process.grants = grant.NewService(b.store, redis.NewGrants(b.rdb), codec, slog.New(slog.DiscardHandler))
		processes[i] = &process
	}
	g, code := processes[0].consent()
	first := b.lost(processes[0].redeemWith(code, b.terms(), someKey))
	b.again("exchange", first)(processes[1].redeemWith(code, b.terms(), someKey))
	second := b.lost(processes[1].rotateWith(first, someKey))
	b.again("refresh", second)(processes[0].rotateWith(first, someKey))
	third := same(t, func(i int) (grant.Issued, error) { return processes[i%2].rotateWith(second, someKey) })
	processes[0].mustRotate(third)
	b.wantActive(g.ID)
}

// Redis is restored to the state before the rotation. The repeated request is no rotation, because Postgres holds the
// successor. It cannot get the same token, because Redis does not know when the first request was.
func TestG11_RestoredRedisRepeatsNothing(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	key := b.key(g.ID.String())
	older, err := b.rdb.Dump(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	b.lost(b.rotateWith(first, someKey))
	if err := b.rdb.RestoreReplace(t.Context(), key, 0, older).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = b.rotateWith(first, someKey)
	b.refused("refresh", err)
	b.wantRevoked(g.ID, grant.Replayed)
}

// A process crashed after Redis decided and before Postgres committed. The repeated request completes the step.
func TestG11_RepetitionCompletesStepOfCrashedProcess(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	crashed := *b
	steps, log := newCrashedStore(b.store), slog.New(slog.DiscardHandler)
	crashed.grants = grant.NewService(steps, redis.NewGrants(b.rdb), b.codec, log)
	first := b.lost(crashed.redeemWith(code, b.terms(), someKey))
	b.again("exchange", first)(b.redeemWith(code, b.terms(), someKey))
	second := b.lost(crashed.rotateWith(first, someKey))
	b.again("refresh", second)(b.rotateWith(first, someKey))
	b.mustRotate(second)
	b.wantActive(g.ID)
}

// A request stalls between the two stores. The client repeats it, gets the token and uses it. The request is then no
// replay, although Postgres refuses its step.
func TestG11_StalledRequestIsNoReplay(t *testing.T) {
	b := newTestEnv(t)
	var meanwhile func()
	stalls := func(_ context.Context, step grant.Step, take stepFunc) (grant.UpdateResult, error) {
		if meanwhile != nil {
			run := meanwhile
			meanwhile = nil
			run()
		}
		return take(step)
	}
	stalled := *b
	stalled.grants = grant.NewService(&aroundStore{b.store, stalls}, redis.NewGrants(b.rdb), b.codec,
		slog.New(slog.DiscardHandler))
	g, code := b.consent()
	var refresh credential.Secret
	meanwhile = func() {
		issued, err := b.redeemWith(code, b.terms(), someKey)
		if err != nil {
			t.Errorf("repeated exchange: %v", err)
		}
		refresh = b.mustRotate(issued.Refresh)
	}
	_, err := stalled.redeemWith(code, b.terms(), someKey)
	unavailable(t, "stalled exchange", err)
	for range 2 { // the first refresh is not direct
		former := refresh
		meanwhile = func() {
			issued, err := b.rotateWith(former, someKey)
			if err != nil {
				t.Errorf("repeated refresh: %v", err)
			}
			refresh = b.mustRotate(issued.Refresh)
		}
		_, err = stalled.rotateWith(former, someKey)
		unavailable(t, "stalled refresh", err)
		b.wantActive(g.ID)
	}
	b.mustRotate(refresh)
}

// newCrashedStore returns a store that loses each step.
func newCrashedStore(grants grant.GrantStore) *aroundStore {
	return &aroundStore{grants, func(context.Context, grant.Step, stepFunc) (grant.UpdateResult, error) {
		return grant.Updated, nil
	}}
}

// The first request gets a 503 after a repeated request got the token. The step must stay, since a client has the
// token.
func TestG11_UndoLeavesWhatRepetitionGave(t *testing.T) {
	b := newTestEnv(t)
	steps := newRepeatingStore(b.store)
	failing := *b
	failing.grants = grant.NewService(steps, redis.NewGrants(b.rdb), b.codec, slog.New(slog.DiscardHandler))
	for _, committed := range []bool{true, false} {
		g, code := b.consent()
		var first, second credential.Secret
		steps.committed = committed
		steps.repeat = func() {
			issued, err := b.anotherProcess().redeemWith(code, b.terms(), someKey)
			if first = issued.Refresh; err != nil || !issued.Repeated {
				t.Errorf("repeated exchange: %v", err)
			}
		}
		_, err := failing.redeemWith(code, b.terms(), someKey)
		unavailable(t, "first exchange", err)
		b.generation(g, 1)
		b.again("exchange after that", first)(b.redeemWith(code, b.terms(), someKey))
		steps.repeat = func() {
			issued, err := b.anotherProcess().rotateWith(first, someKey)
			if second = issued.Refresh; err != nil || !issued.Repeated {
				t.Errorf("repeated refresh: %v", err)
			}
		}
		_, err = failing.rotateWith(first, someKey)
		unavailable(t, "first refresh", err)
		b.generation(g, 2)
		b.again("refresh after that", second)(b.rotateWith(first, someKey))
		b.mustRotate(second)
		b.wantActive(g.ID)
		_, err = b.rotate(second)
		b.refused("replay", err)
		b.wantRevoked(g.ID, grant.Replayed)
	}
}

// generation checks the generation in Postgres.
func (b *testEnv) generation(g grant.Grant, want uint32) {
	b.Helper()
	if stored := b.state(g.ID); stored.State != grant.Active || stored.Generation != want {
		b.Errorf("Postgres holds %s, generation %d, want active, %d", stored.State, stored.Generation, want)
	}
}

// lateRotations receives calls of Superseded too late.
type lateRotations struct{ grant.RotationStore }

func (lateRotations) Superseded(context.Context, grant.Try, []byte, grant.Grant) (grant.ScriptResult, error) {
	return grant.Late, nil
}

// If Redis receives the call too late, the request is neither repeated nor treated as a replay.
func TestG11_LateCallIsUnavailable(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	b.lost(b.rotateWith(first, someKey))
	late := *b
	rotations := lateRotations{redis.NewGrants(b.rdb)}
	late.grants = grant.NewService(b.store, rotations, b.codec, slog.New(slog.DiscardHandler))
	_, err := late.rotateWith(first, someKey)
	unavailable(t, "with the key", err)
	_, err = late.rotate(first)
	unavailable(t, "without the key", err)
	b.wantActive(g.ID)
}

// A repeatingStore loses the response to a step after a repeated request got its own.
type repeatingStore struct {
	aroundStore
	committed bool // the step is committed before the repeated request
	repeat    func()
}

func newRepeatingStore(grants grant.GrantStore) *repeatingStore {
	s := &repeatingStore{}
	s.aroundStore = aroundStore{grants, func(
		_ context.Context, step grant.Step, take stepFunc,
	) (grant.UpdateResult, error) {
		if s.committed {
			_, _ = take(step)
		}
		if s.repeat != nil {
			s.repeat()
			s.repeat = nil
		}
		return grant.Refused, store.ErrUnavailable
	}}
	return s
}

// All requests with the key got a 503. Afterwards the credential works with another key (G10).
func TestG10_RepeatedStepIsUndoneWhenNoneAnswered(t *testing.T) {
	b := newTestEnv(t)
	stores := []*stalledStore{newStalledStore(b.store), newStalledStore(b.store)}
	processes := make([]*testEnv, 2)
	for i, steps := range stores {
		process := *b
		process.grants = grant.NewService(steps, redis.NewGrants(b.rdb), b.codec, slog.New(slog.DiscardHandler))
		processes[i] = &process
	}
	stall := func(on bool) {
		for _, s := range stores {
			s.stalled.Store(on)
		}
	}
	g, code := b.consent()
	stall(true)
	for _, process := range processes {
		_, err := process.redeemWith(code, b.terms(), someKey)
		unavailable(t, "exchange", err)
	}
	stall(false)
	issued, err := b.redeemWith(code, b.terms(), otherKey)
	if err != nil {
		t.Fatalf("the code does not work: %v", err)
	}
	for _, process := range processes { // until they have undone the exchange
		for {
			if _, err := process.grants.Snapshot(t.Context(), b.app.ID, g.ID); err == nil || t.Context().Err() != nil {
				break
			}
		}
	}
	stall(true)
	for _, process := range processes {
		_, err := process.rotateWith(issued.Refresh, someKey)
		unavailable(t, "refresh", err)
	}
	stall(false)
	if issued, err = b.rotateWith(issued.Refresh, otherKey); err != nil {
		t.Fatalf("the refresh token does not work: %v", err)
	}
	b.mustRotate(issued.Refresh)
	b.wantActive(g.ID)
}

// The stored data does not help to derive the successor of a token.
func TestG6_KeyIsNotStored(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	second := b.lost(b.rotateWith(first, someKey))
	fields, err := b.rdb.HGetAll(t.Context(), b.key(g.ID.String())).Result()
	if err != nil || len(fields) == 0 {
		t.Fatal(err)
	}
	hash := credential.Hash(string(someKey))
	for name, value := range fields {
		if contains(someKey, value) || contains(second, value) || bytes.Contains([]byte(value), hash) {
			t.Errorf("field %s holds a part of the key or token", name)
		}
	}
}
