package e2e

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v2/jwk"
	"github.com/lestrrat-go/jwx/v2/jws"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 3 and 5, contract sections 2 and 6: where each kind of credential is accepted and where it is not.

func TestCredentials_AllKindsListProgrammes(t *testing.T) {
	p := inParallel(t)
	owner := p.Person(t, p.Demo.Users.Owner)
	for name, token := range map[string]string{
		"personal access token": p.Demo.Tokens.Reader,
		"confidential":          p.DemoConfidential().Connect(t, owner).AccessToken,
		"connector":             p.DemoConnector().Connect(t, owner).AccessToken,
	} {
		t.Run(name, func(t *testing.T) {
			p.In(p.Demo.Workspaces.Main, token).Get(t, programmes).Wants(t, http.StatusOK)
			p.In(p.Demo.Workspaces.Empty, token).Get(t, programmes).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		})
	}
}

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
	for _, c := range []struct {
		tokens harness.Tokens
		client string
		scope  string
	}{{long, app.ClientID, harness.ReadProgrammes}, {short, attempt.ClientID, attempt.Scope}} {
		wantsClaims(t, p, c.tokens, c.client, c.scope)
	}
}

func wantsClaims(t *testing.T, p *harness.Product, tokens harness.Tokens, client, scope string) {
	t.Helper()
	token := harness.Decode(t, tokens.AccessToken)
	if token.Header["typ"] != "at+jwt" || token.Header["alg"] != "ES256" {
		t.Errorf("typ %v, alg %v", token.Header["typ"], token.Header["alg"])
	}
	for name, want := range map[string]any{
		"iss": p.BaseURL, "sub": p.Demo.Users.Owner.ID, "aud": p.BaseURL + "/v1", "client_id": client, "scope": scope,
		"tenant_id": p.Demo.Workspaces.Main.ID,
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
	if tokens.Scope != scope {
		t.Errorf("the response's scope is %q", tokens.Scope)
	}
	keys, err := jwk.Parse(p.API().Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK).Body)
	must(t, err)
	if _, err := jws.Verify([]byte(tokens.AccessToken), jws.WithKeySet(keys)); err != nil {
		t.Error("no key of JWKS with the token's kid verifies the signature")
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

// "Credentials issued through connector consent are restricted further by the permissions the user consented to." (spec
// 1)
func TestCredentials_LimitedToConsentedPermissions(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	attempt := ws.Connector(t, harness.ReadForms, harness.ReadProgrammes).Begin()
	attempt.Query = change(attempt.Query, "scope", harness.ReadForms)
	forms := attempt.Post(t, attempt.CodeForm(attempt.Code(t, owner))).Tokens(t)
	p.In(ws.Workspace, forms.AccessToken).Get(t, programmes).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	narrow := p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadForms)
	p.In(ws.Workspace, narrow).Get(t, programmes).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, http.StatusOK)
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

func TestTokenEndpoint_AliasIsSameHandler(t *testing.T) {
	p := inParallel(t)
	attempt := p.DemoConnector().Begin()
	code := attempt.Code(t, p.Person(t, p.Demo.Users.Owner))
	p.API().Form(t, "/token", change(attempt.CodeForm(code), "code", "x")).
		WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	p.API().Form(t, "/token", attempt.CodeForm(code)).Tokens(t)
	p.API().Form(t, "/token", url.Values{}).WantsFlat(t, http.StatusBadRequest, "invalid_request")
}

// Spec 4.3 and contract, section 3: exchange and refresh of a connector as a form.

// connectorKeys are all keys of the response to a connector.
var connectorKeys = []string{
	"access_token", "token_type", "expires_in", "scope", "tenant_id", "refresh_token", "authorization_expires_in",
}

func TestConnectorExchange_AndRefreshReturnTokens(t *testing.T) {
	p := inParallel(t)
	connector, owner := p.DemoConnector(), p.Person(t, p.Demo.Users.Owner)
	attempt := connector.Begin()
	first := attempt.Post(t, attempt.CodeForm(attempt.Code(t, owner)))
	tokens := first.Tokens(t)
	for range 3 {
		answer := connector.Refresh(t, tokens.RefreshToken)
		for _, answer := range []harness.Answer{first, answer} {
			answer.Wants(t, http.StatusOK).WantsKeys(t, slices.Clone(connectorKeys)...)
			answer.WantsHeader(t, "Cache-Control", "no-store")
		}
		next := answer.Tokens(t)
		if next.RefreshToken == tokens.RefreshToken || next.AccessToken == tokens.AccessToken ||
			!strings.HasPrefix(next.RefreshToken, "alm_rt_") {
			t.Error("a token was not replaced, or does not have the format of section 2 of the contract")
		}
		wantsSeconds(t, "expires_in", next.ExpiresIn, 3600)
		wantsSeconds(t, "authorization_expires_in", next.AuthorizationEnd, 30*24*3600)
		if next.Scope != connector.Scope || next.WorkspaceID != p.Demo.Workspaces.Main.ID ||
			next.TokenType != "Bearer" {
			t.Errorf("wrong token response:\n%s", answer)
		}
		// An earlier access token works until it expires.
		for _, token := range []string{tokens.AccessToken, next.AccessToken} {
			p.In(p.Demo.Workspaces.Main, token).Get(t, programmes).Wants(t, http.StatusOK)
		}
		tokens = next
	}
}

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

// Contract, section 3, with concurrent requests: exactly one wins. All others are replays, so the grant is revoked
// afterwards, and no other grant of the same user and application. The races of e2e/torture run on two processes, with
// more racers and rounds.
func TestRaces_OneWinnerAndGrantRevoked(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	sibling, long := connector.Connect(t, owner), app.Connect(t, owner)
	race := func(name string, racers int, send func() harness.Answer) harness.Tokens {
		t.Helper()
		var winners []harness.Answer
		for _, answer := range harness.Concurrently(racers, func(int) harness.Answer { return send() }) {
			if answer.Status == http.StatusOK {
				winners = append(winners, answer)
			} else {
				answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			}
		}
		if len(winners) != 1 {
			t.Fatalf("%s: %d of %d requests won", name, len(winners), racers)
		}
		return winners[0].Tokens(t)
	}
	for range 5 {
		tokens := connector.Connect(t, owner)
		won := race("refresh", 8, func() harness.Answer { return connector.Refresh(t, tokens.RefreshToken) })
		connector.WantsRevoked(t, won, tokens)
		body := app.Body(app.Code(t, owner))
		won = race("confidential code", 4, func() harness.Answer { return app.Exchange(t, body) })
		p.In(ws.Workspace, won.AccessToken).Get(t, programmes).
			WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
	connector.WantsWorking(t, sibling)
	p.In(ws.Workspace, long.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
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

// Spec 5.2 and 8, contract section 3: lifetimes, and the checks of the user at refresh.

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

// "A permission lost meanwhile is simply without effect (section 6), and back when the user has it back."
func TestRefresh_LostPermissionReturnsWithUser(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	create := func() harness.Answer {
		return p.In(ws.Workspace, tokens.AccessToken).
			JSON(t, http.MethodPost, programmes, map[string]any{"name": "Warm room"})
	}
	create().Wants(t, http.StatusCreated)
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	create().WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	create().WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.Everything()...)
	create().Wants(t, http.StatusCreated)
	tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	if !strings.Contains(tokens.Scope, harness.WriteProgrammes) {
		t.Errorf("the scope is %q after the permission was restored", tokens.Scope)
	}
}

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
