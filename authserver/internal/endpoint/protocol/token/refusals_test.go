package token_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestToken_IncompleteRequestIsRefused(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	for _, value := range []string{"-", ""} {
		for _, name := range []string{"grant_type", "client_id", "code", "code_verifier", "redirect_uri", "resource"} {
			b.Wants("exchange, "+name+": "+value, b.exchange(name, value), 400, "invalid_request")
		}
		for _, name := range []string{"grant_type", "client_id", "refresh_token", "resource"} {
			b.Wants("refresh, "+name+": "+value, b.refresh(held.Refresh, name, value), 400, "invalid_request")
		}
		for _, name := range []string{"client_id", "code", "redirect_uri"} {
			b.Wants("JSON, "+name+": "+value, b.link(name, value), 400, "invalid_request")
		}
		b.Wants("JSON, secret: "+value, b.link("client_secret", value), 400, "invalid_client")
	}
	b.given("nothing was consumed", b.refresh(held.Refresh))
}

func TestToken_ErrorCodes(t *testing.T) {
	b := newTestEnv(t)
	service, secret := b.service.ID.String(), b.service.Secret.Reveal()
	linked, own := b.linked.ID.String(), b.secret.Reveal()
	_, foreign := b.Consent(b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead), b.user)
	const other = "http://127.0.0.1:8090/other"
	for _, c := range []struct {
		what   string
		answer apitest.Answer
		code   string
	}{
		{"unknown connector", b.exchange("client_id", uuid.NewString()), "invalid_client"},
		{"a client id that is none", b.exchange("client_id", "app"), "invalid_client"},
		{"unknown confidential client", b.link("client_id", uuid.NewString()), "invalid_client"},
		{"wrong secret", b.link("client_secret", secret), "invalid_client"},
		{"forged code", b.exchange("code", "alm_ac_word"), "invalid_grant"},
		{"forged code in JSON", b.link("code", "alm_ac_word"), "invalid_grant"},
		{"another client's code", b.exchangeCode(foreign), "invalid_grant"},
		{"another kind's code", b.linkCode(foreign), "invalid_grant"},
		{"wrong redirect URI", b.exchange("redirect_uri", other), "invalid_grant"},
		{"wrong redirect URI in JSON", b.link("redirect_uri", other), "invalid_grant"},
		{"redirect URI in another spelling", b.exchange("redirect_uri", fixture.Callback+"/"), "invalid_grant"},
		{"wrong verifier", b.exchange("code_verifier", strings.Repeat("a", 43)), "invalid_grant"},
		{"malformed verifier", b.exchange("code_verifier", "short"), "invalid_grant"},
		{"a verifier without a challenge", b.link("code_verifier", apitest.Verifier), "invalid_grant"},
		{"the other resource", b.exchange("resource", apitest.MCP), "invalid_target"},
		{"a resource with a slash", b.exchange("resource", apitest.REST+"/"), "invalid_target"},
		{"a confidential client's other resource", b.link("resource", apitest.MCP), "invalid_target"},
		{"forged refresh token", b.refresh("alm_rt_word"), "invalid_grant"},
		{"code as refresh token", b.refresh(foreign), "invalid_grant"},
		{"client_credentials", b.exchange("grant_type", "client_credentials"), "unsupported_grant_type"},
		{"client_credentials in JSON", b.link("grant_type", "client_credentials"), "unsupported_grant_type"},
		{"password in JSON", b.link("grant_type", "password"), "unsupported_grant_type"},
		{"two grant types", b.exchange("grant_type", "authorization_code refresh_token"), "unsupported_grant_type"},
		{"upper case", b.exchange("grant_type", "AUTHORIZATION_CODE"), "unsupported_grant_type"},
		{"capitals in JSON", b.link("grant_type", "Authorization_Code"), "unsupported_grant_type"},
		{"refresh in JSON", b.link("grant_type", "refresh_token", "refresh_token", "x"), "unauthorized_client"},
		{"refresh in JSON without a token", b.link("grant_type", "refresh_token"), "unauthorized_client"},
		{"a service", b.link("client_id", service, "client_secret", secret), "unauthorized_client"},
		{"a service with another secret", b.link("client_id", service), "invalid_client"},
		{"a service without its secret", b.link("client_id", service, "client_secret", "-"), "invalid_client"},
		{"a form from a JSON client", b.exchange("client_id", linked, "client_secret", own), "invalid_client"},
		{"JSON from a connector", b.link("client_id", b.name, "client_secret", ""), "invalid_request"},
	} {
		b.Wants(c.what, c.answer, 400, c.code)
		b.WantsHeader(c.what, c.answer, "WWW-Authenticate", "")
	}
}

