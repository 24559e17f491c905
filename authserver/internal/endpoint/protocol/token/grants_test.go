package token_test

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// stranger returns the client_id of another connector of the workspace.
func (b *testEnv) stranger() string {
	b.t.Helper()
	return b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead).ID.String()
}

func TestExchange_FifthMismatchRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.Consent(b.app, b.user)
	stranger := b.stranger()
	for range 6 {
		b.Wants("another client does not count", b.exchangeCode(code, "client_id", stranger), 400, "invalid_grant")
	}
	b.Wants("1", b.exchangeCode(code, "redirect_uri", "https://example.org"), 400, "invalid_grant")
	b.Wants("2", b.exchangeCode(code, "code_verifier", "x"), 400, "invalid_grant")
	b.Wants("3", b.exchangeCode(code, "resource", apitest.MCP), 400, "invalid_target")
	b.Wants("4", b.exchangeCode(code, "resource", apitest.MCP), 400, "invalid_target")
	b.WantsGrant("after four", g, grant.Pending, "")
	b.Wants("5", b.exchangeCode(code, "code_verifier", "x"), 400, "invalid_grant")
	b.wantRevoked("after five", g, grant.CodeGuessed)
	b.Wants("the right one, too late", b.exchangeCode(code), 400, "invalid_grant")

	_, code = b.Consent(b.app, b.user)
	b.exchangeCode(code, "code_verifier", "x")
	b.given("after one mismatch", b.exchangeCode(code))
}

func TestRefresh_SupersededTokenRevokesGrant(t *testing.T) {
	b := newTestEnv(t)
	for what, changes := range map[string][]string{
		"as it was":             nil,
		"with a wrong resource": {"resource", apitest.MCP},
	} {
		held := b.connected()
		second := b.Refreshed(b.app, held)
		b.Wants(what, b.refresh(held.Refresh, changes...), 400, "invalid_grant")
		b.wantRevoked(what, held.Grant, grant.Replayed)
		b.Wants("the current one then", b.refresh(second.Refresh), 400, "invalid_grant")
	}
	held := b.connected()
	b.Refreshed(b.app, held)
	b.endMembership()
	b.Wants("superseded and no longer a member", b.refresh(held.Refresh), 400, "invalid_grant")
	b.wantRevoked("superseded and no longer a member", held.Grant, grant.Replayed)
}

// A replay is recorded with the network and the program that it came from, shortened.
func TestRefresh_ReplayNamesItsOriginShortened(t *testing.T) {
	b := newTestEnv(t)
	for _, c := range [][4]string{
		{"203.0.113.77", "203.0.113.0/24", "sync/1.2 (linux)", "sync/1.2 (linux)"},
		{"::ffff:203.0.113.77", "203.0.113.0/24", "a\tb\u202ec\xff \"d\"", "abc d"},
		{"2001:db8:1:2::3", "2001:db8:1::/48", strings.Repeat("x", 61), strings.Repeat("x", 60)},
		{"fe80::1%eth0", "fe80::/48", "", ""},
	} {
		held := b.connected()
		b.Refreshed(b.app, held)
		replay := b.refresh(held.Refresh, "X-Forwarded-For:", c[0], "User-Agent:", c[2])
		b.Wants(c[0], replay, 400, "invalid_grant")
		reuse := b.Stored(held.Grant).Reuse
		if reuse == nil || reuse.Network != c[1] || reuse.UserAgent != c[3] {
			t.Errorf("from %s by %q: recorded as %+v, want %q by %q", c[0], c[2], reuse, c[1], c[3])
		}
	}
}

