package grant_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestG3_SupersededTokenRevokesGrantAndForgedDoesNot(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	refresh := first
	for range 3 {
		refresh = b.mustRotate(refresh)
	}
	forged, _ := newForeignCodec(t).New(grant.Refresh, g.Key(), 1)
	b.refused("forged")(b.rotate(forged))
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	b.refused("another client's")(b.rotateAs(first, other.ID, resource))
	b.wantActive(g.ID)
	b.refused("superseded, with a wrong resource")(b.rotateAs(first, b.app.ID, resource+"x"))
	b.wantRevoked(g.ID, grant.Replayed)
	b.refused("current token of a revoked grant")(b.rotate(refresh))
}

func TestRotate_DetectsReplayBeforeStanding(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.active()
	b.mustRotate(first)
	b.fixture.SetLLM(false)
	b.refused("replay with LLM integration off")(b.rotate(first))
	b.wantRevoked(g.ID, grant.Replayed)
}

func TestG4_NothingSucceedsAtTheEnd(t *testing.T) {
	b := newTestEnv(t)
	g, refresh := b.active()
	b.fixture.Exec(`update account.grants set ends_at = now() where id = $1`, g.ID)
	b.refused("after the end, by Postgres's clock")(b.rotate(refresh))
	g, refresh = b.active()
	b.setField(g, "en", time.Now().UnixMilli())
	b.refused("after the end, by Redis's clock")(b.rotate(refresh))
}

func TestG5_ConfidentialGrantHasNoRefreshToken(t *testing.T) {
	b := newTestEnv(t)
	b.app, _ = b.fixture.Confidential(perm.ProgrammesRead)
	g, refresh := b.active()
	if refresh != "" {
		t.Error("a refresh token was issued")
	}
	forged, _ := b.codec.New(grant.Refresh, g.Key(), 1)
	b.refused("refresh of a confidential grant")(b.rotate(forged))
}

// The stored data does not help to derive the successor of a code or token.
func TestG6_OnlyHashesAreStored(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	first := b.lost(b.redeemWith(code, b.terms(), someKey))
	holdsNone := func(secrets ...credential.Secret) {
		t.Helper()
		fields := b.fields(g)
		if len(fields) == 0 {
			t.Fatal("Redis does not hold the grant")
		}
		hash := string(credential.Hash(string(someKey)))
		for name, value := range fields {
			isPart := func(secret credential.Secret) bool { return contains(secret, value) }
			if slices.ContainsFunc(secrets, isPart) || strings.Contains(value, hash) {
				t.Errorf("field %s holds a part of a token or of the key", name)
			}
		}
	}
	holdsNone(code, first, someKey)
	holdsNone(first, b.lost(b.rotateWith(first, someKey)), someKey)
}

func TestG2_RaceHasOneWinnerAndRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	sibling, others := b.active()
	for range 10 {
		g, refresh := b.active()
		race(t, 16, func() error { _, err := b.rotate(refresh); return err })
		b.wantRevoked(g.ID, grant.Replayed)
		g, code := b.consent()
		race(t, 16, func() error { _, err := b.redeem(code, b.terms()); return err })
		b.wantRevoked(g.ID, grant.CodeReused)
		others = b.mustRotate(others) // another connection of the same client and user
	}
	b.wantActive(sibling.ID)
}