func TestExchange_ChallengeRequiresVerifier(t *testing.T) {
	b := newTestEnv(t)
	terms := grant.CodeTerms{ClientID: b.linked.ID, RedirectURI: fixture.Callback, Resource: apitest.REST}
	exchange := func(verifier string) apitest.Answer {
		terms.Challenge = grant.ChallengeOf(apitest.Verifier)
		_, code := b.ConsentTo(b.linked, b.user, terms)
		return b.linkCode(code, "code_verifier", verifier)
	}
	b.given("the right verifier", exchange(apitest.Verifier))
	b.Wants("no verifier", exchange("-"), 400, "invalid_request")
	b.Wants("an empty verifier", exchange(""), 400, "invalid_request")
	b.Wants("another verifier", exchange(strings.Repeat("a", 43)), 400, "invalid_grant")
	// RFC 7636, section 4.1: a verifier has at least 43 characters, even if a shorter one matches the challenge.
	terms.ClientID, terms.Challenge = b.app.ID, grant.ChallengeOf("short")
	_, code := b.ConsentTo(b.app, b.user, terms)
	b.Wants("a short verifier", b.exchangeCode(code, "code_verifier", "short"), 400, "invalid_grant")
}

// The request is complete and correct except for the dialect.
func TestToken_ConnectorMustNotSendJSON(t *testing.T) {
	b := newTestEnv(t)
	_, code := b.Consent(b.app, b.user)
	b.Wants("exchange", b.send(asJSON, b.exchangeForm(code), nil), 400, "invalid_request")
	b.Wants("refresh", b.send(asJSON, b.refreshForm(b.connected().Refresh), nil), 400, "invalid_request")
}

func TestToken_UnreadableBodyIsInvalidRequest(t *testing.T) {
	b := newTestEnv(t)
	_, code := b.Consent(b.linked, b.user)
	id := b.linked.ID.String()
	rest := `"client_secret":"` + b.secret.Reveal() + `","code":"` + code.Reveal() + `","redirect_uri":"` +
		fixture.Callback + `"}`
	// Each of the texts that TestDecode_RefusesBadBodies has is refused alike.
	for what, c := range map[string]struct{ contentType, body string }{
		"multipart":       {"multipart/form-data; boundary=x", "--x--"},
		"another case":    {asJSON, `{"Client_Id":"` + id + `",` + rest},
		"parameter twice": {asForm, "grant_type=refresh_token&client_id=" + id + "&client_id=" + id},
	} {
		b.Wants(what, b.Send(http.MethodPost, path, c.body, "Content-Type", c.contentType), 400, "invalid_request")
	}
	two := b.Send(http.MethodPost, path, `{"client_id":"`+id+`",`+rest, "Content-Type", asJSON, "Content-Type", asForm)
	b.Wants("two content types", two, 400, "invalid_request")
	for _, contentType := range []string{asForm, asJSON, "text/plain"} {
		long := b.Send(http.MethodPost, path, "client_id="+strings.Repeat("x", 64<<10), "Content-Type", contentType)
		b.Wants("more than 64 KiB of "+contentType, long, 413, "invalid_request")
		b.Contains("more than 64 KiB of "+contentType, long.Text("error_description"), "64 KiB")
	}
	long := b.link("code", "alm_ac_word", "padding", strings.Repeat("x", 63<<10))
	b.Wants("63 KiB are read", long, 400, "invalid_grant")
	b.given("the code after the refused requests", b.linkCode(code))
}

