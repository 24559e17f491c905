package torture

import (
	"net/http"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The Postgres suites: while it is slow or blocked, or its responses are lost, callers get 503, and soon afterwards
// everything works again without intervention. Nothing is half done: a grant continues with its client's token.

// A postgresStage is a product of two processes that connect to Postgres through a relay.
type postgresStage struct {
	site
	relay *Relay
}

// storesStack is shared by the tests that stop its stores or hold what requests need.
var (
	storesRelay = &Relay{}
	storesStack = newTurnstile(behind(storesRelay))
)

// behind returns the options of a stack of two processes that connect to Postgres through a relay.
func behind(relay *Relay) harness.Options {
	return harness.Options{Authservers: 2, Between: relay.Detour, StopsStores: true}
}

func newPostgresStage(t *testing.T) *postgresStage {
	t.Helper()
	relay, stacks := storesRelay, storesStack
	if harness.Long() {
		relay = &Relay{}
		stacks = newTurnstile(behind(relay))
	}
	running := stacks.enter(t)
	t.Cleanup(relay.reset)
	return &postgresStage{newSite(t, running), relay}
}

// slowdown is shorter than the time after which package pg treats Postgres as silent.
const slowdown = 150 * time.Millisecond

func TestPostgres_SlowQueriesStillSucceed(t *testing.T) {
	t.Parallel()
	times := harness.Rounds(1, 100)
	harness.Record(t, "Postgres %d times %s slower at every query", times, slowdown)
	s := newPostgresStage(t)
	for range times {
		d := newBaseline(t, s.site, func() {})
		s.during(t, func() {
			s.relay.Slow(slowdown)
			d.wantsUnaffected(t)
			d.honest = d.connector.WantsWorking(t, d.honest)
			s.relay.Slow(0)
			s.waitForCalm(t)
		})
		d.wantsCode(t)
		d.wantsKept(t)
	}
}

const (
	heldGrants = 40              // more than the connections of two processes
	promptly   = 8 * time.Second // the longest allowed response time
)

// TestPostgres_PoolExhaustionLosesNoToken locks the rows of grants whose clients refresh, until every connection of
// authserver waits. Its callers get 503 in time, the API works, and afterwards each client still has its token: Redis
// has undone what Postgres certainly did not commit.
func TestPostgres_PoolExhaustionLosesNoToken(t *testing.T) {
	parallelIfShort(t)
	times := harness.Rounds(1, 100)
	harness.Record(t, "%d times the rows of %d grants held while their clients refresh", times, heldGrants)
	s := newPostgresStage(t)
	held := make([]harness.Tokens, heldGrants)
	for i := range held {
		held[i] = s.connector.Connect(t, s.owner)
	}
	for range times {
		release := s.Database.Hold(t, `select id from account.grants where tenant_id = $1 for update`, s.Workspace.ID)
		answers := harness.Concurrently(heldGrants+2, func(racer int) harness.Answer {
			began := time.Now()
			defer func() {
				if took := time.Since(began); took > atMost(promptly) {
					t.Errorf("got a response after %s", took)
				}
			}()
			switch racer {
			case heldGrants:
				time.Sleep(time.Second) // all others wait by now
				return s.As(s.Token).Get(t, s.Clients())
			case heldGrants + 1:
				time.Sleep(time.Second)
				return s.list(t).Wants(t, http.StatusOK)
			}
			return s.connector.Refresh(t, held[racer].RefreshToken)
		})
		release()
		for _, answer := range answers[:heldGrants] {
			answer.WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		}
		if other := answers[heldGrants]; other.Status != http.StatusOK {
			other.WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		}
		s.waitForCalm(t)
		for i := range held {
			held[i] = s.connector.WantsWorking(t, held[i])
		}
	}
}

// These are parts of the statements at which a connection is cut.
const (
	ofActivation = "set state = 'active', generation = step"
	ofAdvance    = "set generation = step"
	ofRevocation = "set state = 'revoked'"
	ofConsent    = "commit"
	always       = 1 << 20

	consentsTried = 30 // until the cut hits the consent, and not another commit of the service
)

// TestPostgres_UnknownOutcomeIsResolved breaks a connection to Postgres after a statement was sent and before its
// response, so it is unknown whether the statement was committed.
func TestPostgres_UnknownOutcomeIsResolved(t *testing.T) {
	t.Parallel()
	times := harness.Rounds(1, 100)
	harness.Record(t,
		"%d times each the connection cut before and after Postgres ran: activation, advance, revocation, consent",
		times)
	s := newPostgresStage(t)
	for _, done := range []bool{false, true} {
		for range times {
			s.asksAgain(t, done)
			s.asksAgainTogether(t, done)
			s.givesUp(t, done)
			s.revokesUnknowing(t, done)
			s.consentsUnknowing(t, done)
		}
	}
}

// wantsCut checks that a connection was cut.
func (s *postgresStage) wantsCut(t *testing.T, at string) {
	t.Helper()
	if s.relay.Made() == 0 {
		t.Fatalf("no connection was cut at %q", at)
	}
}

// asksAgain checks that one lost response is retried within the request, without effect for the client.
func (s *postgresStage) asksAgain(t *testing.T, done bool) {
	t.Helper()
	attempt := s.connector.Begin()
	form := attempt.CodeForm(attempt.Code(t, s.owner))
	s.relay.CutAt(Cut{At: ofActivation, Done: done, Times: 1})
	tokens := attempt.Post(t, form).Tokens(t)
	s.wantsCut(t, ofActivation)
	s.relay.CutAt(Cut{At: ofAdvance, Done: done, Times: 1})
	next := s.connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	s.wantsCut(t, ofAdvance)
	s.connector.WantsWorking(t, next)
	s.connector.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	s.connector.WantsRevoked(t, next)
}

const atOnce = 6 // more than run singly: the rest go in one statement

// asksAgainTogether loses the response to an update of several grants.
func (s *postgresStage) asksAgainTogether(t *testing.T, done bool) {
	t.Helper()
	tokens := make([]harness.Tokens, atOnce)
	for i := range tokens {
		tokens[i] = s.connector.Connect(t, s.owner)
	}
	s.relay.CutAt(Cut{At: ofAdvance, Done: done, Times: 2})
	answers := harness.Concurrently(atOnce,
		func(i int) harness.Answer { return s.connector.Refresh(t, tokens[i].RefreshToken) })
	s.wantsCut(t, ofAdvance)
	for i, answer := range answers {
		s.connector.WantsWorking(t, answer.Tokens(t))
		s.connector.Refresh(t, tokens[i].RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
}

// givesUp checks that without any response the request gets 503 and the decision is undone: the next presentation
// succeeds.
func (s *postgresStage) givesUp(t *testing.T, done bool) {
	t.Helper()
	tokens := s.connector.Connect(t, s.owner)
	s.relay.CutAt(Cut{At: ofAdvance, Done: done, Times: always})
	answer := s.connector.Refresh(t, tokens.RefreshToken)
	s.wantsCut(t, ofAdvance)
	answer.WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
	s.waitForCalm(t)
	next := s.connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	s.connector.WantsWorking(t, next)
	s.connector.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	s.connector.WantsRevoked(t, next)
}

// revokesUnknowing repeats a revocation that was not acknowledged. An acknowledged one holds.
func (s *postgresStage) revokesUnknowing(t *testing.T, done bool) {
	t.Helper()
	tokens := s.connector.Connect(t, s.owner)
	s.relay.CutAt(Cut{At: ofRevocation, Done: done, Times: 1})
	answer := s.connector.Revoke(t, tokens.RefreshToken)
	s.wantsCut(t, ofRevocation)
	if answer.Status != http.StatusOK {
		answer.WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		s.connector.Revoke(t, tokens.RefreshToken).Wants(t, http.StatusOK)
	}
	s.connector.WantsRevoked(t, tokens)
}

// consentsUnknowing approves again on the page that is still open: both approvals make one grant.
func (s *postgresStage) consentsUnknowing(t *testing.T, done bool) {
	t.Helper()
	var before int
	var attempt harness.Attempt
	var page, refused harness.Page
	for range consentsTried {
		before, attempt = s.grants(t), s.connector.Begin()
		page = s.owner.Consent(t, attempt.Query)
		s.relay.CutAt(Cut{At: ofConsent, Done: done, Times: 1})
		var err error
		if refused, err = trySubmit(t, s.owner, page.DecisionForm(t, "approve")); err != nil {
			t.Fatal(err)
		}
		s.wantsCut(t, ofConsent)
		if refused.Status != http.StatusSeeOther { // otherwise the cut hit another commit
			break
		}
	}
	if refused.Status != http.StatusServiceUnavailable {
		t.Fatalf("a consent with an unknown outcome:\n%s", refused)
	}
	refused.WantsRetryAfter(t)
	s.connector.WantsWorking(t, attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t))
	if made := s.grants(t) - before; made != 1 {
		t.Errorf("%d grants of one consent", made)
	}
}

func (s *postgresStage) grants(t *testing.T) int {
	t.Helper()
	return s.Database.Count(t, `select count(*) from account.grants where client_id = $1`, s.connector.ClientID)
}
