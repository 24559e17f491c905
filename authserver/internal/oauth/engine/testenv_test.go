package engine

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	issuer = "https://api.example.org"
	rest   = issuer + "/v1"
	mcp    = issuer + "/mcp"

	verifier  = credential.Secret("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") // RFC 7636, appendix B
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"

	read = "programmes:read:programmes"
	both = read + " programmes:write:programmes"
)

// A testEnv is an Engine over real stores with one application of each kind in a workspace of its own.
type testEnv struct {
	*testing.T
	*Engine
	fixture     *fixture.Fixture
	keyring     *keyring.Keyring
	store       *postgres.Store
	user        uuid.UUID
	app, linked client.Client // a connector and a confidential client
	secret      credential.Secret
	last        *exchange // of the last token request
	now         time.Time // of the recorder of refusals, which rounds it to the hour
}

var sharedRedis = testkit.Once(testkit.NewRedis)

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	return testEnvOver(t, fixture.Shared(t))
}

func testEnvOver(t *testing.T, f *fixture.Fixture) *testEnv {
	t.Helper()
	b := &testEnv{T: t, fixture: f, now: time.Now().Truncate(time.Hour).Add(30 * time.Minute)}
	var err error
	b.store, err = postgres.Open(t.Context(), postgres.Only(credential.Secret(f.Database.Authserver)),
		testkit.StoreWait)
	testkit.Must(t, err)
	t.Cleanup(b.store.Close)
	rdb, err := redis.Connect(credential.Fixed(credential.Secret(sharedRedis(t).URL)), testkit.StoreWait)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	codec, err := grant.NewTokenCodec(seal.NewKeys(key))
	testkit.Must(t, err)
	b.keyring, err = keyring.New(b.store, masterKey())
	testkit.Must(t, err)
	testkit.Must(t, b.keyring.Load(t.Context()))
	discard := slog.New(slog.DiscardHandler)
	documents := clientmetadata.New(clientmetadata.Deps{
		Domains: client.Domains{documentHost: "claude"},
		Cache:   b.store,
		Now:     time.Now,
		Log:     discard,
	})
	grants := grant.NewService(b.store, redis.NewGrants(rdb), codec, discard)
	grants.WaitForStores(testkit.StoreWait)
	b.Engine = New(Deps{
		Issuer:       issuer,
		RESTResource: rest,
		Resources:    []string{rest, mcp},
		Clients:      b.store,
		Documents:    documents,
		Assertions: &clientmetadata.Verifier{
			Documents: documents,
			Replays:   redis.NewReplayCache(rdb),
			Audiences: []string{issuer},
			Now:       time.Now,
		},
		Grants: grants,
		Signer: b.keyring,
	})
	b.Observe(b.remember)
	b.RecordRefusals(b.store, func() time.Time { return b.now }, discard)
	b.user = f.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	b.app = f.Connector(rest, perm.ProgrammesRead, perm.ProgrammesWrite)
	b.linked, b.secret = f.Confidential(perm.ProgrammesRead)
	return b
}

func (b *testEnv) remember(_ context.Context, one Outcome) { b.last = one.exchange }

// masterKey seals the signing keys in the database that all tests share.
func masterKey() seal.Keys { return seal.NewKeys(make([]byte, 32)) }

// service registers a service client with a secret.
func (b *testEnv) service() (client.Client, credential.Secret) {
	b.Helper()
	c, secret := b.fixture.Confidential()
	b.fixture.Exec(`update account.oauth_clients set kind = 'service', tenant_id = null,
		token_endpoint_auth_method = 'client_secret_basic' where id = $1`, c.ID)
	c.Kind = client.Service
	return c, secret
}

// documentHost serves the metadata documents of the test's clients. No test reaches it.
const documentHost = "client.example"

