package token_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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
)

// described is a server with a client that has a metadata document, and a user who consents in the fixture's workspace.
type described struct {
	*apitest.Server
	t       *testing.T
	user    uuid.UUID
	address string
	key     jose.JSONWebKey // of a client that signs assertions
}

func newDescribed(t *testing.T, changes map[string]any) *described {
	t.Helper()
	d := &described{Server: apitest.Own(t), t: t}
	d.user = d.Fixture.Member(perm.ProgrammesRead)
	d.address = d.Clients.Client("/oauth/client", changes, fixture.Callback)
	return d
}

func newKey(t *testing.T, id string) jose.JSONWebKey {
	t.Helper()
	raw, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: raw, KeyID: id}
}

func public(keys ...jose.JSONWebKey) map[string]any {
	out := make([]jose.JSONWebKey, len(keys))
	for i, key := range keys {
		out[i] = key.Public()
	}
	return map[string]any{"keys": out}
}

// newSigner returns a described client whose keys are published next to its document.
func newSigner(t *testing.T) *described {
	t.Helper()
	d := newDescribed(t, nil)
	d.key = newKey(t, "first")
	d.publish(d.key)
	d.Clients.Client("/oauth/client", map[string]any{
		"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://" + d.Clients.Name() + "/oauth/jwks.json",
	}, fixture.Callback)
	return d
}

func (d *described) publish(keys ...jose.JSONWebKey) {
	d.Clients.Put("/oauth/jwks.json", public(keys...))
}

