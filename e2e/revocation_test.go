package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 5: POST /oauth/revoke (RFC 7009).

func TestRevocation_RevokesGrant(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	for name, choose := range map[string]func(old, current harness.Tokens) string{
		"refresh token":            func(_, current harness.Tokens) string { return current.RefreshToken },
		"superseded refresh token": func(old, _ harness.Tokens) string { return old.RefreshToken },
		"access token":             func(_, current harness.Tokens) string { return current.AccessToken },
		"earlier access token":     func(old, _ harness.Tokens) string { return old.AccessToken },
	} {
		t.Run(name, func(t *testing.T) {
			sibling, old := connector.Connect(t, owner), connector.Connect(t, owner)
			current := connector.Refresh(t, old.RefreshToken).Tokens(t)
			for range 2 { // the second time the token is unknown or its grant has ended: 200 too
				answer := connector.Revoke(t, choose(old, current)).Wants(t, http.StatusOK)
				if string(answer.Body) != "{}\n" {
					t.Errorf("unexpected body:\n%s", answer)
				}
			}
			connector.WantsRevoked(t, current, old)
			beforeSignature := strings.LastIndex(old.AccessToken, ".") + 1
			other := old.AccessToken[:beforeSignature] + otherForm(t, old.AccessToken[beforeSignature:])
			p.In(ws.Workspace, other).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
			connector.WantsWorking(t, sibling)
		})
	}
	t.Run("confidential", func(t *testing.T) {
		long := app.Connect(t, owner)
		app.Revoke(t, long.AccessToken).Wants(t, http.StatusOK)
		p.In(ws.Workspace, long.AccessToken).Get(t, programmes).
			WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	})
}

func TestRevocation_OtherClientsTokenHasNoEffect(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	connector, other := ws.Connector(t, harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	tokens, long := connector.Connect(t, owner), app.Connect(t, owner)
	unknown := misspellings(tokens.RefreshToken)
	delete(unknown, "empty") // a missing parameter
	unknown["nonsense"], unknown["forged JWT"] = "nonsense", alterLast(tokens.AccessToken)
	for name, token := range unknown {
		t.Run("unknown: "+name, func(t *testing.T) { connector.Revoke(t, token).Wants(t, http.StatusOK) })
	}
	for _, token := range []string{tokens.RefreshToken, tokens.AccessToken, long.AccessToken} {
		other.Revoke(t, token).Wants(t, http.StatusOK)
	}
	app.Revoke(t, tokens.AccessToken).Wants(t, http.StatusOK)
	p.In(ws.Workspace, long.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	connector.WantsWorking(t, tokens)
}

// "a personal access token in token needs no client at all: 200, and its owner gets a mail"
func TestRevocation_PersonalAccessTokenNeedsNoClient(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, http.StatusOK)
	for range 2 {
		p.API().Form(t, harness.RevokePath, url.Values{"token": {ws.Token}}).Wants(t, http.StatusOK)
	}
	p.In(ws.Workspace, ws.Token).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
}

func TestRevocation_NeedsClient(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	app, connector := ws.Confidential(t, "", harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)
	basic := ws.Confidential(t, "client_secret_basic", harness.ReadProgrammes)
	long, tokens := app.Connect(t, owner), connector.Connect(t, owner)
	wrong := app
	wrong.ClientSecret = alterLast(app.ClientSecret)
	wrong.Revoke(t, long.AccessToken).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	form := func(values url.Values) harness.Answer { return p.API().Form(t, harness.RevokePath, values) }
	form(url.Values{"client_id": {app.ClientID}, "token": {long.AccessToken}}).
		WantsFlat(t, http.StatusBadRequest, "invalid_request", "invalid_client")
	form(url.Values{"token": {tokens.RefreshToken}}).WantsFlat(t, http.StatusBadRequest, "invalid_request")
	form(url.Values{"client_id": {connector.ClientID}}).WantsFlat(t, http.StatusBadRequest, "invalid_request")
	form(url.Values{"client_id": {connector.ClientID}, "token": {"a", "b"}}).
		WantsFlat(t, http.StatusBadRequest, "invalid_request")
	answer := p.API().With("Authorization", harness.Basic(basic.ClientID, alterLast(basic.ClientSecret))).
		Form(t, harness.RevokePath, url.Values{"token": {"x"}})
	answer.WantsFlat(t, http.StatusUnauthorized, "invalid_client")
	p.API().With("Authorization", harness.Basic(basic.ClientID, basic.ClientSecret)).
		Form(t, harness.RevokePath, url.Values{"token": {"x"}}).
		Wants(t, http.StatusOK)
	p.In(ws.Workspace, long.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	form(
		url.Values{
			"client_id":       {connector.ClientID},
			"token":           {tokens.RefreshToken},
			"token_type_hint": {"access_token"},
		},
	).Wants(t, http.StatusOK)
	connector.WantsRevoked(t, tokens)
}

// In either order, nothing of the grant works after the revocation's response.
func TestRevocation_WinsOverConcurrentRefresh(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
	for range 20 {
		tokens := connector.Connect(t, owner)
		refreshed := make(chan harness.Answer, 1)
		go func() { refreshed <- connector.Refresh(t, tokens.RefreshToken) }()
		connector.Revoke(t, tokens.AccessToken).Wants(t, http.StatusOK)
		if answer := <-refreshed; answer.Status == http.StatusOK {
			connector.WantsRevoked(t, answer.Tokens(t))
		} else {
			answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		}
		connector.WantsRevoked(t, tokens)
	}
}
