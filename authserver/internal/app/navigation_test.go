package app_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Every settings page has the same navigation, whichever package serves it.
func TestNavigation_IsTheSameOnSignInMethodPages(t *testing.T) {
	s := shared(t)
	reader, manager := s.signedIn(s.person()), s.signedIn(s.member(perm.AccountAPIAccess))
	for _, path := range []string{"/settings/user", keysPage, linkPage} {
		few, all := reader.Get(path), manager.Get(path)
		s.wants(path, few, 200)
		for _, section := range []string{"developers", "connectors", "audit"} {
			link := `<a href="/settings/` + section + `"`
			equal(t, path+" links a user who manages nothing to "+section, strings.Contains(few.Body, link), false)
			equal(t, path+" links a manager to "+section, strings.Contains(all.Body, link), true)
		}
	}
}

func TestRoutes_FormURLLinksToItsPage(t *testing.T) {
	s := shared(t)
	b := s.signedIn(s.person())
	for path, back := range map[string]string{
		"/settings/developers/tokens":      "/settings/developers",
		"/settings/developers/apps/secret": "/settings/developers",
		"/settings/apps/disconnect":        "/settings/apps",
		"/settings/connectors/disconnect":  "/settings/connectors",
		"/settings/security/sign-out":      "/settings/security",
		"/settings/passkeys/remove":        "/settings/passkeys",
		"/logout":                          "/settings/user",
		"/login/passkey":                   "/settings/user",
	} {
		page := b.Get(path)
		s.wants(path, page, 405, "Nothing was submitted or changed")
		equal(t, path+": Allow", page.Header.Get("Allow"), "POST")
		contains(t, path, page.Body, `href="`+back+`"`)
	}
}
