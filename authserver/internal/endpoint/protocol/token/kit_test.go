package token_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	asForm = "application/x-www-form-urlencoded"
	asJSON = "application/json"

	path  = apitest.TokenPath
	read  = string(perm.ProgrammesRead)
	write = string(perm.ProgrammesWrite)
	both  = read + " " + write
)

// A testEnv is a workspace with a user and a client of each kind.
type testEnv struct {
	*apitest.Server
	t       *testing.T
	user    uuid.UUID
	app     client.Client // a connector of the REST API, which acts by default
	name    string        // its client_id
	linked  client.Client // confidential, sends JSON
	secret  credential.Secret
	service apitest.ClientWithSecret
}

var (
	newTestEnv, ownTestEnv = apitest.Envs(testEnvOf)
	// inTurn is for tests that move the clock or stop a store, impatiently for those in which requests wait for a lock
	// until they are refused.
	inTurn      = apitest.InTurn(testEnvOf)
	impatiently = apitest.InTurn(testEnvOf, apitest.Impatient)
)

func testEnvOf(t *testing.T, s *apitest.Server) *testEnv {
	t.Helper()
	b := &testEnv{Server: s, t: t}
	b.user = b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	b.app = b.Fixture.Connector(apitest.REST, perm.ProgrammesRead, perm.ProgrammesWrite)
	b.name = b.app.ID.String()
	b.linked, b.secret = b.Fixture.Confidential(perm.ProgrammesRead)
	b.service = b.Service()
	return b
}

// connected returns a connection of the connector.
func (b *testEnv) connected() apitest.Connection {
	b.t.Helper()
	return b.Connected(b.app, b.user)
}

// send sends pairs of name and value to the token endpoint, with changes: the value - removes a name, and a name that
// ends in a colon is a header.
func (b *testEnv) send(contentType string, pairs, changes []string) apitest.Answer {
	b.t.Helper()
	form, object, headers := url.Values{}, map[string]string{}, []string{"Content-Type", contentType}
	for _, list := range [][]string{pairs, changes} {
		for i := 0; i+1 < len(list); i += 2 {
			if name, isHeader := strings.CutSuffix(list[i], ":"); isHeader {
				headers = append(headers, name, list[i+1])
				continue
			}
			form.Set(list[i], list[i+1])
		}
	}
	for name := range form {
		if object[name] = form.Get(name); object[name] == "-" {
			delete(object, name)
			delete(form, name)
		}
	}
	body := form.Encode()
	if contentType == asJSON {
		encoded, err := json.Marshal(object)
		b.Must(err)
		body = string(encoded)
	}
	return b.Send(http.MethodPost, path, body, headers...)
}

// exchange sends the connector's form with a fresh code.
func (b *testEnv) exchange(changes ...string) apitest.Answer {
	b.t.Helper()
	_, code := b.Consent(b.app, b.user)
	return b.exchangeCode(code, changes...)
}

func (b *testEnv) exchangeCode(code credential.Secret, changes ...string) apitest.Answer {
	b.t.Helper()
	return b.send(asForm, b.exchangeForm(code), changes)
}

func (b *testEnv) exchangeForm(code credential.Secret) []string {
	return []string{
		"grant_type", "authorization_code", "client_id", b.name, "resource", b.app.Resource, "code", code.Reveal(),
		"code_verifier", apitest.Verifier, "redirect_uri", fixture.Callback,
	}
}

func (b *testEnv) refresh(token credential.Secret, changes ...string) apitest.Answer {
	b.t.Helper()
	return b.send(asForm, b.refreshForm(token), changes)
}

func (b *testEnv) refreshForm(token credential.Secret) []string {
	return []string{
		"grant_type", "refresh_token", "client_id", b.name, "resource", b.app.Resource, "refresh_token", token.Reveal(),
	}
}

// link sends the confidential client's JSON with a fresh code.
func (b *testEnv) link(changes ...string) apitest.Answer {
	b.t.Helper()
	_, code := b.Consent(b.linked, b.user)
	return b.linkCode(code, changes...)
}

func (b *testEnv) linkCode(code credential.Secret, changes ...string) apitest.Answer {
	b.t.Helper()
	return b.send(asJSON, []string{
		"client_id", b.linked.ID.String(), "client_secret", b.secret.Reveal(), "code", code.Reveal(),
		"redirect_uri", fixture.Callback,
	}, changes)
}