// code returns the code of a new consent of the user.
func (d *described) code() (grant.Grant, string) {
	d.t.Helper()
	c, err := d.Documents.Client(d.t.Context(), d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	g := grant.Grant{
		ID:          uuid.New(),
		Kind:        c.Kind,
		ClientID:    c.ID,
		UserID:      d.user,
		WorkspaceID: d.Fixture.WorkspaceID,
		Permissions: perm.NewSet(perm.ProgrammesRead),
		Resource:    apitest.MCP,
		Ends:        time.Now().Add(c.Kind.Traits().GrantLife),
	}
	code, err := d.Grants.Open(d.t.Context(), g, grant.CodeTerms{
		ClientID:    c.ID,
		RedirectURI: fixture.Callback,
		Resource:    g.Resource,
		Challenge:   grant.ChallengeOf(apitest.Verifier),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return g, code.Reveal()
}

func (d *described) exchange(code string, more ...string) apitest.Answer {
	return d.Form(
		apitest.TokenPath,
		append([]string{"grant_type", "authorization_code", "client_id", d.address, "resource", apitest.MCP,
			"code", code, "code_verifier", apitest.Verifier, "redirect_uri", fixture.Callback}, more...)...)
}

func (d *described) refresh(token string, more ...string) apitest.Answer {
	return d.Form(
		apitest.TokenPath,
		append([]string{"grant_type", "refresh_token", "client_id", d.address, "resource", apitest.MCP,
			"refresh_token", token}, more...)...)
}

func (d *described) wants(what string, answer apitest.Answer, status int, code string) {
	d.t.Helper()
	if answer.Status != status || answer.Text("error") != code {
		d.t.Errorf("%s: %d %s, want %d %s", what, answer.Status, answer.Body, status, code)
	}
}

func TestDocumentClient_UsesItsURLAsClientID(t *testing.T) {
	t.Parallel()
	d := newDescribed(t, nil)
	service := d.Service()
	g, code := d.code()
	first := d.exchange(code)
	d.wants("exchange", first, 200, "")
	d.Clients.Fail(http.StatusBadGateway) // from here on, the metadata host is not needed
	d.Wait(48 * time.Hour)
	second := d.refresh(first.Text("refresh_token"))
	d.wants("refresh", second, 200, "")
	d.Wait(-48 * time.Hour)
	claims := (&testEnv{Server: d.Server, t: t}).claims(second)
	if claims.ClientID != d.address || claims.GrantID != g.ID || claims.WorkspaceID != d.Fixture.WorkspaceID ||
		claims.Audience != apitest.MCP {
		t.Errorf("claims: %+v", claims)
	}
	introspected := d.FormWith(
		apitest.IntrospectPath,
		apitest.Basic(service.ID.String(), service.Secret),
		"token",
		second.Text("access_token"),
	)
	if introspected.Object()["active"] != true || introspected.Text("client_id") != d.address {
		t.Errorf("introspection: %d %s", introspected.Status, introspected.Body)
	}
	if fetches := d.Clients.Requests(); fetches != 1 {
		t.Errorf("the metadata host received %d requests", fetches)
	}
	revoked := d.Form(apitest.RevokePath, "client_id", d.address, "token", second.Text("refresh_token"))
	if revoked.Status != 200 || d.Stored(g).State != grant.Revoked {
		t.Errorf("revocation: %d %s", revoked.Status, d.Stored(g).State)
	}
	d.wants("refresh after that", d.refresh(second.Text("refresh_token")), 400, "invalid_grant")
}

func TestDocumentClient_OtherNamesAreRefused(t *testing.T) {
	t.Parallel()
	d := newDescribed(t, nil)
	g, code := d.code()
	held := d.exchange(code)
	for _, name := range []string{
		g.ClientID.String(),
		d.address + "/",
		strings.ToUpper(d.address),
		"https://claude.ai/oauth/other",
		"https://" + d.Clients.Name() + "/oauth/../oauth/client",
	} {
		d.wants(
			name,
			d.Form(apitest.TokenPath, "grant_type", "refresh_token", "client_id", name, "resource", apitest.MCP,
				"refresh_token", held.Text("refresh_token")),
			400,
			"invalid_client",
		)
		d.wants(
			name,
			d.Form(apitest.RevokePath, "client_id", name, "token", held.Text("refresh_token")),
			400,
			"invalid_client",
		)
	}
	if d.Stored(g).State != grant.Active {
		t.Error("a wrong client_id revoked the grant")
	}
}

func TestDocumentClient_UnlistedDomainIsRefused(t *testing.T) {
	t.Parallel()
	d := newDescribed(t, nil)
	g, code := d.code()
	held := d.exchange(code)
	// The store has a client of a host that the deployment no longer lists.
	elsewhere := strings.Replace(d.address, d.Clients.Name(), "gone.example", 1)
	document := client.Document{ClientID: elsewhere, Redirects: []string{fixture.Callback}}
	moved, err := document.Accept(elsewhere, "claude")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Store.StoreClientCopy(t.Context(), client.CachedClient{
		Client:     moved,
		FetchedAt:  d.Now(),
		FreshUntil: d.Now().Add(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	d.Fixture.Exec(`update account.grants set client_id = $2 where id = $1`, g.ID, moved.ID)
	answer := d.Form(apitest.TokenPath, "grant_type", "refresh_token", "client_id", elsewhere, "resource", apitest.MCP,
		"refresh_token", held.Text("refresh_token"))
	d.wants("refresh", answer, 400, "invalid_client")
	d.wants(
		"revoke",
		d.Form(apitest.RevokePath, "client_id", elsewhere, "token", held.Text("refresh_token")),
		400,
		"invalid_client",
	)
}

const bearer = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// proof returns the parameters of a client assertion, with changes to its claims.
func (d *described) proof(key jose.JSONWebKey, changes ...any) []string {
	d.t.Helper()
	claims := map[string]any{
		"iss": d.address,
		"sub": d.address,
		"aud": []string{apitest.Issuer},
		"jti": uuid.NewString(),
		"iat": d.Now().Unix(),
		"exp": d.Now().Add(time.Minute).Unix(),
	}
	for i := 0; i+1 < len(changes); i += 2 {
		claims[changes[i].(string)] = changes[i+1]
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	signed, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		d.t.Fatal(err)
	}
	return []string{"client_assertion_type", bearer, "client_assertion", signed}
}

func TestAssertion_RequiredForEveryRequest(t *testing.T) {
	t.Parallel()
	d := newSigner(t)
	g, code := d.code()
	for name, proof := range map[string][]string{
		"nothing":          nil,
		"a secret":         {"client_secret", "alm_cs_x"},
		"another type":     {"client_assertion_type", "urn:x", "client_assertion", d.proof(d.key)[3]},
		"no type":          {"client_assertion", d.proof(d.key)[3]},
		"garbage":          {"client_assertion_type", bearer, "client_assertion", "a.b.c"},
		"another's key":    d.proof(newKey(t, "first")),
		"a key not there":  d.proof(newKey(t, "second")),
		"another audience": d.proof(d.key, "aud", "https://evil.example"),
		"another client":   d.proof(d.key, "sub", "https://claude.ai/x"),
	} {
		answer := d.exchange(code, proof...)
		d.wants(name, answer, 400, "invalid_client")
		if answer.Header.Get("WWW-Authenticate") != "" || answer.Text("error_description") == "" {
			t.Errorf("%s: %v", name, answer.Header)
		}
	}
	proof := d.proof(d.key)
	held := d.exchange(code, proof...)
	d.wants("exchange", held, 200, "")
	d.wants("the same proof again", d.refresh(held.Text("refresh_token"), proof...), 400, "invalid_client")
	d.wants("without a proof", d.refresh(held.Text("refresh_token")), 400, "invalid_client")
	held = d.refresh(held.Text("refresh_token"), d.proof(d.key, "aud", apitest.Issuer+apitest.TokenPath)...)
	d.wants("refresh", held, 200, "")
	withoutID := append(
		[]string{"grant_type", "refresh_token", "resource", apitest.MCP, "refresh_token", held.Text("refresh_token")},
		d.proof(d.key)...)
	held = d.Form(apitest.TokenPath, withoutID...)
	d.wants("without client_id", held, 200, "")
	revoke := []string{"client_id", d.address, "token", held.Text("refresh_token")}
	d.wants("revocation without a proof", d.Form(apitest.RevokePath, revoke...), 400, "invalid_client")
	if d.Stored(g).State != grant.Active {
		t.Error("a request without an assertion revoked the grant")
	}
	if answer := d.Form(apitest.RevokePath, append(revoke, d.proof(d.key)...)...); answer.Status != 200 ||
		d.Stored(g).State != grant.Revoked {
		t.Errorf("revocation: %d %s", answer.Status, answer.Body)
	}
	if strings.Contains(d.Log.String(), proof[3]) {
		t.Error("an assertion is in the log")
	}
}

func TestAssertion_AcceptedOnce(t *testing.T) {
	t.Parallel()
	d := newSigner(t)
	const racers = 20
	codes := make([]string, racers)
	for i := range codes {
		_, codes[i] = d.code()
	}
	proof := d.proof(d.key)
	var accepted atomic.Int32
	var group sync.WaitGroup
	for _, code := range codes {
		group.Go(func() {
			if d.exchange(code, proof...).Status == 200 {
				accepted.Add(1)
			}
		})
	}
	group.Wait()
	if accepted.Load() != 1 {
		t.Errorf("%d requests were accepted", accepted.Load())
	}
}

// Only Redis stores which assertions were accepted. After a loss of data, an assertion is accepted again until it
// expires; the code or refresh token sent with it is not, because Postgres records its use.
func TestAssertion_ReplayAfterRedisLossRevokesGrant(t *testing.T) {
	t.Parallel()
	d := newSigner(t)
	exchanged, code := d.code()
	exchangeProof, refreshProof := d.proof(d.key), d.proof(d.key)
	d.wants("exchange", d.exchange(code, exchangeProof...), 200, "")
	refreshed, other := d.code()
	first := d.exchange(other, d.proof(d.key)...)
	second := d.refresh(first.Text("refresh_token"), refreshProof...)
	d.wants("refresh", second, 200, "")

	if err := d.Parts.Redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	d.wants("the exchange again", d.exchange(code, exchangeProof...), 400, "invalid_grant")
	d.wants("the refresh again", d.refresh(first.Text("refresh_token"), refreshProof...), 400, "invalid_grant")
	for what, g := range map[string]grant.Grant{"exchanged": exchanged, "refreshed": refreshed} {
		if d.Stored(g).State != grant.Revoked {
			t.Errorf("%s: a repeated request did not revoke its grant", what)
		}
	}
	d.wants(
		"the newest token, after the repetition",
		d.refresh(second.Text("refresh_token"), d.proof(d.key)...),
		400,
		"invalid_grant",
	)
}

func TestAssertion_KeysRotate(t *testing.T) {
	t.Parallel()
	d := newSigner(t)
	_, code := d.code()
	held := d.exchange(code, d.proof(d.key)...)
	d.wants("exchange", held, 200, "")
	next := newKey(t, "second")
	d.publish(d.key, next)
	d.Wait(31 * time.Second)
	held = d.refresh(held.Text("refresh_token"), d.proof(next)...)
	d.wants("a new key", held, 200, "")
	d.publish(next)
	d.Wait(25 * time.Hour)
	d.wants("a removed key", d.refresh(held.Text("refresh_token"), d.proof(d.key)...), 400, "invalid_client")
	d.Clients.Fail(http.StatusBadGateway)
	d.Wait(25 * time.Hour)
	held = d.refresh(held.Text("refresh_token"), d.proof(next)...)
	d.wants("while the document cannot be read", held, 200, "")
	d.Wait(client.CacheLife)
	answer := d.refresh(held.Text("refresh_token"), d.proof(next)...)
	d.wants("after a week of that", answer, 503, "temporarily_unavailable")
	d.Clients.Fail(http.StatusOK)
	d.Wait(31 * time.Second)
	d.wants("after the document can be read again", d.refresh(held.Text("refresh_token"), d.proof(next)...), 200, "")
}

func TestAssertion_RefusedWithoutRedis(t *testing.T) {
	t.Parallel()
	d := newSigner(t)
	_, code := d.code()
	held := d.exchange(code, d.proof(d.key)...)
	d.wants("exchange", held, 200, "")
	d.Redis.Stop()
	answer := d.Form(
		apitest.RevokePath,
		append([]string{"client_id", d.address, "token", held.Text("refresh_token")}, d.proof(d.key)...)...)
	d.wants("revocation", answer, 503, "temporarily_unavailable")
	if answer.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
