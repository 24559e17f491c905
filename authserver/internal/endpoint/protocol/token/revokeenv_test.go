package token_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A revokeEnv is a server with a user and a connector.
type revokeEnv struct {
	*apitest.Server
	t    *testing.T
	user uuid.UUID
	app  client.Client
}

func newRevokeEnv(t *testing.T) *revokeEnv {
	t.Helper()
	b := &revokeEnv{Server: apitest.Own(t), t: t}
	b.user = b.Fixture.Member(perm.ProgrammesRead)
	b.app = b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	return b
}

func (b *revokeEnv) revoke(c client.Client, token credential.Secret) apitest.Answer {
	b.t.Helper()
	return b.Form(apitest.RevokePath, "client_id", c.ID.String(), "token", token.Reveal())
}

// wantOK requires the response of success (RFC 7009, section 2.2): 200 with an empty object.
func (b *revokeEnv) wantOK(what string, answer apitest.Answer) {
	b.t.Helper()
	if answer.Status != 200 || answer.Body != "{}\n" || answer.Header.Get("Cache-Control") != "no-store" {
		b.t.Errorf("%s: %d %q, want 200 {}", what, answer.Status, answer.Body)
	}
}

func (b *revokeEnv) wantRevoked(what string, held apitest.Connection) {
	b.t.Helper()
	g := b.Stored(held.Grant)
	if g.State != grant.Revoked || g.Reason != grant.ByClient {
		b.t.Errorf("%s: the grant is %s (%s), want it revoked by the client", what, g.State, g.Reason)
	}
	events := b.Count(
		`select count(*) from account.audit_events where action = '`+audit.GrantRevoked+`' and subject = 'grant:' || $1
		and actor = 'client:' || $2 and detail->>'reason' = 'revoked_by_client'`,
		g.ID.String(),
		g.ClientID.String(),
	)
	if events != 1 {
		b.t.Errorf("%s: %d audit events, want 1", what, events)
	}
	if held.Refresh == "" {
		return
	}
	if answer := b.Refresh(b.app, held.Refresh); answer.Status != 400 || answer.Text("error") != "invalid_grant" {
		b.t.Errorf("%s: refresh: %d %s", what, answer.Status, answer.Body)
	}
}

func (b *revokeEnv) wantActive(what string, held apitest.Connection) {
	b.t.Helper()
	if g := b.Stored(held.Grant); g.State != grant.Active {
		b.t.Errorf("%s: the grant is %s (%s), want it active", what, g.State, g.Reason)
	}
}