func TestToken_RefusalConsumesNothing(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	_, code := b.Consent(b.app, b.user)
	_, linked := b.Consent(b.linked, b.user)
	b.Wants("a wrong resource", b.refresh(held.Refresh, "resource", apitest.MCP), 400, "invalid_target")
	b.Wants("another client", b.refresh(held.Refresh, "client_id", b.stranger()), 400, "invalid_grant")
	// More often than the mismatches that revoke a grant.
	refused := func(what string, tries ...func() apitest.Answer) {
		t.Helper()
		for range 6 {
			for _, try := range tries {
				b.Wants(what, try(), 400, "invalid_grant")
			}
		}
	}
	refresh := func() apitest.Answer { return b.refresh(held.Refresh) }
	exchange := func() apitest.Answer { return b.exchangeCode(code) }
	link := func() apitest.Answer { return b.linkCode(linked) }
	b.Fixture.SetLLM(false)
	refused("LLM integration off", refresh, exchange)
	b.given("confidential client, LLM integration off", b.link())
	b.Fixture.SetLLM(true)
	b.SetPermissions(b.user, perm.EngageReadForms)
	refused("no permission left", refresh, exchange, link)
	b.SetPermissions(b.user, perm.ProgrammesRead)
	b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, b.user)
	refused("a disabled user", refresh, exchange, link)
	b.Fixture.Exec(`update account.users set disabled_at = null where id = $1`, b.user)
	b.endMembership()
	refused("no member", refresh, exchange, link)
	b.Fixture.Join(b.Fixture.WorkspaceID, b.user, perm.ProgrammesRead)
	b.given("the same refresh token afterwards", b.refresh(held.Refresh))
	b.given("the same code afterwards", b.exchangeCode(code))
	b.given("the same code in JSON afterwards", b.linkCode(linked))
}

// A service that cannot read its signing keys uses up no code, and says of no token that it is inactive or revoked.
func TestToken_WithoutSigningKeysIs503(t *testing.T) {
	foreign := newTestEnv(t).connected().Access
	s := apitest.New(t)
	s.Fixture.Exec(`alter table account.signing_keys rename to signing_keys_hidden`)
	s.Serve()
	b := testEnvOf(t, s)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	_, code := b.Consent(b.app, b.user)
	for what, answer := range map[string]apitest.Answer{
		"exchange":                         b.exchangeCode(code),
		"introspection of an access token": b.introspect(foreign),
		"introspection of garbage":         b.introspect("a.b.c"),
		"introspection of a personal one":  b.introspect(personal),
		"revocation":                       b.revoke(b.app, foreign),
	} {
		b.Wants(what, answer, 503, "temporarily_unavailable")
	}
	b.Fixture.Exec(`alter table account.signing_keys_hidden rename to signing_keys`)
	b.given("exchange with a key", b.exchangeCode(code))
	b.inactive("garbage", "a.b.c")
	b.active("personal access token", personal)
}

// age makes the code of a pending grant older by seconds, in Redis, where its lifetime is stored.
func (b *testEnv) age(g grant.Grant, seconds int) {
	b.t.Helper()
	key := "g:{" + g.ID.String() + "}"
	b.Must(b.Parts.Redis.HIncrBy(b.t.Context(), key, "cx", -1000*int64(seconds)).Err())
}

func TestExchange_CodeExpiresAfter60Seconds(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.Consent(b.app, b.user)
	b.age(g, 61)
	b.Wants("an old code", b.exchangeCode(code), 400, "invalid_grant")
	g, code = b.Consent(b.linked, b.user)
	b.age(g, 61)
	b.Wants("an old code in JSON", b.linkCode(code), 400, "invalid_grant")
	await.True(t, "a code of 50 seconds is exchanged within 10", func() bool {
		g, code := b.Consent(b.app, b.user)
		b.age(g, 50)
		return b.exchangeCode(code).Status == 200
	})
}

// elsewhere returns the keyring of another process with these master keys.
func (b *testEnv) elsewhere(masters credential.Secret) *keyring.Keyring {
	b.t.Helper()
	keys, err := seal.ParseKeys(masters)
	b.Must(err)
	ring, err := keyring.New(b.Store, keys)
	b.Must(err)
	return ring
}

