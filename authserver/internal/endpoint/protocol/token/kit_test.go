package token_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const (
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

// newTestEnv runs the test in parallel, with a new workspace of the service that the package's tests share.
func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	t.Parallel()
	return testEnvOf(t, apitest.Shared(t))
}

// ownTestEnv runs the test in parallel, with a workspace of a service of this test alone.
func ownTestEnv(t *testing.T, changes ...apitest.Change) *testEnv {
	t.Helper()
	t.Parallel()
	return testEnvOf(t, apitest.Own(t, changes...))
}

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

// exchange sends the connector's form with a fresh code. changes are pairs of name and value; the value - removes a
// name.
func (b *testEnv) exchange(changes ...string) apitest.Answer {
	b.t.Helper()
	_, code := b.Consent(b.app, b.user)
	return b.exchangeCode(code, changes...)
}

func (b *testEnv) exchangeCode(code credential.Secret, changes ...string) apitest.Answer {
	b.t.Helper()
	return b.Form(path, b.exchangeForm(code, changes...)...)
}

func (b *testEnv) exchangeForm(code credential.Secret, changes ...string) []string {
	return changed([]string{
		"grant_type", "authorization_code", "client_id", b.name, "resource", b.app.Resource, "code", code.Reveal(),
		"code_verifier", apitest.Verifier, "redirect_uri", fixture.Callback,
	}, changes)
}

func (b *testEnv) refresh(token credential.Secret, changes ...string) apitest.Answer {
	b.t.Helper()
	return b.Form(path, b.refreshForm(token, changes...)...)
}

func (b *testEnv) refreshForm(token credential.Secret, changes ...string) []string {
	return changed([]string{
		"grant_type", "refresh_token", "client_id", b.name, "resource", b.app.Resource, "refresh_token", token.Reveal(),
	}, changes)
}

// link sends the confidential client's JSON with a fresh code and the changes.
func (b *testEnv) link(changes ...string) apitest.Answer {
	b.t.Helper()
	_, code := b.Consent(b.linked, b.user)
	return b.linkCode(code, changes...)
}

func (b *testEnv) linkCode(code credential.Secret, changes ...string) apitest.Answer {
	b.t.Helper()
	return b.PostJSON(path, changed([]string{
		"client_id", b.linked.ID.String(), "client_secret", b.secret.Reveal(), "code", code.Reveal(),
		"redirect_uri", fixture.Callback,
	}, changes)...)
}

// linkWith is linkCode with headers.
func (b *testEnv) linkWith(code credential.Secret, headers ...string) apitest.Answer {
	b.t.Helper()
	body := `{"client_id":"` + b.linked.ID.String() + `","client_secret":"` + b.secret.Reveal() + `","code":"` +
		code.Reveal() + `","redirect_uri":"` + fixture.Callback + `"}`
	return b.Send("POST", path, body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

func changed(pairs, changes []string) []string {
	values := map[string]string{}
	for _, list := range [][]string{pairs, changes} {
		for i := 0; i+1 < len(list); i += 2 {
			values[list[i]] = list[i+1]
		}
	}
	var out []string
	for name, value := range values {
		if value != "-" {
			out = append(out, name, value)
		}
	}
	return out
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

// disconnect revokes a grant as its user does.
func (b *testEnv) disconnect(g grant.Grant) {
	b.t.Helper()
	b.Fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now(),
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

// atOnce sends requests that the service holds for a time, by name, and returns their answers.
func atOnce(sends map[string]func() apitest.Answer) map[string]apitest.Answer {
	answers := map[string]apitest.Answer{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for what, send := range sends {
		group.Go(func() {
			answer := send()
			mu.Lock()
			defer mu.Unlock()
			answers[what] = answer
		})
	}
	group.Wait()
	return answers
}
