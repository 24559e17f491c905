package e2e

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract section 3, "A lost answer can be asked for again". e2e/torture loses answers and runs races.

func TestLostResponse_SenderCanRepeatRequest(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	attempt := ws.Connector(t, harness.ReadProgrammes).Begin()
	form := attempt.CodeForm(attempt.Code(t, owner))
	key := harness.NewKey()
	first := attempt.Post(t, form, key)
	again := attempt.Post(t, form, key)
	tokens := wantsAgain(t, first, again)
	key = harness.NewKey()
	first = attempt.Refresh(t, tokens.RefreshToken, key)
	for _, malformed := range []string{"fifteen-letters", "with a space in it"} {
		attempt.Refresh(t, tokens.RefreshToken, malformed).WantsFlat(t, http.StatusBadRequest, "invalid_request")
	}
	next := wantsAgain(t, first, attempt.Refresh(t, tokens.RefreshToken, key))
	attempt.List(t, next).Wants(t, http.StatusOK)
	attempt.Refresh(t, tokens.RefreshToken, harness.NewKey()).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	attempt.WantsRevoked(t, next)
}

func TestLostResponse_ConfidentialAppCanRepeatRequest(t *testing.T) {
	p, ws := inWorkspace(t)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	body := app.Body(app.Code(t, p.Person(t, ws.Owner)))
	api := p.API().With("Idempotency-Key", harness.NewKey())
	first := api.JSON(t, http.MethodPost, harness.TokenPath, body)
	again := api.JSON(t, http.MethodPost, harness.TokenPath, body)
	tokens := wantsAgain(t, first, again)
	app.Exchange(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
}

// wantsAgain checks that the second response has the refresh token of the first and a new access token. It returns the
// second tokens.
func wantsAgain(t *testing.T, first, again harness.Answer) harness.Tokens {
	t.Helper()
	given, repeated := first.Tokens(t), again.Tokens(t)
	if given.RefreshToken != repeated.RefreshToken || given.AccessToken == repeated.AccessToken ||
		first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the response was not given again:\n%s", again)
	}
	return repeated
}
