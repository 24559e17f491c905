package app_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Every settings page has the same navigation, whichever package serves it.
func TestNavigation_IsTheSameOnSignInMethodPages(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, func(c *app.Config) {
		p.of(c)
		c.Passkeys = true
	})
	reader, manager := s.person(), s.person()
	s.fixture.Join(s.fixture.WorkspaceID, manager.ID, perm.AccountAPIAccess)
	for _, path := range []string{"/settings/user", "/settings/passkeys", linkPage} {
		for _, section := range []string{"developers", "connectors", "audit"} {
			link := `<a href="/settings/` + section + `"`
			if page := s.signedIn(reader).Get(path); page.Status != http.StatusOK || strings.Contains(page.Body, link) {
				t.Errorf("%s links a user who manages nothing to %s: %d", path, section, page.Status)
			}
			if page := s.signedIn(manager).Get(path); !strings.Contains(page.Body, link) {
				t.Errorf("%s does not lead to %s: %d", path, section, page.Status)
			}
		}
	}
}
