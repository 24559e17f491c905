package grant_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestG1_CodeReuseRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	issued := b.mustRedeem(code)
	b.wantActive(g.ID)
	b.refused("second redemption")(b.redeem(code, b.terms()))
	b.wantRevoked(g.ID, grant.CodeReused)
	b.refused("refresh after reuse")(b.rotate(issued.Refresh))
}

// The reused code is read from Postgres before the code is used, and reaches Redis long after.
func TestG1_DelayedReuseRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	token, err := b.grants.Tokens.Read(grant.Code, code.Reveal())
	testkit.Must(t, err)
	before, err := b.grants.Snapshot(t.Context(), b.app.ID, g.Key(), nil)
	testkit.Must(t, err)
	refresh := b.mustRotate(b.mustRedeem(code).Refresh)
	reuse := grant.Request{Token: token, Terms: b.terms(), LoadKey: noKey}
	guess := reuse
	guess.Terms.RedirectURI += "x"
	b.refused("a guess")(b.grants.Exchange(t.Context(), before, guess))
	b.wantActive(g.ID)
	b.refused("a reuse")(b.grants.Exchange(t.Context(), before, reuse))
	b.wantRevoked(g.ID, grant.CodeReused)
	b.refused("another")(b.grants.Exchange(t.Context(), before, reuse))
	b.refused("refresh after reuse")(b.rotate(refresh))
}

func TestG1_InvalidReuseChangesNothing(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	issued := b.mustRedeem(code)
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	for name, change := range map[string]func(*grant.CodeTerms){
		"client":   func(c *grant.CodeTerms) { c.ClientID = other.ID },
		"redirect": func(c *grant.CodeTerms) { c.RedirectURI += "x" },
		"verifier": func(c *grant.CodeTerms) { c.Challenge = "x" },
		"resource": func(c *grant.CodeTerms) { c.Resource += "x" },
	} {
		terms := b.terms()
		change(&terms)
		b.refused(name)(b.redeem(code, terms))
		b.wantActive(g.ID)
	}
	b.mustRotate(issued.Refresh)
}

func TestRedeem_FifthMismatchRevokesCode(t *testing.T) {
	b := newTestEnv(t)
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	wrong := func(code credential.Secret, times int) {
		for i := range times {
			terms := b.terms()
			switch i % 3 {
			case 0:
				terms.RedirectURI += "x"
			case 1:
				terms.Challenge = grant.ChallengeOf("another")
			case 2:
				terms.Resource += "x"
			}
			b.refused("mismatch")(b.redeem(code, terms))
		}
	}
	_, code := b.consent()
	wrong(code, 4)
	for range 6 {
		terms := b.terms()
		terms.ClientID = other.ID
		b.refused("another client")(b.redeem(code, terms))
	}
	b.mustRedeem(code)
	_, code = b.consent()
	for range 6 { // a missing verifier is not a guess
		terms := b.terms()
		terms.Challenge = ""
		b.refused("no verifier")(b.redeem(code, terms))
	}
	b.mustRedeem(code)
	g, code := b.consent()
	wrong(code, 5)
	b.refused("after five")(b.redeem(code, b.terms()))
	b.wantRevoked(g.ID, grant.CodeGuessed)
}

func TestOpen_SecondApprovalReplacesCode(t *testing.T) {
	b := newTestEnv(t)
	g := b.pending(b.app)
	first, second := b.open(both(g)), b.open(g)
	b.refused("replaced code")(b.redeem(first, b.terms()))
	if issued := b.mustRedeem(second); !slices.Equal(issued.Grant.Permissions, g.Permissions) {
		t.Errorf("granted %s, want %s", issued.Grant.Permissions.Scope(), g.Permissions.Scope())
	}
	b.refused("replaced code after redemption")(b.redeem(first, b.terms()))
	b.wantActive(g.ID)
	b.notApproved("approval after redemption", g, grant.ErrAlreadyUsed)
	b.wantActive(g.ID)
}

func TestRedeem_CodeExpires(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	b.setField(g, "cx", time.Now().UnixMilli())
	b.refused("expired code")(b.redeem(code, b.terms()))
}

func TestG1_ReuseAfterConcurrentApprovalsRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	for range 20 {
		g := b.pending(b.app)
		codes := make([]credential.Secret, 2)
		var wg sync.WaitGroup
		for i := range codes {
			wg.Go(func() {
				var err error
				if codes[i], err = b.grants.Open(context.Background(), g, b.terms()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		redeemed := 0
		for _, code := range codes {
			if _, err := b.redeem(code, b.terms()); err != nil {
				continue
			}
			redeemed++
			b.refused("reuse")(b.redeem(code, b.terms()))
			b.wantRevoked(g.ID, grant.CodeReused)
		}
		if redeemed != 1 {
			t.Errorf("%d of two codes redeemed", redeemed)
		}
	}
}

// A lock prevents the first redemption from committing while Redis is restored to an older state.
func TestG1_ConfidentialCodeIsRedeemedOnceDespiteRedisRestore(t *testing.T) {
	b := newTestEnv(t)
	b.app, _ = b.fixture.Confidential(perm.ProgrammesRead)
	g, code := b.consent()
	restore, unlock := b.saved(g), b.lock(g)
	outcomes := make(chan error, 2)
	// Postgres may take the second step first. Redis then shows the loser a later decision, and its client must retry.
	redeem := func() {
		_, err := b.redeem(code, b.terms())
		for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil {
			_, err = b.redeem(code, b.terms())
		}
		outcomes <- err
	}
	active := func() bool { return b.fields(g)["st"] == "active" }
	go redeem()
	await.True(t, "Redis activates the grant", active)
	restore()
	go redeem()
	await.True(t, "Redis activates the grant", active)
	unlock()
	won := 0
	for range 2 {
		if <-outcomes == nil {
			won++
		}
	}
	if won != 1 {
		t.Errorf("%d redemptions", won)
	}
	b.wantRevoked(g.ID, grant.CodeReused)
}
