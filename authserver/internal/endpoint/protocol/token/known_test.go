package token_test

import (
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// The client is known from an earlier request, and has changed since. The request is refused as if it were unknown, and
// uses nothing up.
func TestToken_KnownClientIsCheckedAgain(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held := b.Refreshed(b.app, b.Connected(b.app, b.user))
	held = b.Refreshed(b.app, held)
	_, code := b.Consent(b.app, b.user)
	for what, sql := range map[string][2]string{
		"deleted": {
			`update account.oauth_clients set deleted_at = now() where id = $1`,
			`update account.oauth_clients set deleted_at = null where id = $1`,
		},
		"of another method": {
			`update account.oauth_clients set metadata_url = 'https://a.example/' || id, tenant_id = null,
				resource = '', document_read_at = now(), document_fresh_until = now(), keys = '{}',
				token_endpoint_auth_method = 'private_key_jwt' where id = $1`,
			`update account.oauth_clients set metadata_url = null, keys = null, resource = '` + b.app.Resource + `',
				tenant_id = '` + b.Fixture.WorkspaceID.String() + `', token_endpoint_auth_method = 'none'
				where id = $1`,
		},
	} {
		held = b.Refreshed(b.app, held)
		b.Fixture.Exec(sql[0], b.app.ID)
		b.refused(what+", refresh", b.refresh(held.Refresh), 400, "invalid_client")
		b.refused(what+", exchange", b.exchangeCode(code), 400, "invalid_client")
		b.Fixture.Exec(sql[1], b.app.ID)
	}
	held = b.Refreshed(b.app, held)
	b.given("exchange", b.exchangeCode(code))
	if g := b.Stored(held.Grant); g.State != grant.Active || g.Generation != 6 {
		t.Errorf("grant is %s, generation %d", g.State, g.Generation)
	}
}