// standard registers a confidential client of a standard method.
func (b *testEnv) standard(method client.AuthMethod) (client.Client, credential.Secret) {
	b.t.Helper()
	c, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	b.setAuthMethod(c, method)
	return c, secret
}

func (b *testEnv) setAuthMethod(c client.Client, method client.AuthMethod) {
	b.t.Helper()
	b.Fixture.Exec(`update account.oauth_clients set token_endpoint_auth_method = $2 where id = $1`, c.ID, method)
}

func (b *testEnv) endMembership() {
	b.t.Helper()
	b.Fixture.Exec(`delete from account.memberships where user_id = $1`, b.user)
}

// disconnect revokes a grant as its user does, before the requests that follow: one that it overtook would get tokens,
// which do not work.
func (b *testEnv) disconnect(g grant.Grant) {
	b.t.Helper()
	b.Fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now() - interval '1 minute',
		revoke_reason = 'disconnected_by_user' where id = $1`, g.ID)
}

// given requires tokens.
func (b *testEnv) given(what string, answer apitest.Answer) {
	b.t.Helper()
	b.Wants(what, answer, 200, "")
	if answer.Text("access_token") == "" {
		b.t.Errorf("%s: no access token\n%s", what, b.Explain(answer))
	}
}

func (b *testEnv) wantRevoked(what string, g grant.Grant, reason grant.Reason) {
	b.t.Helper()
	b.WantsGrant(what, g, grant.Revoked, reason)
}

func (b *testEnv) wantActive(what string, g grant.Grant) {
	b.t.Helper()
	b.WantsGrant(what, g, grant.Active, "")
}

func (b *testEnv) claims(answer apitest.Answer) accesstoken.Claims {
	b.t.Helper()
	return b.claimsOf(credential.Secret(answer.Text("access_token")))
}

// claimsOf returns the claims of an access token.
func (b *testEnv) claimsOf(token credential.Secret) accesstoken.Claims {
	b.t.Helper()
	claims, err := b.Keyring.Public().Verify(token.Reveal(), apitest.Issuer, time.Now())
	b.Must(err)
	return claims
}

// introspect sends a token as the service.
func (b *testEnv) introspect(token credential.Secret) apitest.Answer {
	b.t.Helper()
	return b.FormWith(apitest.IntrospectPath, apitest.Basic(b.service.ID.String(), b.service.Secret),
		"token", token.Reveal())
}

func (b *testEnv) active(what string, token credential.Secret) map[string]any {
	b.t.Helper()
	answer := b.introspect(token)
	b.WantsMembers(what, answer, map[string]any{"active": true})
	return answer.Object()
}

// inactive requires a response with active:false and nothing else (RFC 7662, section 2.2).
func (b *testEnv) inactive(what string, token credential.Secret) {
	b.t.Helper()
	answer := b.introspect(token)
	if answer.Status != 200 || strings.TrimSpace(answer.Body) != `{"active":false}` {
		b.t.Errorf("%s: want only active:false\n%s", what, b.Explain(answer))
	}
}

// revoke sends a token as a client that has no secret.
func (b *testEnv) revoke(c client.Client, token credential.Secret) apitest.Answer {
	b.t.Helper()
	return b.Form(apitest.RevokePath, "client_id", c.ID.String(), "token", token.Reveal())
}

// wantOK requires the response of a successful revocation (RFC 7009, section 2.2): 200 with an empty object.
func (b *testEnv) wantOK(what string, answer apitest.Answer) {
	b.t.Helper()
	if answer.Status != 200 || answer.Body != "{}\n" || answer.Header.Get("Cache-Control") != "no-store" {
		b.t.Errorf("%s: want 200 {}\n%s", what, b.Explain(answer))
	}
}

// atOnce sends requests at the same time and returns their answers.
func atOnce(sends ...func() apitest.Answer) []apitest.Answer {
	answers := make([]apitest.Answer, len(sends))
	var all sync.WaitGroup
	for i, send := range sends {
		all.Go(func() { answers[i] = send() })
	}
	all.Wait()
	return answers
}

const (
	// enough that one extra round trip per request exceeds the tolerance
	countedTimes = 10
	// tolerance for new connections, prepared statements and batched writes to Redis
	tolerance    = 9
	countedTries = 5 // retries for other activity: an extra round trip of the request itself occurs in each
)

// trips are the round trips of one request.
type trips struct{ Postgres, Redis int }

// A countedEnv is a testEnv that counts the round trips to each store.
type countedEnv struct {
	*testEnv
	postgres, redis *testkit.Trips
}

// counted is the service whose trips are counted. Its tests run one after another.
var counted = testkit.Once(func(t testing.TB) countedEnv {
	s, b := apitest.New(t), countedEnv{}
	s.Fixture.Database.Authserver, b.postgres = testkit.CountTrips(t, s.Fixture.Database.Authserver)
	s.Redis.URL, b.redis = testkit.CountTrips(t, s.Redis.URL)
	s.Serve()
	s.Must(s.Keyring.Load(t.Context()))
	b.testEnv = &testEnv{Server: s}
	return b
})

func newCounted(t *testing.T) countedEnv {
	t.Helper()
	b := counted(t)
	b.testEnv = testEnvOf(t, b.For(t))
	return b
}

// costs warms up the connections to the stores, sends the request many times and compares the number of round trips.
// Before each try, it prepares the requests.
func (b countedEnv) costs(what string, each trips, send func(), prepare ...func()) {
	b.t.Helper()
	for try := 0; ; try++ {
		for _, ready := range prepare {
			ready()
		}
		if try == 0 {
			send()
			continue
		}
		var got trips
		got.Redis = b.redis.Of(func() {
			got.Postgres = b.postgres.Of(func() {
				for range countedTimes {
					send()
				}
			})
		})
		if fits(got.Postgres, each.Postgres) && fits(got.Redis, each.Redis) {
			return
		}
		if try == countedTries {
			b.t.Errorf("%s: %d requests took %+v, want %+v each", what, countedTimes, got, each)
			return
		}
	}
}

func fits(got, each int) bool {
	least := each * countedTimes
	return got >= least && got <= least+tolerance
}

// failElsewhere calls count until another process of authserver reaches the limit, and half as often on this server.
// Both report to the shared count, so this server refuses further failures. It stops the clock of this server's
// limiter, so that the limit stays exceeded.
func (b *testEnv) failElsewhere(count func(c *ratelimit.Limiter) time.Duration) {
	b.t.Helper()
	now := time.Now()
	if !b.FailuresAt.CompareAndSwap(nil, &now) {
		now = *b.FailuresAt.Load()
	}
	stopped := func(o *app.Options) { o.FailuresClock = func() time.Time { return now } }
	elsewhere, err := app.New(b.t.Context(), b.Config, slog.New(slog.DiscardHandler), stopped)
	b.Must(err)
	defer elsewhere.Close()
	reached := 0
	for count(elsewhere.Failures) == 0 {
		reached++
	}
	b.Must(elsewhere.Failures.Report(b.t.Context()))
	// The shared count recovers continuously. It takes half a minute to recover by half of the limit.
	for range reached / 2 {
		if wait := count(b.Failures); wait > 0 {
			b.t.Fatalf("limited before another process failed: %s", wait)
		}
	}
	b.Must(b.Failures.Report(b.t.Context()))
}

// failClientElsewhere is failElsewhere for the failures of a client.
func (b *testEnv) failClientElsewhere(id string) {
	b.t.Helper()
	b.failElsewhere(func(f *ratelimit.Limiter) time.Duration { return f.ForClient(id) })
}

// wantLimited requires a 429 with its headers.
func (b *testEnv) wantLimited(answer apitest.Answer) {
	b.t.Helper()
	b.Wants("limited", answer, 429, "rate_limited")
	wait := answer.Header.Get("Retry-After")
	policy, state := answer.Header.Get("RateLimit-Policy"), answer.Header.Get("RateLimit")
	if wait == "" || wait == "0" || !strings.HasPrefix(policy, `"refusals-per-`) ||
		!strings.HasSuffix(policy, ";w=60") || !strings.HasSuffix(state, ";r=0;t="+wait) {
		b.t.Errorf("Retry-After: %s, RateLimit-Policy: %s, RateLimit: %s", wait, policy, state)
	}
}
