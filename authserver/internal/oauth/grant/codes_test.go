package grant_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

func TestG1_CodeReuseRevokesGrant(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.consent()
	issued, err := b.redeem(code, b.terms())
	if err != nil || issued.Refresh == "" {
		t.Fatal(err)
	}
	b.wantActive(g.ID)
	_, err = b.redeem(code, b.terms())
	b.refused("second redemption", err)
	b.wantRevoked(g.ID, grant.CodeReused)
	_, err = b.rotate(issued.Refresh)
	b.refused("refresh after reuse", err)
}

// The reused code is read from Postgres before the code is used, and reaches Redis long after.
func TestG1_DelayedReuseRevokesGrant(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.consent()
	token, err := b.grants.Tokens.Read(grant.Code, code.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	before, err := b.grants.Snapshot(t.Context(), b.app.ID, g.Key(), nil)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	refresh := b.mustRotate(issued.Refresh)
	guess := b.terms()
	guess.RedirectURI += "x"
	_, err = b.grants.Exchange(t.Context(), before, grant.Request{Token: token, Terms: guess, LoadKey: noKey})
	b.refused("a guess", err)
	b.wantActive(g.ID)
	_, err = b.grants.Exchange(t.Context(), before, grant.Request{Token: token, Terms: b.terms(), LoadKey: noKey})
	b.refused("a reuse", err)
	b.wantRevoked(g.ID, grant.CodeReused)
	_, err = b.grants.Exchange(t.Context(), before, grant.Request{Token: token, Terms: b.terms(), LoadKey: noKey})
	b.refused("another", err)
	_, err = b.rotate(refresh)
	b.refused("refresh after reuse", err)
}

func TestG1_InvalidReuseChangesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.consent()
	issued, err := b.redeem(code, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	other := b.fixture.Connector(resource, perm.ProgrammesRead)
	for name, change := range map[string]func(*grant.CodeTerms){
		"client":   func(c *grant.CodeTerms) { c.ClientID = other.ID },
		"redirect": func(c *grant.CodeTerms) { c.RedirectURI += "x" },
		"verifier": func(c *grant.CodeTerms) { c.Challenge = "x" },
		"resource": func(c *grant.CodeTerms) { c.Resource += "x" },
	} {
		terms := b.terms()
		change(&terms)
		_, err := b.redeem(code, terms)
		b.refused(name, err)
		b.wantActive(g.ID)
	}
	b.mustRotate(issued.Refresh)
}

func TestRedeem_FifthMismatchRevokesCode(t *testing.T) {
	t.Parallel()
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
			_, err := b.redeem(code, terms)
			b.refused("mismatch", err)
		}
	}
	_, code := b.consent()
	wrong(code, 4)
	for range 6 {
		terms := b.terms()
		terms.ClientID = other.ID
		_, err := b.redeem(code, terms)
		b.refused("another client", err)
	}
	if _, err := b.redeem(code, b.terms()); err != nil {
		t.Errorf("after four mismatches: %v", err)
	}
	_, code = b.consent()
	for range 6 { // a missing verifier is not a guess
		terms := b.terms()
		terms.Challenge = ""
		_, err := b.redeem(code, terms)
		b.refused("no verifier", err)
	}
	if _, err := b.redeem(code, b.terms()); err != nil {
		t.Errorf("after missing verifiers: %v", err)
	}
	g, code := b.consent()
	wrong(code, 5)
	_, err := b.redeem(code, b.terms())
	b.refused("after five", err)
	b.wantRevoked(g.ID, grant.CodeGuessed)
}

func TestOpen_SecondApprovalReplacesCode(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, first := b.consent()
	second, err := b.grants.Open(t.Context(), g, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.redeem(first, b.terms())
	b.refused("replaced code", err)
	if _, err := b.redeem(second, b.terms()); err != nil {
		t.Fatal(err)
	}
	_, err = b.redeem(first, b.terms())
	b.refused("replaced code after redemption", err)
	b.wantActive(g.ID)
	if _, err := b.grants.Open(t.Context(), g, b.terms()); !errors.Is(err, grant.ErrAlreadyUsed) {
		t.Errorf("approval after redemption: %v", err)
	}
	b.wantActive(g.ID)
}

func TestRedeem_CodeExpires(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.consent()
	if err := b.rdb.HSet(t.Context(), "g:{"+g.ID.String()+"}", "cx", time.Now().UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := b.redeem(code, b.terms())
	b.refused("expired code", err)
}

func TestOpen_LastApprovalDeterminesPermissions(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g := b.pending(b.app)
	g.Permissions = perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	if _, err := b.grants.Open(t.Context(), g, b.terms()); err != nil {
		t.Fatal(err)
	}
	g.Permissions = perm.NewSet(perm.ProgrammesRead)
	code, err := b.grants.Open(t.Context(), g, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	issued, err := b.redeem(code, b.terms())
	if err != nil || issued.Grant.Permissions.Scope() != "programmes:read:programmes" {
		t.Errorf("granted %s %v", issued.Grant.Permissions.Scope(), err)
	}
}

func TestG1_ReuseAfterConcurrentApprovalsRevokesGrant(t *testing.T) {
	t.Parallel()
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
			_, err := b.redeem(code, b.terms())
			b.refused("reuse", err)
			b.wantRevoked(g.ID, grant.CodeReused)
		}
		if redeemed != 1 {
			t.Errorf("%d of two codes redeemed", redeemed)
		}
	}
}

// A lock prevents the first redemption from committing while Redis is restored to an older state.
func TestG1_ConfidentialCodeIsRedeemedOnceDespiteRedisRestore(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.app, _ = b.fixture.Confidential(perm.ProgrammesRead)
	g, code := b.consent()
	key := "g:{" + g.ID.String() + "}"
	older, err := b.rdb.Dump(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := b.fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `select from account.grants where id = $1 for update`, g.ID); err != nil {
		t.Fatal(err)
	}
	outcomes := make(chan error, 2)
	// Postgres may take the second step first. Redis then shows the loser a later decision, and its client must retry.
	redeem := func() {
		_, err := b.redeem(code, b.terms())
		for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil {
			_, err = b.redeem(code, b.terms())
		}
		outcomes <- err
	}
	active := func() bool { return b.rdb.HGet(t.Context(), key, "st").Val() == "active" }
	go redeem()
	await.True(t, "Redis activates the grant", active)
	if err := b.rdb.RestoreReplace(t.Context(), key, 0, older).Err(); err != nil {
		t.Fatal(err)
	}
	go redeem()
	await.True(t, "Redis activates the grant", active)
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
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
