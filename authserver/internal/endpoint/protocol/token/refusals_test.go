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

// The engine's own tests have all causes of each code.
func TestToken_ErrorCodes(t *testing.T) {
	b := newTestEnv(t)
	service, secret := b.service.ID.String(), b.service.Secret.Reveal()
	linked, own := b.linked.ID.String(), b.secret.Reveal()
	const other = "http://127.0.0.1:8090/other"
	for _, c := range []struct {
		what   string
		answer apitest.Answer
		code   string
	}{
		{"unknown connector", b.exchange("client_id", uuid.NewString()), "invalid_client"},
		{"wrong secret", b.link("client_secret", secret), "invalid_client"},
		{"forged code", b.exchange("code", "alm_ac_word"), "invalid_grant"},
		{"wrong redirect URI in JSON", b.link("redirect_uri", other), "invalid_grant"},
		{"the other resource", b.exchange("resource", apitest.MCP), "invalid_target"},
		{"forged refresh token", b.refresh("alm_rt_word"), "invalid_grant"},
		{"client_credentials", b.exchange("grant_type", "client_credentials"), "unsupported_grant_type"},
		{"password in JSON", b.link("grant_type", "password"), "unsupported_grant_type"},
		{"refresh in JSON", b.link("grant_type", "refresh_token", "refresh_token", "x"), "unauthorized_client"},
		{"a service", b.link("client_id", service, "client_secret", secret), "unauthorized_client"},
		{"a form from a JSON client", b.exchange("client_id", linked, "client_secret", own), "invalid_client"},
		{"JSON from a connector", b.link("client_id", b.name, "client_secret", ""), "invalid_request"},
	} {
		b.Wants(c.what, c.answer, 400, c.code)
		b.WantsHeader(c.what, c.answer, "WWW-Authenticate", "")
	}
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

// A refusal is recorded with its reason, what the client was told and the request, and without secrets.
func TestRefusal_MismatchIsRecorded(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	answer := b.refresh(held.Refresh, "resource", apitest.MCP)
	b.Wants("a wrong resource", answer, 400, "invalid_target")
	b.WantsRows("events", 1, `account.audit_events where action = $1 and subject = 'grant:' || $2
		and detail->>'reason' = 'request_does_not_match' and detail->>'description' = $3
		and detail->>'error' = 'invalid_target' and tenant_id = $4 and user_id = $5 and request_id = $6
		and actor like 'client:%' and detail->>'client_id' = $7`, audit.GrantRefused, held.Grant.ID.String(),
		answer.Text("error_description"), b.Fixture.WorkspaceID, b.user, answer.Header.Get("X-Request-Id"),
		held.Grant.ClientID.String())
	b.WantsRows("secrets in the audit log", 0, `account.audit_events
		where action = $1 and detail::text ~ 'alm_(rt|ac|cs)_'`, audit.GrantRefused)
	forged := b.refresh("alm_rt_word")
	b.WantsRows("attempts of the connector", 1, `account.connection_stops where tenant_id = $1 and client_id = $2
		and reason = $3 and request_id = $4`, b.Fixture.WorkspaceID, b.app.ID, forged.Text("error_description"),
		forged.Header.Get("X-Request-Id"))
}

func TestRefusal_FailedRecordDoesNotChangeResponse(t *testing.T) {
	b := impatiently(t)
	held := b.connected()
	b.Fixture.SetLLM(false)
	b.Lock(`lock table account.audit_events in access exclusive mode`)
	before := b.Log.String()
	b.Wants("while the audit log is locked", b.refresh(held.Refresh), 400, "invalid_grant")
	b.Contains("the log", strings.TrimPrefix(b.Log.String(), before), "token refusal not recorded")
}