// document stores a client with a metadata document on a host, read just now, and a key set or none.
func (b *testEnv) document(host string, keys []byte) client.Client {
	b.Helper()
	c := client.Client{
		Kind:       client.Connector,
		Name:       "Claude",
		Platform:   "claude",
		Address:    "https://" + host + "/" + uuid.NewString(),
		Redirects:  []string{fixture.Callback},
		Required:   perm.NewSet(perm.ProgrammesRead),
		AuthMethod: client.AuthNone,
		Keys:       keys,
	}
	c.ID, _ = accesstoken.ClientID(c.Address)
	if keys != nil {
		c.AuthMethod = client.PrivateKeyJWT
	}
	testkit.Must(b, b.store.StoreClientCopy(b.Context(), client.CachedClient{
		Client:     c,
		FetchedAt:  time.Now(),
		FreshUntil: time.Now().Add(time.Hour),
	}))
	return c
}

// consent returns a new grant of a client with its code, for a resource: that of the client, or REST.
func (b *testEnv) consent(c client.Client) (grant.Grant, credential.Secret) {
	b.Helper()
	return b.consentWith(c, func(*grant.Grant, *grant.CodeTerms) {})
}

// signing stores a client whose document has a key, and returns it with a function that signs its requests.
func (b *testEnv) signing() (client.Client, func(TokenRequest) TokenRequest) {
	b.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(b, err)
	key := jose.JSONWebKey{Key: private, KeyID: "k"}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	testkit.Must(b, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	testkit.Must(b, err)
	c := b.document(documentHost, keys)
	return c, func(r TokenRequest) TokenRequest {
		claims, err := json.Marshal(map[string]any{
			"iss": c.Address,
			"sub": c.Address,
			"aud": issuer,
			"exp": time.Now().Add(time.Minute).Unix(),
			"jti": uuid.NewString(),
		})
		testkit.Must(b, err)
		signed, err := signer.Sign(claims)
		testkit.Must(b, err)
		text, err := signed.CompactSerialize()
		testkit.Must(b, err)
		r.Assertion, r.AssertionType = credential.Secret(text), jwtBearer
		return r
	}
}

// codeOf is consent without the grant.
func (b *testEnv) codeOf(c client.Client) credential.Secret {
	b.Helper()
	_, code := b.consent(c)
	return code
}

// consentWith is consent with changes.
func (b *testEnv) consentWith(
	c client.Client, change func(*grant.Grant, *grant.CodeTerms),
) (grant.Grant, credential.Secret) {
	b.Helper()
	g := grant.Grant{
		ID:          uuid.New(),
		Kind:        c.Kind,
		ClientID:    c.ID,
		UserID:      b.user,
		WorkspaceID: b.fixture.WorkspaceID,
		Permissions: c.Required,
		Resource:    cmp.Or(c.Resource, rest),
		Life:        c.Kind.Traits().GrantLife,
	}
	terms := grant.CodeTerms{ClientID: c.ID, RedirectURI: fixture.Callback, Resource: g.Resource}
	if c.Kind == client.Connector {
		terms.Challenge = challenge
	}
	change(&g, &terms)
	code, err := b.Grants.Open(b.Context(), g, terms)
	testkit.Must(b, err)
	return g, code
}

// parameters are parameters of a token request by name.
type parameters map[string]credential.Secret

// exchangeOf returns the token request of a client with a code.
func (b *testEnv) exchangeOf(c client.Client, code credential.Secret) TokenRequest {
	r := TokenRequest{Dialect: JSON, GrantType: "authorization_code", ClientID: c.PublicID()}
	r.Parameters = parameters{"code": code, "redirect_uri": fixture.Callback}
	if c.Kind == client.Connector {
		r.Dialect = Form
		r.Parameters["code_verifier"], r.Parameters["resource"] = verifier, credential.Secret(cmp.Or(c.Resource, rest))
	} else {
		r.ClientSecret = b.secret
	}
	return r
}

// refreshOf returns the token request of a client with a refresh token.
func refreshOf(c client.Client, token credential.Secret) TokenRequest {
	resource := credential.Secret(cmp.Or(c.Resource, rest))
	return TokenRequest{
		Dialect:    Form,
		GrantType:  RefreshToken,
		ClientID:   c.PublicID(),
		Parameters: parameters{"refresh_token": token, "resource": resource},
	}
}

// with returns the request with other parameters; those with the value "" are missing.
func (t TokenRequest) with(changes parameters) TokenRequest {
	t.Parameters = maps.Clone(t.Parameters)
	maps.Copy(t.Parameters, changes)
	return t
}

// keyed returns the request with Idempotency-Keys.
func (t TokenRequest) keyed(keys ...credential.Secret) TokenRequest {
	t.IdempotencyKeys = keys
	return t
}

// mustToken requires tokens.
func (b *testEnv) mustToken(what string, r TokenRequest) Tokens {
	b.Helper()
	tokens, err := b.Token(b.Context(), r)
	if err != nil {
		b.Fatalf("%s: %v, want tokens", what, err)
	}
	return tokens
}

// connect consents for a connector and redeems the code.
func (b *testEnv) connect(c client.Client) Tokens {
	b.Helper()
	_, code := b.consent(c)
	return b.mustToken("exchange", b.exchangeOf(c, code))
}

// refused requires a refusal with a code and words, and returns it.
func (b *testEnv) refused(what string, r TokenRequest, code string, words ...string) *TokenError {
	b.Helper()
	_, err := b.Token(b.Context(), r)
	return b.wantRefusal(what, err, code, words...)
}

func (b *testEnv) wantRefusal(what string, err error, code string, words ...string) *TokenError {
	b.Helper()
	refused, ok := errors.AsType[*TokenError](err)
	if !ok {
		b.Fatalf("%s: %v, want %s", what, err, code)
	}
	text := strings.Join(words, " ")
	if refused.Code != code || refused.Description == "" || !strings.Contains(refused.Description, text) {
		b.Errorf("%s: %v, want %s with %q", what, err, code, text)
	}
	return refused
}

// query returns a valid authorization request of a client, changed by pairs of name and value; the value "-" removes a
// name.
func (b *testEnv) query(c client.Client, changes ...string) string {
	values := url.Values{"client_id": {c.PublicID()}, "redirect_uri": {fixture.Callback}, "state": {"s"}}
	if c.Kind == client.Connector {
		values.Set("response_type", "code")
		values.Set("resource", cmp.Or(c.Resource, rest))
		values.Set("code_challenge", challenge)
		values.Set("code_challenge_method", "S256")
	}
	for i := 0; i+1 < len(changes); i += 2 {
		values.Set(changes[i], changes[i+1])
		if changes[i+1] == "-" {
			values.Del(changes[i])
		}
	}
	return values.Encode()
}

// redirected requires that an authorization request is refused with a code and a state, to its redirect URI.
func (b *testEnv) redirected(what, query, code, state string) {
	b.Helper()
	_, err := b.ask(query)
	refused, ok := errors.AsType[*RedirectError](err)
	if !ok || refused.Code != code || refused.State != state || refused.Description == "" {
		b.Errorf("%s: %v, want %s redirected with state %q", what, err, code, state)
	}
}

// shown requires that an authorization request is refused with a page.
func (b *testEnv) shown(what, query string) {
	b.Helper()
	_, err := b.ask(query)
	if page, ok := errors.AsType[*PageError](err); !ok || page.Message == "" {
		b.Errorf("%s: %v, want a page", what, err)
	}
}

// count runs a query for one number.
func (b *testEnv) count(query string, args ...any) (n int) {
	b.Helper()
	testkit.Must(b, b.fixture.Owner.QueryRow(b.Context(), query, args...).Scan(&n))
	return n
}

func (b *testEnv) ask(query string) (consent.Request, error) {
	b.Helper()
	app, err := b.Identify(b.Context(), query)
	if err != nil {
		return consent.Request{}, err
	}
	return b.ParseAuthorization(b.Context(), app)
}
