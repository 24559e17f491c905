package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestToken_MissingParameterIsNamed(t *testing.T) {
	b := newTestEnv(t)
	_, code := b.consent(b.app)
	_, linked := b.consent(b.linked)
	held := b.connect(b.app)
	exchange, refresh := b.exchangeOf(b.app, code), refreshOf(b.app, held.Refresh)
	for _, r := range []TokenRequest{exchange, refresh, b.exchangeOf(b.linked, linked)} {
		for name := range r.Parameters {
			b.refused(name, r.with(parameters{name: ""}), "invalid_request", name+" is required.")
		}
		r.ClientID = ""
		b.refused("client_id", r, "invalid_request", "client_id is required.")
		r.GrantType = ""
		if r.Dialect == Form {
			b.refused("no client_id and no grant type", r, "invalid_request")
		}
	}
	untyped := exchange
	untyped.GrantType = ""
	b.refused("grant_type", untyped, "invalid_request", "grant_type is required.")
	untyped = b.exchangeOf(b.linked, linked)
	untyped.GrantType = ""
	b.mustToken("JSON without grant_type", untyped)
	b.mustToken("the code afterwards", exchange)
	b.mustToken("the refresh token afterwards", refresh)
}

// A change is what differs from a valid token request.
type change func(*TokenRequest)

func TestToken_ErrorCodes(t *testing.T) {
	b := newTestEnv(t)
	_, code := b.consent(b.app)
	_, linked := b.consent(b.linked)
	_, foreign := b.consent(b.fixture.Connector(rest, perm.ProgrammesRead))
	held := b.connect(b.app)
	exchange, link, refresh := b.exchangeOf(b.app, code), b.exchangeOf(b.linked, linked), refreshOf(b.app, held.Refresh)
	grantType := func(name string) change { return func(r *TokenRequest) { r.GrantType = name } }
	clientID := func(id string) change { return func(r *TokenRequest) { r.ClientID = id } }
	secret := func(text credential.Secret) change { return func(r *TokenRequest) { r.ClientSecret = text } }
	give := func(name string, value credential.Secret) change {
		return func(r *TokenRequest) { *r = r.with(parameters{name: value}) }
	}
	for _, c := range []struct {
		what, code, words string
		request           TokenRequest
		change            change
	}{
		{"client_credentials", "unsupported_grant_type", "refresh_token.", exchange, grantType("client_credentials")},
		{"password in JSON", "unsupported_grant_type", "", link, grantType("password")},
		{"capitals", "unsupported_grant_type", "", exchange, grantType("Authorization_Code")},
		{"two", "unsupported_grant_type", "", exchange, grantType("authorization_code refresh_token")},
		{"another scheme", "invalid_request", "only one authentication method", exchange, func(r *TokenRequest) {
			r.OtherAuth = true
		}},
		{"JSON from a connector", "invalid_request", "x-www-form-urlencoded", exchange, func(r *TokenRequest) {
			r.Dialect = JSON
		}},
		{"JSON from a connector, refresh", "invalid_request", "x-www-form-urlencoded", refresh, func(r *TokenRequest) {
			r.Dialect = JSON
		}},
		{"a client id that is none", "invalid_client", "unknown", exchange, clientID("app")},
		{"an unknown client", "invalid_client", "unknown", exchange, clientID(uuid.NewString())},
		{"in capitals", "invalid_client", "unknown", exchange, clientID(strings.ToUpper(b.app.PublicID()))},
		{"a wrong secret", "invalid_client", "secret", link, secret("alm_cs_wrong")},
		{"no secret", "invalid_client", "secret", link, secret("")},
		{"forged code", "invalid_grant", "code is unknown", exchange, give("code", "alm_ac_x")},
		{"forged code in JSON", "invalid_grant", "code is unknown", link, give("code", "alm_ac_x")},
		{"forged refresh token", "invalid_grant", "token is unknown", refresh, give("refresh_token", "alm_rt_x")},
		{"a code as refresh token", "invalid_grant", "token is unknown", refresh, give("refresh_token", code)},
		{"another client's code", "invalid_grant", "", exchange, give("code", foreign)},
		{"another kind's code", "invalid_grant", "", link, give("code", code)},
		{"another redirect URI", "invalid_grant", "", exchange, give("redirect_uri", "https://a.example/")},
		{"a longer one", "invalid_grant", "", link, give("redirect_uri", fixture.Callback+"/")},
		{"a part of it", "invalid_grant", "", link,
			give("redirect_uri", credential.Secret(fixture.Callback[:len(fixture.Callback)-1]))},
		{"the same in capitals", "invalid_grant", "", link,
			give("redirect_uri", credential.Secret(strings.ToUpper(fixture.Callback)))},
		{"another verifier", "invalid_grant", "", exchange, give("code_verifier", verifier[1:]+"A")},
		{"the other resource", "invalid_target", "", exchange, give("resource", mcp)},
		{"a resource with a slash", "invalid_target", "", exchange, give("resource", rest+"/")},
		{"a confidential client's other resource", "invalid_target", "", link, give("resource", mcp)},
		{"a refresh at the other resource", "invalid_target", "", refresh, give("resource", mcp)},
		{"a scope beyond the grant", "invalid_scope", "", refresh, give("scope", read+" account:api:access")},
		{"confidential", "unauthorized_client", "no refresh tokens", link, grantType(RefreshToken)},
	} {
		c.change(&c.request)
		if refused := b.refused(c.what, c.request, c.code, c.words); refused.Challenge {
			t.Errorf("%s: a challenge without a header", c.what)
		}
	}
	stranger := exchange.with(parameters{"code": "x"})
	stranger.ClientID = uuid.NewString()
	b.refused("an unknown client with garbage", stranger, "invalid_client", "unknown")
	b.mustToken("the code afterwards", exchange)
	b.mustToken("the code in JSON afterwards", link)
	b.mustToken("the refresh token afterwards", refresh)
}