// Contract, section 3: a client that is registered for one of the two standard methods may use either, but not both at
// once. Other clients must not send the header.
func TestToken_StandardClientsMayPostOrUseBasic(t *testing.T) {
	b := newTestEnv(t)
	for _, method := range []client.AuthMethod{client.SecretPost, client.SecretBasic} {
		c, secret := b.standard(method)
		id, right, wrong := c.ID.String(), secret.Reveal(), b.secret.Reveal()
		basic, posted := apitest.Basic(id, secret), []string{"client_id", id, "client_secret", right}
		for _, r := range []struct {
			what    string
			headers []string
			form    []string
			status  int
			code    string
		}{
			{"posted", nil, posted, 200, ""},
			{"wrong in the form", nil, []string{"client_id", id, "client_secret", wrong}, 400, "invalid_client"},
			{"Basic", basic, nil, 200, ""},
			{"Basic with the same client_id", basic, []string{"client_id", id}, 200, ""},
			{"wrong in the header", apitest.Basic(id, b.secret), nil, 401, "invalid_client"},
			{"no secret in the header", apitest.Basic(id, ""), nil, 401, "invalid_client"},
			{"an unknown client", apitest.Basic(uuid.NewString(), secret), nil, 401, "invalid_client"},
			{"no UUID", apitest.Basic("app", secret), nil, 401, "invalid_client"},
			{"Basic and a posted secret", basic, []string{"client_secret", right}, 400, "invalid_request"},
			{"Basic and another client_id", basic, []string{"client_id", b.name}, 400, "invalid_request"},
			{"a bearer", apitest.Bearer("word"), posted, 400, "invalid_request"},
			{"unreadable", []string{"Authorization", "Basic !"}, []string{"client_id", id}, 400, "invalid_request"},
			{"an empty header", []string{"Authorization", ""}, []string{"client_id", id}, 400, "invalid_request"},
			{"two headers", append(basic, basic...), nil, 400, "invalid_request"},
		} {
			_, code := b.Consent(c, b.user)
			answer := b.FormWith(path, r.headers, append([]string{
				"grant_type", "authorization_code", "code", code.Reveal(), "redirect_uri", fixture.Callback,
			}, r.form...)...)
			what := string(method) + ": " + r.what
			b.Wants(what, answer, r.status, r.code)
			challenge := answer.Header.Get("WWW-Authenticate")
			if strings.HasPrefix(challenge, "Basic realm=") != (r.status == 401) {
				t.Errorf("%s: challenge %q", what, challenge)
			}
		}
	}
	const header = "Authorization:"
	basic := b.exchange(header, apitest.Basic(b.name, "")[1], "client_id", "-")
	b.Wants("Basic from a connector", basic, 400, "invalid_request")
	b.Wants("a bearer from a connector", b.refresh("x", header, "Bearer word"), 400, "invalid_request")
	_, code := b.Consent(b.linked, b.user)
	for _, value := range []string{apitest.Basic(b.linked.ID.String(), b.secret)[1], "Bearer word", "Basic !"} {
		b.Wants("a header with JSON", b.linkCode(code, header, value), 400, "invalid_request")
	}
	b.given("the code in JSON afterwards", b.linkCode(code))
}

// The right secret of a JSON client, in a way that it is not registered for, is refused with words that name its way.
func TestToken_RightSecretInAnotherWayNamesTheWay(t *testing.T) {
	b := newTestEnv(t)
	id := b.linked.ID.String()
	form := []string{"grant_type", "authorization_code", "code", "x", "redirect_uri", "x"}
	for secret, names := range map[credential.Secret]bool{b.secret: true, b.service.Secret: false} {
		for what, answer := range map[string]apitest.Answer{
			"form":  b.Form(path, append(form, "client_id", id, "client_secret", secret.Reveal())...),
			"Basic": b.FormWith(path, apitest.Basic(id, secret), form...),
		} {
			b.Wants(what, answer, 400, "invalid_client")
			if named := strings.Contains(answer.Text("error_description"), "client_secret_json"); named != names ||
				answer.Header.Get("WWW-Authenticate") != "" {
				t.Errorf("%s: right secret: %t\n%s", what, names, b.Explain(answer))
			}
		}
	}
}

func TestToken_ReplacedSecretWorksDuringOverlap(t *testing.T) {
	b := newTestEnv(t)
	b.Fixture.Exec(`update account.client_secrets set expires_at = now() + interval '1 hour' where client_id = $1`,
		b.linked.ID)
	b.given("while it overlaps", b.link())
	b.Fixture.Exec(`update account.client_secrets set expires_at = now() where client_id = $1`, b.linked.ID)
	b.Wants("afterwards", b.link(), 400, "invalid_client")
}

// A cached client is checked again: a deleted client, or one with a new secret, gets its current state.
func TestToken_ClientCacheEndsWithChangeOfClient(t *testing.T) {
	b := newTestEnv(t)
	probe := func(what string, secret credential.Secret, want string) {
		t.Helper()
		b.Wants(what, b.linkCode("none", "client_secret", secret.Reveal()), 400, want)
	}
	probe("at first", b.secret, "invalid_grant")
	next, err := credential.ClientSecret.New(strings.NewReader(strings.Repeat("another secret ", 9)))
	b.Must(err)
	changed := audit.Event{Actor: "admin", Action: audit.ClientSecretReplaced}
	changed.Authorization = &audit.Authorization{Operator: true}
	b.Must(b.Store.ReplaceSecret(t.Context(), b.Fixture.WorkspaceID, b.linked.ID, credential.Hash(next.Reveal()), 0,
		changed))
	probe("the old secret", b.secret, "invalid_client")
	probe("the new secret", next, "invalid_grant")
	_, err = b.Store.DeleteClient(t.Context(), b.Fixture.WorkspaceID, b.linked.ID, changed)
	b.Must(err)
	probe("deleted", next, "invalid_client")
}

