package token_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// describe makes the client of a metadata document the one that acts.
func (b *testEnv) describe(changes map[string]any) {
	b.t.Helper()
	b.name = b.Clients.Client("/oauth/client", changes, fixture.Callback)
	b.app.Resource = apitest.MCP
}

// code returns the code of a new consent to the described client.
func (b *testEnv) code() (grant.Grant, credential.Secret) {
	b.t.Helper()
	c, err := b.Documents.Client(b.t.Context(), b.name)
	b.Must(err)
	c.Resource, c.Required = apitest.MCP, perm.NewSet(perm.ProgrammesRead)
	return b.Consent(c, b.user)
}

// A signer is a testEnv whose client signs assertions.
type signer struct {
	*testEnv
	key jose.JSONWebKey
}

// signs describes a client whose keys are published next to its document.
func signs(b *testEnv) *signer {
	b.t.Helper()
	d := &signer{testEnv: b, key: newKey(b.t, "first")}
	d.publish(d.key)
	d.describe(map[string]any{
		"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": b.Clients.URL + "/oauth/jwks.json",
	})
	return d
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	return signs(newTestEnv(t))
}

func newKey(t *testing.T, id string) jose.JSONWebKey {
	t.Helper()
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return jose.JSONWebKey{Key: raw, KeyID: id}
}

func (d *signer) publish(keys ...jose.JSONWebKey) {
	out := make([]jose.JSONWebKey, len(keys))
	for i, key := range keys {
		out[i] = key.Public()
	}
	d.Clients.Put("/oauth/jwks.json", map[string]any{"keys": out})
}

const bearer = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// proof returns the parameters of a client assertion, with changes to its claims.
func (d *signer) proof(key jose.JSONWebKey, changes ...any) []string {
	d.t.Helper()
	claims := map[string]any{
		"iss": d.name,
		"sub": d.name,
		"aud": []string{apitest.Issuer},
		"jti": uuid.NewString(),
		"iat": d.Now().Unix(),
		"exp": d.Now().Add(time.Minute).Unix(),
	}
	for i := 0; i+1 < len(changes); i += 2 {
		claims[changes[i].(string)] = changes[i+1]
	}
	signing, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	d.Must(err)
	signed, err := jwt.Signed(signing).Claims(claims).Serialize()
	d.Must(err)
	return []string{"client_assertion_type", bearer, "client_assertion", signed}
}

// signed refreshes with a new assertion.
func (d *signer) signed(token credential.Secret) apitest.Answer {
	d.t.Helper()
	return d.refresh(token, d.proof(d.key)...)
}

func TestDocumentClient_UsesItsURLAsClientID(t *testing.T) {
	b := inTurn(t)
	b.describe(nil)
	g, code := b.code()
	first := b.exchangeCode(code)
	b.given("exchange", first)
	b.Clients.Fail(http.StatusBadGateway) // from here on, the metadata host is not needed
	b.Wait(48 * time.Hour)
	second := b.refresh(tokenIn(first))
	b.given("refresh", second)
	b.Wait(-48 * time.Hour)
	claims := b.claims(second)
	if claims.ClientID != b.name || claims.GrantID != g.ID || claims.WorkspaceID != b.Fixture.WorkspaceID ||
		claims.Audience != apitest.MCP {
		t.Errorf("claims: %+v", claims)
	}
	introspected := b.introspect(credential.Secret(second.Text("access_token")))
	b.WantsMembers("introspection", introspected, map[string]any{"active": true, "client_id": b.name})
	b.Equal("requests to the metadata host", b.Clients.Requests(), 1)
	revoke := b.Form(apitest.RevokePath, "client_id", b.name, "token", second.Text("refresh_token"))
	b.wantOK("revocation", revoke)
	b.wantRevoked("revocation", g, grant.ByClient)
	b.Wants("refresh after that", b.refresh(tokenIn(second)), 400, "invalid_grant")
}

