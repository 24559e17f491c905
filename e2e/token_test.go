package e2e

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v2/jwk"
	"github.com/lestrrat-go/jwx/v2/jws"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 3 and 5, contract sections 2 and 6: where each kind of credential is accepted and where it is not.

// Contract, section 2: the format of credentials and the claims of an access token.
func TestCredentials_HaveContractFormat(t *testing.T) {
	p := inParallel(t)
	app, owner := p.DemoConfidential(), p.Person(t, p.Demo.Users.Owner)
	attempt := p.DemoConnector().Begin()
	code := attempt.Code(t, owner)
	short := attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
	long := app.Connect(t, owner)
	for name, c := range map[string]struct{ text, pattern string }{
		"personal access token": {p.Demo.Tokens.Owner, `^alm_pat_[0-9A-Za-z]{30,}[0-9A-Za-z]{6}$`},
		"client secret":         {app.ClientSecret, `^alm_cs_[0-9A-Za-z]{43,}[0-9A-Za-z]{6}$`},
		"code":                  {code, `^alm_ac_[0-9A-Za-z_-]{43,}$`},
		"refresh token":         {short.RefreshToken, `^alm_rt_[0-9A-Za-z_-]{43,}$`},
	} {
		if !regexp.MustCompile(c.pattern).MatchString(c.text) {
			t.Errorf("a %s of %d characters does not match %s", name, len(c.text), c.pattern)
		}
	}
	keys, err := jwk.Parse(p.API().Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK).Body)
	must(t, err)
	for client, tokens := range map[string]harness.Tokens{app.ClientID: long, attempt.ClientID: short} {
		token := harness.Decode(t, tokens.AccessToken)
		if token.Header["typ"] != "at+jwt" || token.Header["alg"] != "ES256" {
			t.Errorf("typ %v, alg %v", token.Header["typ"], token.Header["alg"])
		}
		for name, want := range map[string]any{
			"iss": p.BaseURL, "sub": p.Demo.Users.Owner.ID, "aud": p.BaseURL + "/v1", "client_id": client,
			"scope": tokens.Scope, "tenant_id": p.Demo.Workspaces.Main.ID,
		} {
			if token.Claims[name] != want {
				t.Errorf("claim %s is %v, want %v", name, token.Claims[name], want)
			}
		}
		for _, name := range []string{"exp", "iat", "jti", "grant_id"} {
			if token.Claims[name] == nil {
				t.Errorf("claim %s is missing", name)
			}
		}
		if len(token.Claims) != 10 {
			t.Errorf("%d claims, want the ten of the contract", len(token.Claims))
		}
		if _, err := jws.Verify([]byte(tokens.AccessToken), jws.WithKeySet(keys)); err != nil {
			t.Error("no key of JWKS with the token's kid verifies the signature")
		}
	}
	if long.Scope != harness.ReadProgrammes || short.Scope != attempt.Scope {
		t.Errorf("the scopes are %q and %q", long.Scope, short.Scope)
	}
}

// wantsBearerRejected checks that both services reject a bearer token, each with its own error.
func wantsBearerRejected(t *testing.T, p *harness.Product, ws harness.TestWorkspace, bearer string) {
	t.Helper()
	p.In(ws.Workspace, bearer).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	wantsGateway(t, p.As(bearer).Get(t, ws.Clients()), http.StatusForbidden, "Forbidden")
}

// A token "made for another resource" gets 401 from the REST API and 403 {"message"} from the account routes.
func TestCredentials_TokenForOtherResourceIsRejected(t *testing.T) {
	p, ws := inWorkspace(t)
	mcp := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)
	tokens := mcp.Connect(t, p.Person(t, ws.Owner))
	if aud := harness.Decode(t, tokens.AccessToken).Claims["aud"]; aud != p.BaseURL+"/mcp" {
		t.Errorf("aud is %v", aud)
	}
	wantsBearerRejected(t, p, ws, tokens.AccessToken)
	wantsBearerRejected(t, p, ws, mcp.Refresh(t, tokens.RefreshToken).Tokens(t).AccessToken)
}

