package attack

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Codes and refresh tokens in the wrong hands: used by another client, in another user's attempt or for another
// resource, or spliced from parts of valid ones.

func TestCode_IsBoundToClientAndAttempt(t *testing.T) {
	p := newProduct(t)
	ws, evil := p.NewWorkspace(t), p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	sibling := ws.Connector(t, harness.ReadProgrammes)
	theirs := evil.Connector(t, harness.ReadProgrammes)
	theirApp := evil.Confidential(t, "", harness.ReadProgrammes)
	mcp := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)

	victim, attacker := connector.Begin(), connector.Begin()
	code := victim.Code(t, owner)
	for name, other := range map[string]harness.Connector{
		"a sibling":            sibling,
		"another workspace's":  theirs,
		"the other resource's": mcp,
	} {
		form := victim.CodeForm(code)
		form.Set("client_id", other.ClientID)
		form.Set("resource", other.Resource)
		gets(t, connector.Post(t, form), name+" client exchanged the code", http.StatusBadRequest)
	}
	for _, other := range []harness.ConfidentialApp{app, theirApp} {
		other.Exchange(t, other.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	// Code injection: the victim's code in the attacker's attempt, with the attacker's verifier.
	connector.Post(t, copied(victim.CodeForm(code), "code_verifier", attacker.Verifier)).
		WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	tokens := victim.Post(t, victim.CodeForm(code)).Tokens(t)

	for name, other := range map[string]harness.Connector{
		"a sibling":            sibling,
		"another workspace's":  theirs,
		"the other resource's": mcp,
	} {
		gets(t, other.Refresh(t, tokens.RefreshToken), name+" client refreshed", http.StatusBadRequest)
		other.Revoke(t, tokens.RefreshToken).Wants(t, http.StatusOK)
	}
	connector.WantsWorking(t, tokens)
}

// TestTokens_SplicedTokenIsRefused checks that the whole token is authenticated: a token spliced from valid ones
// is refused.
func TestTokens_SplicedTokenIsRefused(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	first, second := connector.Connect(t, owner), connector.Connect(t, owner)
	// first's token is superseded now: its replay would revoke the grant.
	next := connector.Refresh(t, first.RefreshToken).Tokens(t)
	attempt := connector.Begin()
	code := attempt.Code(t, owner)
	body := func(token string) string { return token[len("alm_rt_"):] }
	halves := func(a, b string) []string {
		var out []string
		for at := 4; at < len(a); at += 6 {
			out = append(out, a[:at]+b[at:])
		}
		return out
	}
	var forged []string
	for _, pair := range [][2]string{
		{first.RefreshToken, second.RefreshToken},
		{next.RefreshToken, second.RefreshToken},
		{first.RefreshToken, next.RefreshToken},
		{"alm_rt_" + body(code), second.RefreshToken},
	} {
		forged = append(forged, halves(pair[0], pair[1])...)
	}
	forged = append(forged, "alm_rt_"+body(code), body(next.RefreshToken), "ory_rt_"+body(next.RefreshToken),
		strings.ToLower(next.RefreshToken), next.RefreshToken+".", next.RefreshToken+"\n")
	good := map[string]bool{first.RefreshToken: true, second.RefreshToken: true, next.RefreshToken: true}
	for _, token := range forged {
		if !good[token] {
			connector.Refresh(t, token).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			connector.Revoke(t, token).Wants(t, http.StatusOK)
		}
	}
	for _, wrong := range []string{"alm_ac_" + body(next.RefreshToken), "alm_ac_" + body(first.RefreshToken)} {
		attempt.Post(t, attempt.CodeForm(wrong)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	// No forged token harmed a grant or the code.
	connector.WantsWorking(t, next)
	connector.WantsWorking(t, second)
	attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
}

// TestAuthorize_EveryResponseCarriesIssuer checks against mix-up (RFC 9207): every authorization response names its
// issuer, errors and refusals included, and the metadata says so.
func TestAuthorize_EveryResponseCarriesIssuer(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	callbacks := map[string]harness.Callback{
		"approved": owner.Consent(t, connector.Begin().Query).Press(t, "approve").Callback(t),
		"denied":   owner.Consent(t, connector.Begin().Query).Press(t, "deny").Callback(t),
	}
	for name, query := range map[string]url.Values{
		"no challenge": copied(connector.Begin().Query, "code_challenge", "-"),
		"bad scope":    copied(connector.Begin().Query, "scope", "x"),
		"no state":     copied(connector.Begin().Query, "state", "-"),
		"an iss of one's own": copied(copied(connector.Begin().Query, "iss", "https://evil.example"), "response_type",
			"token"),
	} {
		callbacks[name] = owner.Open(t, p.AuthorizeURL(query)).Callback(t)
	}
	for name, callback := range callbacks {
		if iss := callback.Values["iss"]; len(iss) != 1 || iss[0] != p.BaseURL {
			t.Errorf("%s: iss is %v", name, iss)
		}
	}
	metadata := p.API().Get(t, "/.well-known/oauth-authorization-server").Object(t)
	if metadata["authorization_response_iss_parameter_supported"] != true || metadata["issuer"] != p.BaseURL {
		t.Error("the metadata does not announce the iss parameter")
	}
}