func TestAssertion_RequiredForEveryRequest(t *testing.T) {
	d := newSigner(t)
	g, code := d.code()
	for name, proof := range map[string][]string{
		"nothing":          nil,
		"a secret":         {"client_secret", "alm_cs_x"},
		"another type":     {"client_assertion_type", "urn:x", "client_assertion", d.proof(d.key)[3]},
		"no type":          {"client_assertion", d.proof(d.key)[3]},
		"another's key":    d.proof(newKey(t, "first")),
		"another audience": d.proof(d.key, "aud", "https://evil.example"), // package clientmetadata has the others
	} {
		answer := d.exchangeCode(code, proof...)
		d.Wants(name, answer, 400, "invalid_client")
		d.WantsHeader(name, answer, "WWW-Authenticate", "")
	}
	proof := d.proof(d.key)
	held := d.exchangeCode(code, proof...)
	d.given("exchange", held)
	d.Wants("the same proof again", d.refresh(tokenIn(held), proof...), 400, "invalid_client")
	d.Wants("without a proof", d.refresh(tokenIn(held)), 400, "invalid_client")
	held = d.refresh(tokenIn(held), d.proof(d.key, "aud", apitest.Issuer+apitest.TokenPath)...)
	d.given("refresh", held)
	held = d.refresh(tokenIn(held), append(d.proof(d.key), "client_id", "-")...)
	d.given("without client_id", held)
	revoke := []string{"client_id", d.name, "token", held.Text("refresh_token")}
	d.Wants("revocation without a proof", d.Form(apitest.RevokePath, revoke...), 400, "invalid_client")
	d.wantActive("a request without an assertion", g)
	d.wantOK("revocation", d.Form(apitest.RevokePath, append(revoke, d.proof(d.key)...)...))
	d.wantRevoked("revocation", g, grant.ByClient)
}

// Only Redis stores which assertions were accepted. After a loss of data, an assertion is accepted again until it
// expires; the code or refresh token sent with it is not, because Postgres records its use.
func TestAssertion_ReplayAfterRedisLossRevokesGrant(t *testing.T) {
	d := signs(inTurn(t))
	exchanged, code := d.code()
	exchangeProof, refreshProof := d.proof(d.key), d.proof(d.key)
	d.given("exchange", d.exchangeCode(code, exchangeProof...))
	refreshed, other := d.code()
	first := d.exchangeCode(other, d.proof(d.key)...)
	second := d.refresh(tokenIn(first), refreshProof...)
	d.given("refresh", second)

	d.Must(d.Parts.Redis.FlushAll(t.Context()).Err())
	d.Wants("the exchange again", d.exchangeCode(code, exchangeProof...), 400, "invalid_grant")
	d.Wants("the refresh again", d.refresh(tokenIn(first), refreshProof...), 400, "invalid_grant")
	d.wantRevoked("the exchange again", exchanged, grant.CodeReused)
	d.wantRevoked("the refresh again", refreshed, grant.Replayed)
	d.Wants("the newest token, after the repetition", d.signed(tokenIn(second)), 400, "invalid_grant")
}

func TestAssertion_KeysRotate(t *testing.T) {
	d := signs(inTurn(t))
	_, code := d.code()
	held := d.exchangeCode(code, d.proof(d.key)...)
	d.given("exchange", held)
	former, next := d.key, newKey(t, "second")
	d.publish(former, next)
	d.Wait(31 * time.Second)
	d.key = next
	held = d.signed(tokenIn(held))
	d.given("a new key", held)
	d.publish(next)
	d.Wait(25 * time.Hour)
	d.Wants("a removed key", d.refresh(tokenIn(held), d.proof(former)...), 400, "invalid_client")
	d.Clients.Fail(http.StatusBadGateway)
	d.Wait(25 * time.Hour)
	held = d.signed(tokenIn(held))
	d.given("while the document cannot be read", held)
	d.Wait(client.CacheLife)
	d.Wants("after a week of that", d.signed(tokenIn(held)), 503, "temporarily_unavailable")
	d.Clients.Fail(http.StatusOK)
	d.Wait(31 * time.Second)
	d.given("after the document can be read again", d.signed(tokenIn(held)))
}

func TestAssertion_RefusedWithoutRedis(t *testing.T) {
	d := signs(inTurn(t))
	_, code := d.code()
	held := d.exchangeCode(code, d.proof(d.key)...)
	d.given("exchange", held)
	d.Redis.Stop()
	revoke := append(d.proof(d.key), "client_id", d.name, "token", held.Text("refresh_token"))
	d.Wants("revocation", d.Form(apitest.RevokePath, revoke...), 503, "temporarily_unavailable")
}
