package token_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestToken_IncompleteFormIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	for _, name := range []string{"grant_type", "client_id", "code", "code_verifier", "redirect_uri", "resource"} {
		b.refused("no "+name, b.exchange(name, "-"), 400, "invalid_request")
		b.refused("empty "+name, b.exchange(name, ""), 400, "invalid_request")
	}
	held := b.Connected(b.app, b.user)
	for _, name := range []string{"grant_type", "client_id", "refresh_token", "resource"} {
		b.refused("refresh without "+name, b.refresh(held.Refresh, name, "-"), 400, "invalid_request")
	}
	b.given("nothing was consumed", b.refresh(held.Refresh))
}

func TestToken_IncompleteJSONIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	for _, name := range []string{"client_id", "code", "redirect_uri"} {
		b.refused("no "+name, b.link(name, "-"), 400, "invalid_request")
		b.refused("empty "+name, b.link(name, ""), 400, "invalid_request")
	}
	b.refused("no secret", b.link("client_secret", "-"), 400, "invalid_client")
	b.refused("an empty secret", b.link("client_secret", ""), 400, "invalid_client")
}

func TestToken_ErrorCodes(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	service := b.Service()
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
		{"wrong secret", b.link("client_secret", service.Secret.Reveal()), "invalid_client"},
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
		{"password in JSON", b.link("grant_type", "password"), "unsupported_grant_type"},
		{"two grant types", b.exchange("grant_type", "authorization_code refresh_token"), "unsupported_grant_type"},
		{
			"refresh in JSON",
			b.link("grant_type", "refresh_token", "refresh_token", "alm_rt_word"),
			"unauthorized_client",
		},
		{"refresh in JSON without a token", b.link("grant_type", "refresh_token"), "unauthorized_client"},
		{
			"a service",
			b.link("client_id", service.ID.String(), "client_secret", service.Secret.Reveal()),
			"unauthorized_client",
		},
		{"a service with another secret", b.link("client_id", service.ID.String()), "invalid_client"},
		{
			"a service without its secret",
			b.link("client_id", service.ID.String(), "client_secret", "-"),
			"invalid_client",
		},
		{
			"a form from a JSON client",
			b.exchange("client_id", b.linked.ID.String(), "client_secret", b.secret.Reveal()),
			"invalid_client",
		},
		{"JSON from a connector", b.link("client_id", b.app.ID.String(), "client_secret", ""), "invalid_request"},
	} {
		b.refused(c.what, c.answer, 400, c.code)
		if c.answer.Header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s: a challenge without a Basic header", c.what)
		}
	}
}

