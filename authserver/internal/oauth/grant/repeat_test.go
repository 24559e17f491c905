package grant_test

import (
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
	"github.com/almonerhq/almoner/shared/devkit/testkit"
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

// age makes the last decision about the grant older.
func (b *testEnv) age(g grant.Grant, by time.Duration) {
	b.Helper()
	testkit.Must(b, b.rdb.HIncrBy(b.Context(), keyOf(g), "at", -by.Milliseconds()).Err())
}

func (b *testEnv) aMinuteLater(g grant.Grant, _ credential.Secret) { b.Helper(); b.age(g, time.Minute) }

// forget removes the grant from Redis.
func (b *testEnv) forget(g grant.Grant, _ credential.Secret) {
	b.Helper()
	testkit.Must(b, b.rdb.Del(b.Context(), keyOf(g)).Err())
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
	b.age(g, 40*time.Second)
	b.again("refresh, 40 s later", second)(b.rotateWith(first, someKey))
	third := b.mustRotate(second)
	b.wantActive(g.ID)
	b.refused("a key for a request without one")(b.rotateWith(second, someKey))
	b.wantRevoked(g.ID, grant.Replayed)
	b.refused("after the replay")(b.rotate(third))
}

func TestG11_ConfidentialExchangeIsRepeated(t *testing.T) {
	b := newTestEnv(t)
	b.app, _ = b.fixture.Confidential(perm.ProgrammesRead)
	g, code := b.consent()
	b.lost(b.redeemWith(code, b.terms(), someKey))
	b.again("exchange", "")(b.redeemWith(code, b.terms(), someKey))
	b.wantActive(g.ID)
	b.refused("another key")(b.redeemWith(code, b.terms(), otherKey))
	b.wantRevoked(g.ID, grant.CodeReused)
	b.refused("after the reuse")(b.redeemWith(code, b.terms(), someKey))
}

// If the second request differs from the first, it is a replay and revokes the grant.
func TestG11_OtherSenderEndsGrant(t *testing.T) {
	b := newTestEnv(t)
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	byClient := grant.Sender{Proof: grant.ProofByClient(string(someKey), nil)}
	for name, c := range map[string]struct {
		before func(g grant.Grant, second credential.Secret)
		terms  refreshTerms
		sender grant.Sender
	}{
		"no key":                    {nil, atResource, grant.Sender{}},
		"another key":               {nil, atResource, sender(otherKey)},
		"a client's name for a key": {nil, atResource, byClient},
		"another resource":          {nil, refreshTerms{Resource: resource + "/"}, sender(someKey)},
		"60 s later":                {b.aMinuteLater, atResource, sender(someKey)},
		"successor used": {
			func(_ grant.Grant, second credential.Secret) { b.mustRotate(second) }, atResource, sender(someKey),
		},
		"Redis lost its memory": {b.forget, atResource, sender(someKey)},
		"Redis was repaired": {func(g grant.Grant, second credential.Secret) {
			b.forget(g, second)
			testkit.Must(t, redis.NewGrants(b.rdb).Repair(t.Context(), b.state(g.ID)))
		}, atResource, sender(someKey)},
	} {
		g, first := b.active()
		second := b.lost(b.rotateWith(first, someKey))
		b.refused("another client")(b.rotateBy(first, other.ID, atResource, sender(someKey)))
		b.wantActive(g.ID)
		if c.before != nil {
			c.before(g, second)
		}
		b.refused(name)(b.rotateBy(first, b.app.ID, c.terms, c.sender))
		b.wantRevoked(g.ID, grant.Replayed)
		b.refused(name + ": the successor")(b.rotate(second))
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
		"60 s later":            {b.aMinuteLater, someKey},
		"refreshed":             {func(_ grant.Grant, r credential.Secret) { b.mustRotate(r) }, someKey},
		"Redis lost its memory": {b.forget, someKey},
	} {
		g, code := b.consent()
		refresh := b.lost(b.redeemWith(code, b.terms(), someKey))
		wrong := b.terms()
		wrong.RedirectURI += "x"
		b.refused("another redirect URI")(b.redeemWith(code, wrong, someKey))
		wrong = b.terms()
		wrong.Challenge = "x"
		b.refused("another verifier")(b.redeemWith(code, wrong, someKey))
		b.wantActive(g.ID)
		if c.before != nil {
			c.before(g, refresh)
		}
		b.refused(name)(b.redeemWith(code, b.terms(), c.key))
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
	if refusal, _ := errors.AsType[*grant.Refusal](err); refusal == nil || refusal.Block != grant.LLMOff {
		t.Errorf("%v", err)
	}
	b.refused("exchange, LLM integration off")(b.redeemWith(code, b.terms(), someKey))
	b.wantActive(g.ID)
	b.fixture.SetLLM(true)
	b.again("refresh", second)(b.rotateWith(first, someKey))
	b.again("exchange", exchanged)(b.redeemWith(code, b.terms(), someKey))
	testkit.Must(t, b.grants.Revoke(t.Context(), b.state(g.ID), grant.ByUser, "user:x"))
	b.refused("revoked")(b.rotateWith(first, someKey))
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
	var processes [2]*testEnv
	for i, order := range []seal.Keys{seal.NewKeys(keys[0], keys[1]), seal.NewKeys(keys[1], keys[0])} {
		codec, err := grant.NewTokenCodec(order)
		testkit.Must(t, err)
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
