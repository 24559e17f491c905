package settings_test

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func everyPermission() (out []perm.Permission) {
	for _, entry := range perm.All() {
		out = append(out, entry.ID)
	}
	return out
}

// maxPage is the maximum size of a page in bytes.
const maxPage = 60 << 10

// A page has at most 60 KB however many members, invitations, connections, tokens, applications and sign-ins there are.
func TestPages_AreLight(t *testing.T) {
	site := shared(t)
	permissions := everyPermission()
	ada := developer(site, permissions...)
	in, everything := site.Fixture.WorkspaceID, perm.NewSet(permissions...).Strings()
	connector := site.Fixture.Connector(browsertest.Resource, perm.ForConnectors()...)
	confidential, _ := site.Fixture.Confidential(permissions...)
	browser := site.SignedIn(ada)
	for range 62 {
		site.Fixture.Token(ada.ID, permissions...)
		site.Fixture.Confidential(permissions...)
	}
	for n := range 62 {
		if n%2 == 0 {
			site.Redeemed(connector, ada.ID)
		} else {
			site.Redeemed(confidential, ada.ID)
		}
	}
	site.Fixture.Exec(`insert into account.users (id, email, name, password_hash)
		select gen_random_uuid(), 'member.' || n || '@example.org', 'Member ' || n, '' from generate_series(1, 150) n`)
	site.Fixture.Exec(`insert into account.memberships (tenant_id, user_id, permissions)
		select $1, id, $2 from account.users where email like 'member.%'`, in, everything)
	site.Fixture.Exec(`insert into account.invitations (id, tenant_id, email, permissions, invited_by, token_hash,
			expires_at)
		select gen_random_uuid(), $1, 'invited.' || n || '@example.org', $2, $3, sha256(n::text::bytea),
			now() + interval '1 day' from generate_series(1, 100) n`, in, everything, ada.ID)
	site.Fixture.Exec(`insert into account.sign_ins (id, user_id, method, address, user_agent, expires_at)
		select gen_random_uuid(), $1, 'password', '127.0.0.1', 'A browser', now() + interval '1 day'
		from generate_series(1, 100) n`, ada.ID)
	for _, path := range []string{
		"/settings/user", "/settings/members", "/settings/members/invite",
		"/settings/members/member?id=" + ada.ID.String(), "/settings/developers", "/settings/applications",
		"/settings/webhooks", "/settings/webhooks/new", "/settings/apps", "/settings/connect", "/settings/connectors",
		"/settings/connectors/log", "/settings/security", "/settings/audit",
	} {
		page := browser.Get(path)
		t.Logf("%s: %d bytes", path, len(page.Body))
		if page.Status != http.StatusOK || len(page.Body) > maxPage {
			t.Errorf("%s: status %d, %d bytes", path, page.Status, len(page.Body))
		}
	}
}
