package token_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const path = apitest.TokenPath

// A testEnv is a server with a user, a connector and a confidential client.
type testEnv struct {
	*apitest.Server
	t      *testing.T
	user   uuid.UUID
	app    client.Client
	linked client.Client
	secret credential.Secret
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	b := &testEnv{Server: apitest.Own(t), t: t}
	b.user = b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite)
	b.app = b.Fixture.Connector(apitest.REST, perm.ProgrammesRead, perm.ProgrammesWrite)
	b.linked, b.secret = b.Fixture.Confidential(perm.ProgrammesRead)
	return b
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
	return b.Form(path, changed([]string{
		"grant_type",
		"authorization_code",
		"client_id",
		b.app.ID.String(),
		"resource",
		b.app.Resource,
		"code",
		code.Reveal(),
		"code_verifier",
		apitest.Verifier,
		"redirect_uri",
		fixture.Callback,
	}, changes)...)
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
		"client_id",
		b.linked.ID.String(),
		"client_secret",
		b.secret.Reveal(),
		"code",
		code.Reveal(),
		"redirect_uri",
		fixture.Callback,
	}, changes)...)
}

func (b *testEnv) refresh(token credential.Secret, changes ...string) apitest.Answer {
	b.t.Helper()
	return b.Form(path, changed([]string{
		"grant_type",
		"refresh_token",
		"client_id",
		b.app.ID.String(),
		"resource",
		b.app.Resource,
		"refresh_token",
		token.Reveal(),
	}, changes)...)
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

func (b *testEnv) given(what string, answer apitest.Answer) {
	b.t.Helper()
	if answer.Status != 200 || answer.Text("access_token") == "" {
		b.t.Errorf("%s: %d %s, want tokens", what, answer.Status, answer.Text("error_description"))
	}
}

// refused requires an error in the shape of RFC 6749, section 5.2.
func (b *testEnv) refused(what string, answer apitest.Answer, status int, code string) {
	b.t.Helper()
	if answer.Status != status || answer.Text("error") != code || answer.Text("error_description") == "" ||
		len(answer.Object()) != 2 {
		b.t.Errorf("%s: %d %s, want %d %s", what, answer.Status, answer.Body, status, code)
	}
	if answer.Header.Get("Content-Type") != "application/json" || answer.Header.Get("Cache-Control") != "no-store" {
		b.t.Errorf("%s: headers %v", what, answer.Header)
	}
}

func (b *testEnv) wantRevoked(what string, g grant.Grant, reason grant.Reason) {
	b.t.Helper()
	if g = b.Stored(g); g.State != grant.Revoked || g.Reason != reason {
		b.t.Errorf("%s: the grant is %s (%s), want it revoked (%s)", what, g.State, g.Reason, reason)
	}
}

func (b *testEnv) wantActive(what string, g grant.Grant) {
	b.t.Helper()
	if g = b.Stored(g); g.State == grant.Revoked {
		b.t.Errorf("%s: the grant was revoked (%s)", what, g.Reason)
	}
}
