package e2e

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 3 and 4.3, contract section 3: a code is valid for 60 seconds and for one exchange.

func TestCode_SecondExchangeRevokesGrant(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	api := func(token string) harness.Answer { return p.In(ws.Workspace, token).Get(t, programmes) }
	t.Run("confidential", func(t *testing.T) {
		app := ws.Confidential(t, "", harness.ReadProgrammes)
		code := app.Code(t, owner)
		tokens := app.Exchange(t, app.Body(code)).Tokens(t)
		api(tokens.AccessToken).Wants(t, http.StatusOK)
		app.Exchange(t, app.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		api(tokens.AccessToken).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		app.Exchange(t, app.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	})
	t.Run("connector, after refreshes", func(t *testing.T) {
		attempt := ws.Connector(t, harness.ReadProgrammes).Begin()
		code := attempt.Code(t, owner)
		tokens := attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
		later := attempt.Refresh(t, tokens.RefreshToken).Tokens(t)
		attempt.Post(t, attempt.CodeForm(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		for _, token := range []string{tokens.AccessToken, later.AccessToken} {
			api(token).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		}
		attempt.Refresh(t, later.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	})
}

// "another client, or a wrong secret, does not count"
func TestCode_OtherClientsErrorsDoNotBurnCode(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	stranger := ws.Confidential(t, "", harness.ReadProgrammes)
	code := app.Code(t, owner)
	for range 6 {
		stranger.Exchange(t, stranger.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		body := app.Body(code)
		body["client_secret"], body["redirect_uri"] = alterLast(app.ClientSecret), "https://evil.example/"
		app.Exchange(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	}
	app.Exchange(t, app.Body(code)).Tokens(t)

	connector, other := ws.Connector(t, harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)
	attempt := connector.Begin()
	code = attempt.Code(t, owner)
	for range 6 {
		other.Post(t, change(attempt.CodeForm(code), "client_id", other.ClientID)).
			WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
}