func TestExchange_ChallengeRequiresVerifier(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	exchange := func(verifier string) apitest.Answer {
		g := grant.Grant{
			ID:          uuid.New(),
			Kind:        client.Confidential,
			ClientID:    b.linked.ID,
			UserID:      b.user,
			WorkspaceID: b.Fixture.WorkspaceID,
			Permissions: b.linked.Required,
			Resource:    apitest.REST,
			Ends:        b.Now().Add(client.Confidential.Traits().GrantLife),
		}
		code, err := b.Grants.Open(t.Context(), g, grant.CodeTerms{
			ClientID:    b.linked.ID,
			RedirectURI: fixture.Callback,
			Resource:    apitest.REST,
			Challenge:   grant.ChallengeOf(apitest.Verifier),
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.linkCode(code, "code_verifier", verifier)
	}
	b.given("the right verifier", exchange(apitest.Verifier))
	b.refused("no verifier", exchange("-"), 400, "invalid_request")
	b.refused("an empty verifier", exchange(""), 400, "invalid_request")
	b.refused("another verifier", exchange(strings.Repeat("a", 43)), 400, "invalid_grant")
}

// The request is complete and correct except for the dialect.
func TestToken_ConnectorMustNotSendJSON(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	_, code := b.Consent(b.app, b.user)
	b.refused(
		"exchange",
		b.PostJSON(
			path,
			"grant_type", "authorization_code",
			"client_id", b.app.ID.String(),
			"resource", b.app.Resource,
			"code", code.Reveal(),
			"code_verifier", apitest.Verifier,
			"redirect_uri", fixture.Callback,
		),
		400,
		"invalid_request",
	)
	held := b.Connected(b.app, b.user)
	b.refused(
		"refresh",
		b.PostJSON(path, "grant_type", "refresh_token", "client_id", b.app.ID.String(), "resource", b.app.Resource,
			"refresh_token", held.Refresh.Reveal()),
		400,
		"invalid_request",
	)
}

// RFC 7636, section 4.1: a verifier has at least 43 characters, even if a shorter one matches the challenge.
func TestExchange_ShortVerifierIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, _ := b.Consent(b.app, b.user)
	g.ID = uuid.New()
	code, err := b.Grants.Open(t.Context(), g, grant.CodeTerms{
		ClientID:    b.app.ID,
		RedirectURI: fixture.Callback,
		Resource:    b.app.Resource,
		Challenge:   grant.ChallengeOf("short"),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.refused("short", b.exchangeCode(code, "code_verifier", "short"), 400, "invalid_grant")
}

func TestToken_UnreadableBodyIsInvalidRequest(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id, secret := b.linked.ID.String(), b.secret.Reveal()
	const form, object = "application/x-www-form-urlencoded", "application/json"
	_, code := b.Consent(b.linked, b.user)
	rest := `"client_secret":"` + secret + `","code":"` + code.Reveal() + `","redirect_uri":"` + fixture.Callback + `"}`
	for what, c := range map[string]struct{ contentType, body string }{
		"no content type": {"", ""},
		"plain text":      {"text/plain", "a=b"},
		"multipart":       {"multipart/form-data; boundary=x", "--x--"},
		"empty JSON":      {object, ""},
		"an array":        {object, "[]"},
		"trailing data":   {object, `{"client_id":"` + id + `",` + rest + "{}"},
		"key twice":       {object, `{"client_id":"` + id + `","client_id":"` + id + `",` + rest},
		"another case":    {object, `{"Client_Id":"` + id + `",` + rest},
		"a number":        {object, `{"client_id":1,` + rest},
		"null":            {object, `{"client_id":null,` + rest},
		"a list":          {object, `{"client_id":["` + id + `"],` + rest},
		"parameter twice": {form, "grant_type=refresh_token&client_id=" + id + "&client_id=" + id},
		"broken escape":   {form, "client_id=%zz"},
		"semicolons":      {form, "grant_type=refresh_token;client_id=" + id},
	} {
		b.refused(what, b.Send(http.MethodPost, path, c.body, "Content-Type", c.contentType), 400, "invalid_request")
	}
	two := b.Send(http.MethodPost, path, `{"client_id":"`+id+`",`+rest, "Content-Type", object, "Content-Type", form)
	b.refused("two content types", two, 400, "invalid_request")
	b.given("the code after the refused requests", b.linkCode(code))
}

func TestToken_BodyOver64KiBIs413(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	long := strings.Repeat("x", 64<<10)
	for _, contentType := range []string{"application/x-www-form-urlencoded", "application/json", "text/plain"} {
		answer := b.Send(http.MethodPost, path, "client_id="+long, "Content-Type", contentType)
		b.refused(contentType, answer, 413, "invalid_request")
	}
}

func TestToken_AuthorizationHeaderOnlyForBasicClients(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	basic, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	setAuthMethod(b.Server, basic, client.SecretBasic)
	post, postSecret := b.Fixture.Confidential(perm.ProgrammesRead)
	setAuthMethod(b.Server, post, client.SecretPost)
	send := func(headers []string, c client.Client, changes ...string) apitest.Answer {
		_, code := b.Consent(c, b.user)
		return b.FormWith(path, headers, changed([]string{
			"grant_type", "authorization_code", "code", code.Reveal(), "redirect_uri", fixture.Callback,
		}, changes)...)
	}
	id := basic.ID.String()
	b.given("Basic", send(apitest.Basic(id, secret), basic))
	b.given("Basic with the same client_id", send(apitest.Basic(id, secret), basic, "client_id", id))
	b.given("client_secret_post", send(nil, post, "client_id", post.ID.String(), "client_secret", postSecret.Reveal()))

	failed := map[string]apitest.Answer{
		"wrong secret":   send(apitest.Basic(id, b.secret), basic),
		"no secret":      send(apitest.Basic(id, ""), basic),
		"unknown client": send(apitest.Basic(uuid.NewString(), secret), basic),
		"no UUID":        send(apitest.Basic("app", secret), basic),
	}
	for what, answer := range failed {
		b.refused(what, answer, 401, "invalid_client")
		if !strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic realm=") {
			t.Errorf("%s: challenge %q", what, answer.Header.Get("WWW-Authenticate"))
		}
	}
	for what, answer := range map[string]apitest.Answer{
		"Basic from a connector": send(
			apitest.Basic(b.app.ID.String(), ""),
			b.app,
			"resource", b.app.Resource,
			"code_verifier", apitest.Verifier,
		),
		"Basic and a posted secret":   send(apitest.Basic(id, secret), basic, "client_secret", secret.Reveal()),
		"Basic and another client_id": send(apitest.Basic(id, secret), basic, "client_id", post.ID.String()),
		"a bearer": send(
			apitest.Bearer("word"),
			basic,
			"client_id", id,
			"client_secret", secret.Reveal(),
		),
		"Basic that cannot be read": send([]string{"Authorization", "Basic !"}, basic, "client_id", id),
		"an empty header":           send([]string{"Authorization", ""}, basic, "client_id", id),
		"two headers":               send(append(apitest.Basic(id, secret), apitest.Basic(id, secret)...), basic),
		"a bearer from a connector": b.FormWith(
			path,
			apitest.Bearer("word"),
			"grant_type", "refresh_token",
			"client_id", b.app.ID.String(),
			"refresh_token", "x",
			"resource", b.app.Resource,
		),
	} {
		b.refused(what, answer, 400, "invalid_request")
	}
	b.refused(
		"a posting client's wrong secret",
		send(nil, post, "client_id", post.ID.String(), "client_secret", secret.Reveal()),
		400,
		"invalid_client",
	)
}

// Contract, section 3: a client that is registered for one of the two standard methods may use either.
func TestToken_StandardClientsMayPostOrUseBasic(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	for _, method := range []client.AuthMethod{client.SecretPost, client.SecretBasic} {
		c, secret := b.Fixture.Confidential(perm.ProgrammesRead)
		setAuthMethod(b.Server, c, method)
		id := c.ID.String()
		send := func(headers []string, more ...string) apitest.Answer {
			_, code := b.Consent(c, b.user)
			return b.FormWith(path, headers, append([]string{
				"grant_type", "authorization_code", "code", code.Reveal(), "redirect_uri", fixture.Callback,
			}, more...)...)
		}
		b.given(string(method)+", posted", send(nil, "client_id", id, "client_secret", secret.Reveal()))
		b.given(string(method)+", Basic", send(apitest.Basic(id, secret)))
		b.refused(
			string(method)+", both",
			send(apitest.Basic(id, secret), "client_secret", secret.Reveal()),
			400,
			"invalid_request",
		)
		b.refused(string(method)+", wrong in the header", send(apitest.Basic(id, b.secret)), 401, "invalid_client")
		b.refused(
			string(method)+", wrong in the form",
			send(nil, "client_id", id, "client_secret", b.secret.Reveal()),
			400,
			"invalid_client",
		)
	}
}

// The right secret of a JSON client, in a way that it is not registered for, is refused with words that name its way.
func TestToken_RightSecretInAnotherWayNamesTheWay(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id := b.linked.ID.String()
	_, other := b.Fixture.Confidential(perm.ProgrammesRead)
	for what, send := range map[string]func(secret credential.Secret) apitest.Answer{
		"form": func(secret credential.Secret) apitest.Answer {
			return b.Form(path, "grant_type", "authorization_code", "code", "x", "redirect_uri", "x",
				"client_id", id, "client_secret", secret.Reveal())
		},
		"Basic": func(secret credential.Secret) apitest.Answer {
			return b.FormWith(path, apitest.Basic(id, secret),
				"grant_type", "authorization_code", "code", "x", "redirect_uri", "x")
		},
	} {
		for secret, names := range map[credential.Secret]bool{b.secret: true, other: false} {
			answer := send(secret)
			b.refused(what, answer, 400, "invalid_client")
			if named := strings.Contains(answer.Text("error_description"), "client_secret_json"); named != names ||
				answer.Header.Get("WWW-Authenticate") != "" {
				t.Errorf("%s: right secret: %t: %s %v", what, names, answer.Body, answer.Header)
			}
		}
	}
}

func TestToken_ReplacedSecretWorksDuringOverlap(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	b.Fixture.Exec(
		`update account.client_secrets set expires_at = now() + interval '1 minute' where client_id = $1`,
		b.linked.ID,
	)
	b.given("while it overlaps", b.link())
	b.Fixture.Exec(`update account.client_secrets set expires_at = now() where client_id = $1`, b.linked.ID)
	b.refused("afterwards", b.link(), 400, "invalid_client")
}

func TestToken_DeletedClientIsUnknown(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	b.Fixture.Exec(`update account.oauth_clients set deleted_at = now()`)
	b.refused("refresh", b.refresh(held.Refresh), 400, "invalid_client")
	b.refused("exchange", b.link(), 400, "invalid_client")
}

func TestToken_SecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Connected(b.app, b.user)
	_, code := b.Consent(b.app, b.user)
	restore := b.CutPostgres()
	b.exchangeCode(code)
	b.refresh(held.Refresh)
	restore()
	b.refresh(held.Refresh, "resource", "x")
	b.link("client_secret", "alm_cs_wrong")
	for what, secret := range map[string]credential.Secret{
		"code":          code,
		"refresh token": held.Refresh,
		"access token":  held.Access,
		"secret":        b.secret,
		"wrong secret":  "alm_cs_wrong",
		"verifier":      apitest.Verifier,
	} {
		if strings.Contains(b.Log.String(), secret.Reveal()) {
			t.Errorf("the %s is in the log", what)
		}
	}
}