func TestToken_IdempotencyKeyHasLimits(t *testing.T) {
	b := newTestEnv(t)
	held := b.connect(b.app)
	good := credential.Secret(strings.Repeat("k", 16))
	for _, keys := range [][]credential.Secret{
		{""},
		{good[1:]},
		{credential.Secret(strings.Repeat("k", 256))},
		{good + " "},
		{good + "\x7f"},
		{good + "é"},
		{good, good},
	} {
		b.refused("a malformed key", refreshOf(b.app, held.Refresh).keyed(keys...), "invalid_request")
	}
	for _, key := range []credential.Secret{good, credential.Secret(strings.Repeat("~", 255)), "!!!!!!!!!!!!!!!!"} {
		held = b.mustToken("a key", refreshOf(b.app, held.Refresh).keyed(key))
	}
}

// G11. Only a request with a key is told that its response is repeated.
func TestToken_RepeatIsSaidOnlyToKey(t *testing.T) {
	b := newTestEnv(t)
	key := credential.Secret(strings.Repeat("k", 16))
	held := b.connect(b.app)
	first := b.mustToken("first", refreshOf(b.app, held.Refresh).keyed(key))
	again := b.mustToken("again", refreshOf(b.app, held.Refresh).keyed(key))
	if first.Repeated || !again.Repeated || first.Refresh != again.Refresh || first.Access == again.Access {
		t.Errorf("repeated: %t, then %t", first.Repeated, again.Repeated)
	}
	signed, sign := b.signing()
	held = b.mustToken("exchange", sign(b.exchangeOf(signed, b.codeOf(signed))))
	first = b.mustToken("signed", sign(refreshOf(signed, held.Refresh)))
	again = b.mustToken("signed again", sign(refreshOf(signed, held.Refresh)))
	if again.Repeated || first.Refresh != again.Refresh {
		t.Errorf("signed again: repeated: %t", again.Repeated)
	}
	b.refused("signed, another scope", sign(refreshOf(signed, held.Refresh).with(parameters{"scope": read})),
		"invalid_grant")
}

// A repeated request whose grant was narrowed meanwhile gets no wider scope than the grant.
func TestToken_RepeatAfterNarrowingIsInvalidScope(t *testing.T) {
	b := newTestEnv(t)
	held := b.connect(b.app)
	refresh := refreshOf(b.app, held.Refresh).with(parameters{"scope": both}).keyed("an-unguessable-key")
	b.mustToken("first", refresh)
	b.fixture.Exec(`update account.grants set permissions = array[$2] where id = $1`, held.Grant.ID, read)
	b.refused("after narrowing", refresh, "invalid_scope")
}

// claims returns those of an access token.
func (b *testEnv) wantClaims(what string, tokens Tokens, c client.Client, lifetime time.Duration, scope string) {
	b.Helper()
	claims, err := b.keyring.Public().Verify(tokens.Access.Reveal(), issuer, time.Now())
	testkit.Must(b, err)
	if claims.ClientID != c.PublicID() || claims.Subject != b.user || claims.GrantID != tokens.Grant.ID ||
		claims.WorkspaceID != b.fixture.WorkspaceID || claims.Audience != rest || claims.Scope.Scope() != scope ||
		claims.Expires.Sub(claims.IssuedAt) != lifetime || claims.IssuedAt.After(time.Now().Add(time.Minute)) ||
		tokens.Scope != scope || tokens.ExpiresIn != lifetime || claims.ID == "" {
		b.Errorf("%s: %+v, expires in %s, scope %s; want %s, scope %s", what, claims, tokens.ExpiresIn, tokens.Scope,
			lifetime, scope)
	}
}

func TestToken_AccessTokenOfEachKind(t *testing.T) {
	b := newTestEnv(t)
	held := b.connect(b.app)
	b.wantClaims("connector", held, b.app, time.Hour, both)
	b.wantClaims("no scope", b.mustToken("refresh", refreshOf(b.app, held.Refresh)), b.app, time.Hour, both)
	linked := b.connect(b.linked)
	b.wantClaims("confidential client", linked, b.linked, 90*24*time.Hour, read)
	if linked.Refresh != "" || held.Refresh == "" {
		t.Error("G5: refresh tokens")
	}
	known := b.document(documentHost, nil)
	b.wantClaims("client with a document", b.connect(known), known, time.Hour, read)
	// G4: no access token outlives its grant.
	_, code := b.consentWith(b.app, func(g *grant.Grant, _ *grant.CodeTerms) { g.Life = 20 * time.Minute })
	if short := b.mustToken("exchange", b.exchangeOf(b.app, code)); short.ExpiresIn > 20*time.Minute ||
		short.ExpiresIn < 10*time.Minute {
		t.Errorf("a grant of 20 minutes: %s", short.ExpiresIn)
	}
}

