package grant_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
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

// forget removes the grant from Redis.
func (b *testEnv) forget(g grant.Grant) {
	b.Helper()
	if err := b.rdb.Del(b.Context(), b.key(g.ID.String())).Err(); err != nil {
		b.Fatal(err)
	}
}

func TestG11_RepeatedRequestGetsSameToken(t *testing.T) {
	t.Parallel()
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
	b.age(g, 40*time.Second)
	b.again("refresh, 40 s later", second)(b.rotateWith(first, someKey))
	third := b.mustRotate(second)
	b.wantActive(g.ID)
	_, err := b.rotateWith(second, someKey)
	b.refused("a key for a request without one", err)
	b.wantRevoked(g.ID, grant.Replayed)
	_, err = b.rotate(third)
	b.refused("after the replay", err)
}

func TestG11_ConfidentialExchangeIsRepeated(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	b := newTestEnv(t)
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	byClient := grant.Sender{Proof: grant.ProofByClient(string(someKey), nil)}
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
			_, err := b.rotateBy(first, b.app.ID, atResource, byClient)
			return err
		}},
		"another resource": {nil, func(first credential.Secret) error {
			_, err := b.rotateBy(first, b.app.ID, refreshTerms{Resource: resource + "/"}, sender(someKey))
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
			func(g grant.Grant, _ credential.Secret) { b.forget(g) },
			func(first credential.Secret) error { _, err := b.rotateWith(first, someKey); return err },
		},
		"Redis was repaired": {
			func(g grant.Grant, _ credential.Secret) {
				b.forget(g)
				if err := redis.NewGrants(b.rdb).Repair(t.Context(), b.state(g.ID)); err != nil {
					t.Fatal(err)
				}
			},
			func(first credential.Secret) error { _, err := b.rotateWith(first, someKey); return err },
		},
	} {
		g, first := b.active()
		second := b.lost(b.rotateWith(first, someKey))
		_, err := b.rotateBy(first, other.ID, atResource, sender(someKey))
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
	t.Parallel()
	b := newTestEnv(t)
	for name, c := range map[string]struct {
		before func(g grant.Grant, refresh credential.Secret)
		key    credential.Secret
	}{
		"no key":                {nil, ""},
		"another key":           {nil, otherKey},
		"60 s later":            {func(g grant.Grant, _ credential.Secret) { b.age(g, time.Minute) }, someKey},
		"refreshed":             {func(_ grant.Grant, r credential.Secret) { b.mustRotate(r) }, someKey},
		"Redis lost its memory": {func(g grant.Grant, _ credential.Secret) { b.forget(g) }, someKey},
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
		process.grants = process.service(b.store)
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

// The stored data does not help to derive the successor of a token.
func TestG6_KeyIsNotStored(t *testing.T) {
	t.Parallel()
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
