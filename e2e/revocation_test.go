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
	p, ws := inWorkspace(t)
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

// "a personal access token in token needs no client at all: 200, and its owner gets a mail"
func TestRevocation_PersonalAccessTokenNeedsNoClient(t *testing.T) {
	p, ws := inWorkspace(t)
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, http.StatusOK)
	for range 2 {
		p.API().Form(t, harness.RevokePath, url.Values{"token": {ws.Token}}).Wants(t, http.StatusOK)
	}
	p.In(ws.Workspace, ws.Token).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
}