func TestToken_IgnoresCredentialsInQuery(t *testing.T) {
	b := newTestEnv(t)
	_, code := b.Consent(b.linked, b.user)
	id, secret := b.linked.ID.String(), b.secret.Reveal()
	send := func(query, body string) apitest.Answer {
		return b.Send("POST", path+query, body, "Content-Type", asJSON)
	}
	query := "?client_id=" + id + "&client_secret=" + secret + "&code=" + code.Reveal() +
		"&redirect_uri=" + fixture.Callback
	b.Wants("all in the query", send(query, "{}"), 400, "invalid_request")
	body := `{"client_id":"` + id + `","client_secret":"` + secret + `","code":"` + code.Reveal() +
		`","redirect_uri":"` + fixture.Callback + `"}`
	b.given("others in the query", send("?client_id=x&client_secret=y&code=z&grant_type=password", body))
}

func TestF1_OnlyRefusalsAreThrottled(t *testing.T) {
	b := inTurn(t)
	held := b.connected()
	b.failClientElsewhere(b.name)
	b.failClientElsewhere(b.linked.ID.String())
	_, code := b.Consent(b.linked, b.user)
	b.wantLimited(b.linkCode(code, "client_secret", apitest.WrongSecret))
	b.wantLimited(b.linkCode("alm_ac_forged"))
	b.wantLimited(b.refresh("alm_rt_forged"))
	b.wantLimited(b.exchangeCode("alm_ac_forged"))
	for range 5 {
		b.given("a code", b.exchange())
		b.given("a code in JSON", b.link())
		held = b.Refreshed(b.app, held)
	}
	b.given("the code that others were refused with", b.linkCode(code))
	b.Wants("without a token", b.refresh("", "refresh_token", "-"), 400, "invalid_request")
}

func TestF2_ThrottledReplayRevokesGrant(t *testing.T) {
	b := inTurn(t)
	first, other := b.connected(), b.connected()
	b.failElsewhere(func(c *ratelimit.Limiter) time.Duration { return c.ForGrant(first.Grant.ID) })
	b.wantLimited(b.refresh(first.Refresh, "resource", apitest.MCP))
	second := b.Refreshed(b.app, first)
	b.wantLimited(b.refresh(first.Refresh))
	b.wantRevoked("replayed while its failures were throttled", first.Grant, grant.Replayed)
	b.wantLimited(b.refresh(second.Refresh))
	other = b.Refreshed(b.app, other)
	b.Wants("another grant of the client", b.refresh(other.Refresh, "resource", apitest.MCP), 400, "invalid_target")
	b.Wants("guesses of the client", b.refresh("alm_rt_forged"), 400, "invalid_grant")
}

func TestIntrospect_OnlyWrongSecretsAreThrottled(t *testing.T) {
	b := inTurn(t)
	token, id := b.connected().Access, b.service.ID.String()
	b.failClientElsewhere(id)
	wrong := apitest.Basic(id, apitest.WrongSecret)
	b.wantLimited(b.FormWith(apitest.IntrospectPath, wrong, "token", token.Reveal()))
	b.wantLimited(b.Form(apitest.IntrospectPath, "token", token.Reveal(), "client_id", id, "client_secret", "alm_cs_x"))
	for range 10 {
		b.active("with the right one", token)
		b.inactive("with the right one", "alm_pat_none")
	}
}

func TestRevoke_OnlyWrongSecretsAreThrottled(t *testing.T) {
	b := inTurn(t)
	held := b.Linked(b.linked, b.secret, b.user)
	b.failClientElsewhere(b.linked.ID.String())
	revoke := func(secret credential.Secret) apitest.Answer {
		return b.PostJSON(apitest.RevokePath, "client_id", b.linked.ID.String(), "client_secret", secret.Reveal(),
			"token", held.Access.Reveal())
	}
	b.wantLimited(revoke(apitest.WrongSecret))
	b.wantActive("by a wrong secret", held.Grant)
	b.wantOK("the right one", revoke(b.secret))
	b.wantRevoked("by the right one", held.Grant, grant.ByClient)
}

func TestToken_WithoutRedisRefusalsAreNotThrottled(t *testing.T) {
	b := inTurn(t)
	_, code := b.Consent(b.linked, b.user)
	b.Redis.Stop()
	for range 3 {
		b.Wants("forged", b.refresh("alm_rt_forged"), 400, "invalid_grant")
		b.Wants("wrong secret", b.linkCode(code, "client_secret", apitest.WrongSecret), 400, "invalid_client")
	}
}