// Contract, section 3: scope narrows the access token, and the refresh token keeps what the grant has.
func TestRefresh_ScopeNarrowsAccessToken(t *testing.T) {
	b := newTestEnv(t)
	held := b.connect(b.app)
	for _, c := range []struct{ scope, want string }{
		{read, read}, {"", both}, {" offline_access  " + read + " ", read}, {"offline_access", both}, {both, both},
	} {
		held = b.mustToken(c.scope, refreshOf(b.app, held.Refresh).with(parameters{
			"scope": credential.Secret(c.scope),
		}))
		b.wantClaims("scope "+c.scope, held, b.app, time.Hour, c.want)
	}
}

// RFC 7636, section 4.1: a verifier has 43 to 128 unreserved characters, even if another one matches the challenge.
func TestExchange_MalformedVerifierMatchesNothing(t *testing.T) {
	b := newTestEnv(t)
	for text, code := range map[string]string{
		strings.Repeat("~", 43):       "",
		strings.Repeat("a", 128):      "",
		strings.Repeat("a", 42):       "invalid_grant",
		strings.Repeat("a", 129):      "invalid_grant",
		strings.Repeat("a", 43) + "+": "invalid_grant",
	} {
		verifier := credential.Secret(text)
		for _, c := range []client.Client{b.app, b.linked} {
			_, issued := b.consentWith(c, func(_ *grant.Grant, terms *grant.CodeTerms) {
				terms.Challenge = grant.ChallengeOf(verifier)
			})
			request := b.exchangeOf(c, issued).with(parameters{"code_verifier": verifier})
			if code == "" {
				b.mustToken(text, request)
			} else {
				b.refused(text, request, code)
			}
		}
	}
	_, bound := b.consentWith(b.linked, func(_ *grant.Grant, terms *grant.CodeTerms) { terms.Challenge = challenge })
	b.refused("a challenge without a verifier", b.exchangeOf(b.linked, bound), "invalid_request")
	b.mustToken("and with it", b.exchangeOf(b.linked, bound).with(parameters{"code_verifier": verifier}))
	_, issued := b.consent(b.linked)
	b.refused("a verifier without a challenge",
		b.exchangeOf(b.linked, issued).with(parameters{"code_verifier": verifier}), "invalid_grant")
}

func TestMapTokenError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		from error
		code string
		same bool
	}{
		{fosite.ErrInvalidGrant, "invalid_request", false},
		{fosite.ErrUnsupportedGrantType.WithWrap(tokenError("own", "x")), "own", false},
		{&grant.Refusal{Message: "m"}, "invalid_grant", false},
		{&grant.Refusal{Code: "invalid_target", Message: "m"}, "invalid_target", false},
		{fosite.ErrServerError, "", true},
		{broken, "", true},
		{store.ErrUnavailable, "", true},
	} {
		got := mapTokenError(c.from)
		if c.same {
			if !errors.Is(got, c.from) {
				t.Errorf("%v became %v", c.from, got)
			}
			continue
		}
		if refused, ok := errors.AsType[*TokenError](got); !ok || refused.Code != c.code {
			t.Errorf("%v became %v, want %s", c.from, got, c.code)
		}
	}
}

// The parameters of a JSON body are those of the spec's exchange (spec 4.3): a form alone has refresh_token and scope.
func TestParameters_AreThoseOfGrantTypes(t *testing.T) {
	t.Parallel()
	if got := GrantTypes(); !slices.Equal(got, []string{"authorization_code", "refresh_token"}) {
		t.Errorf("grant types %v", got)
	}
	want := []string{"code", "redirect_uri", "code_verifier", "resource", "refresh_token"}
	if got := Parameters(); !slices.Equal(got, want) {
		t.Errorf("parameters %v, want %v", got, want)
	}
}

func TestPresented_IsAuthenticCodeOrToken(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent(b.app)
	held := b.connect(b.app)
	for what, c := range map[string]struct {
		given parameters
		want  uuid.UUID
	}{
		"a code":           {parameters{"code": code}, g.ID},
		"a refresh token":  {parameters{"refresh_token": held.Refresh}, held.Grant.ID},
		"both":             {parameters{"code": code, "refresh_token": held.Refresh}, held.Grant.ID},
		"the other's name": {parameters{"refresh_token": code}, uuid.Nil},
		"none":             {nil, uuid.Nil},
	} {
		token, authentic := Presented(b.Grants.Tokens, TokenRequest{Parameters: c.given})
		if token.GrantID != c.want || authentic != (c.want != uuid.Nil) {
			t.Errorf("%s: %s %t, want %s", what, token.GrantID, authentic, c.want)
		}
	}
}
