package torture

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A baseline is one credential of every kind and state, made before a store fails. After the failure no revoked or used
// credential may work again, and no current one may be lost.
type baseline struct {
	site
	redeemed      harness.Attempt // its code is used
	redeemedForm  string
	ofRedeemed    harness.Tokens
	waiting       harness.Attempt // its code is unused
	waitingCode   string
	honest        harness.Tokens // current
	old, replayed harness.Tokens // superseded, and its successor
	revoked       harness.Tokens
	long          harness.Tokens // of a confidential application
}

// newBaseline creates all credentials and calls middle in between. A copy of a store that is made in middle knows every
// grant, but none in its final state.
func newBaseline(t *testing.T, s site, middle func()) *baseline {
	t.Helper()
	connector, app := s.connector, s.app
	d := &baseline{site: s, redeemed: connector.Begin(), waiting: connector.Begin()}
	d.redeemedForm = d.redeemed.Code(t, d.owner)
	d.honest = connector.Connect(t, d.owner)
	d.old = connector.Connect(t, d.owner)
	d.revoked = connector.Connect(t, d.owner)
	d.long = app.Connect(t, d.owner)
	middle()
	d.ofRedeemed = d.redeemed.Post(t, d.redeemed.CodeForm(d.redeemedForm)).Tokens(t)
	d.waitingCode = d.waiting.Code(t, d.owner)
	d.honest = connector.Refresh(t, d.honest.RefreshToken).Tokens(t)
	d.replayed = connector.Refresh(t, d.old.RefreshToken).Tokens(t)
	connector.Revoke(t, d.revoked.RefreshToken).Wants(t, http.StatusOK)
	return d
}

// wantsUnaffected checks the credentials that work without Redis: personal access tokens, confidential tokens and
// access tokens.
func (d *baseline) wantsUnaffected(t *testing.T) {
	t.Helper()
	for _, token := range []string{d.Token, d.long.AccessToken, d.honest.AccessToken} {
		d.In(d.Workspace, token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
	}
}

// wantsUnavailable checks that requests that need the failing store get 503 and no client error. It sends others at the
// same time, because each waits for the store, and returns their responses.
func (d *baseline) wantsUnavailable(t *testing.T, others ...func() harness.Answer) []harness.Answer {
	t.Helper()
	requests := append(others, func() harness.Answer { return d.connector.Refresh(t, d.honest.RefreshToken) },
		func() harness.Answer { return d.waiting.Post(t, d.waiting.CodeForm(d.waitingCode)) })
	answers := harness.Concurrently(len(requests), func(i int) harness.Answer { return requests[i]() })
	for _, answer := range answers[len(others):] {
		answer.WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		answer.WantsRetryAfter(t)
	}
	return answers[:len(others)]
}

// wantsKept checks the table at the end of the grant store's description.
func (d *baseline) wantsKept(t *testing.T) {
	t.Helper()
	d.wantsUnaffected(t)
	d.honest = d.connector.WantsWorking(t, d.honest)
	d.connector.WantsWorking(t, d.honest)
	d.connector.WantsRevoked(t, d.revoked)
	d.connector.Refresh(t, d.old.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	d.connector.WantsRevoked(t, d.replayed)
	d.redeemed.Post(t, d.redeemed.CodeForm(d.redeemedForm)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	d.connector.WantsRevoked(t, d.ofRedeemed)
	d.connector.WantsRevoked(t, d.revoked)
}

// wantsCode checks that the unused code still works. Only a store that has lost its data may refuse it.
func (d *baseline) wantsCode(t *testing.T) {
	t.Helper()
	d.connector.WantsWorking(t, d.waiting.Post(t, d.waiting.CodeForm(d.waitingCode)).Tokens(t))
}
