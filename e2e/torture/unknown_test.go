package torture

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// These are parts of the statements at which a connection is cut.
const (
	ofActivation = "set state = 'active', generation = step"
	ofAdvance    = "set generation = step"
	ofRevocation = "set state = 'revoked'"
	ofConsent    = "commit"
	always       = 1 << 20

	consentsTried = 5 // until the cut hits the consent
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
	s.wantsNormalSoon(t)
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