// G10. Every key that this process knows is removed, and it lacks the master key that seals the others: its 503 uses up
// no credential.
func TestToken_IsNotUsedUpWithoutSigningKey(t *testing.T) {
	b := ownTestEnv(t)
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	foreign := credential.Secret(base64.RawURLEncoding.EncodeToString(random))
	elsewhere, later := b.elsewhere(foreign+","+b.Keys), b.elsewhere(b.Keys+","+foreign)
	b.given("a first exchange", b.exchange()) // later ones of this client need no snapshot
	held, repeating := b.connected(), b.connected()
	b.given("a refresh with an Idempotency-Key", b.refresh(repeating.Refresh, "Idempotency-Key:", someKey))
	_, code := b.Consent(b.app, b.user)
	_, linked := b.Consent(b.linked, b.user)
	for range 2 { // the current key and the next one
		stored, err := b.Store.SigningKeys(t.Context())
		b.Must(err)
		for _, key := range stored {
			if key.State == keyring.Current {
				b.Must(elsewhere.Remove(t.Context(), key.KID, "admin"))
			}
		}
	}
	sends := map[string]func() apitest.Answer{
		"refresh": func() apitest.Answer { return b.refresh(held.Refresh) },
		"repeated refresh": func() apitest.Answer {
			return b.refresh(repeating.Refresh, "Idempotency-Key:", someKey)
		},
		"exchange of a connector":           func() apitest.Answer { return b.exchangeCode(code) },
		"exchange of a confidential client": func() apitest.Answer { return b.linkCode(linked) },
	}
	for what, send := range sends {
		b.Wants(what, send(), 503, "temporarily_unavailable")
	}
	_, err := later.Reseal(t.Context(), "admin")
	b.Must(err)
	for what, send := range sends {
		b.given(what+" afterwards", send())
	}
}

const someKey = apitest.IdempotencyKey

func tokenIn(answer apitest.Answer) credential.Secret {
	return credential.Secret(answer.Text("refresh_token"))
}

// repeated requires the refresh token of first again, with a new access token.
func (b *testEnv) repeated(what string, first, again apitest.Answer) {
	b.t.Helper()
	b.given(what, first)
	b.given(what+" again", again)
	if first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" ||
		again.Text("refresh_token") != first.Text("refresh_token") ||
		again.Text("access_token") == first.Text("access_token") || again.Text("scope") != first.Text("scope") {
		b.t.Errorf("%s: want the same refresh token and a new access token\n%s\n%s", what, b.Explain(first),
			b.Explain(again))
	}
}

func TestIdempotencyKey_RepeatsAnswer(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.Consent(b.app, b.user)
	exchange := func() apitest.Answer { return b.exchangeCode(code, "Idempotency-Key:", someKey) }
	first := exchange()
	b.repeated("exchange", first, exchange())
	again := func(changes ...string) apitest.Answer {
		return b.exchangeCode(code, append(changes, "Idempotency-Key:", someKey)...)
	}
	b.Wants("with another resource", again("resource", apitest.MCP), 400, "invalid_target")
	b.Wants("by another client", again("client_id", b.stranger()), 400, "invalid_grant")
	b.wantActive("after requests that are not valid", g)
	held := b.Refreshed(b.app, apitest.Connection{Grant: g, Refresh: tokenIn(first)})
	refresh := func(key string) apitest.Answer { return b.refresh(held.Refresh, "Idempotency-Key:", key) }
	// engine.TestToken_IdempotencyKeyHasLimits has the other malformed keys.
	b.Wants("an empty key", refresh(""), 400, "invalid_request")
	twice := []string{"Idempotency-Key", someKey, "Idempotency-Key", someKey}
	b.Wants("two keys", b.FormWith(path, twice, b.refreshForm(held.Refresh)...), 400, "invalid_request")
	b.repeated("refresh", refresh(someKey), refresh(someKey))
	b.wantActive("after repetitions", g)
	b.Wants("another key", refresh(someKey+"2"), 400, "invalid_grant")
	b.wantRevoked("another key", g, grant.Replayed)
	b.Wants("the same key, then", refresh(someKey), 400, "invalid_grant")
	// A public client proves nothing by its client_id: without a key, the second request is a replay.
	held = b.connected()
	b.given("without a key", b.refresh(held.Refresh))
	b.Wants("without a key, again", b.refresh(held.Refresh), 400, "invalid_grant")
	b.wantRevoked("without a key, again", held.Grant, grant.Replayed)
}

func TestIdempotencyKey_RepeatsConfidentialExchange(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.Consent(b.linked, b.user)
	send := func() apitest.Answer { return b.linkCode(code, "Idempotency-Key:", someKey) }
	first := send()
	b.repeated("exchange", first, send())
	b.Equal("G5: the refresh token", first.Text("refresh_token"), "")
	b.Wants("with a wrong secret", b.linkCode(code, "client_secret", apitest.WrongSecret), 400, "invalid_client")
	b.wantActive("after the repetition", g)
	b.Wants("without the key", b.linkCode(code), 400, "invalid_grant")
	b.wantRevoked("without the key", g, grant.CodeReused)
}