// wantsSeconds checks a duration, with a tolerance for the time that the test takes.
func wantsSeconds(t *testing.T, name string, got, want int) {
	t.Helper()
	if got > want || got < want-30 {
		t.Errorf("%s is %d seconds, want %d or slightly less", name, got, want)
	}
}

func redactError(err error) string { return harness.Redact(err.Error()) }

// mustRedacted fails the test now if there is an error, which may contain a secret.
func mustRedacted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(redactError(err))
	}
}

// "a wrong secret does not count". That another client does not, token.TestExchange_FifthMismatchRevokesGrant shows.
func TestCode_WrongSecretsDoNotBurnCode(t *testing.T) {
	p, ws := inWorkspace(t)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	code := app.Code(t, p.Person(t, ws.Owner))
	for range 6 {
		body := app.Body(code)
		body["client_secret"], body["redirect_uri"] = alterLast(app.ClientSecret), "https://evil.example/"
		app.Exchange(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	}
	app.Exchange(t, app.Body(code)).Tokens(t)
}

// "A superseded refresh token: 400 invalid_grant, and the grant is revoked, at once, for refresh and access tokens
// alike."
func TestRefresh_SupersededTokenRevokesGrant(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	for name, c := range map[string]struct{ generations, replayed int }{
		"the one before": {1, 0}, "the first of six": {5, 0}, "one in the middle": {5, 3},
	} {
		t.Run(name, func(t *testing.T) {
			connector := ws.Connector(t, harness.ReadProgrammes)
			sibling := connector.Connect(t, owner)
			line := []harness.Tokens{connector.Connect(t, owner)}
			for range c.generations {
				line = append(line, connector.Refresh(t, line[len(line)-1].RefreshToken).Tokens(t))
			}
			connector.Refresh(t, line[c.replayed].RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			connector.WantsRevoked(t, line...)
			connector.WantsWorking(t, sibling) // another grant of the same user and application
		})
	}
}

// In the last seconds of the 30 days a request gets tokens or invalid_grant, never a server error.
func TestLifetimes_LastSecondsOfGrant(t *testing.T) {
	p, ws := inWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
	wantsEither := func(answer harness.Answer, left time.Duration) {
		t.Helper()
		if answer.Status != http.StatusOK {
			answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			return
		}
		if tokens := answer.Tokens(t); tokens.ExpiresIn < 0 || tokens.ExpiresIn > int(left.Seconds()) {
			t.Errorf("%s before the end: expires_in is %d", left, tokens.ExpiresIn)
		}
	}
	for _, left := range []time.Duration{2 * time.Second, time.Second, time.Millisecond, 0} {
		tokens := connector.Connect(t, owner)
		p.Database.EndGrantIn(t, harness.GrantOf(t, tokens.AccessToken), left)
		wantsEither(connector.Refresh(t, tokens.RefreshToken), left)
		attempt := connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, owner))
		pending := p.Database.Text(t, `select id::text from account.grants where client_id = $1 and state = 'pending'
						order by created_at desc limit 1`, connector.ClientID)
		p.Database.EndGrantIn(t, pending, left)
		wantsEither(attempt.Post(t, form), left)
	}
}

// Contract, section 5: POST /oauth/revoke (RFC 7009).

// After a revocation, no access token of the grant works, in either form of its signature. Which token revokes which
// grant, token.TestRevoke_EveryTokenRevokesItsGrant and token.TestRevoke_AcceptsEveryAuthMethod show.
func TestRevocation_RevokesGrant(t *testing.T) {
	p, ws := inWorkspace(t)
	owner, connector := p.Person(t, ws.Owner), ws.Connector(t, harness.ReadProgrammes)
	sibling, old := connector.Connect(t, owner), connector.Connect(t, owner)
	current := connector.Refresh(t, old.RefreshToken).Tokens(t)
	connector.Revoke(t, old.AccessToken).Wants(t, http.StatusOK)
	connector.WantsRevoked(t, current, old)
	beforeSignature := strings.LastIndex(old.AccessToken, ".") + 1
	other := old.AccessToken[:beforeSignature] + otherForm(t, old.AccessToken[beforeSignature:])
	p.In(ws.Workspace, other).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	connector.WantsWorking(t, sibling)
}
