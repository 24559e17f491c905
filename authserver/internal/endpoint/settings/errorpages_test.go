package settings_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/perm"
)

func TestNotFound_SignedInUserSeesNavigation(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	ada := developer(site, perm.ProgrammesRead)
	const navigation = `<nav class="sections"`
	for name, b := range map[string]*browsertest.Browser{"stranger": site.Browser(), "user": site.SignedIn(ada)} {
		page := b.Get("/settings/nothing")
		if page.Status != http.StatusNotFound || strings.Contains(page.Body, navigation) != (name == "user") ||
			strings.Contains(page.Body, ada.Email) != (name == "user") {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
}

func TestRequestID_IsOnErrorPagesAlone(t *testing.T) {
	t.Parallel()
	site := browsertest.Start(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead))
	for path, status := range map[string]int{
		"/settings/user":                http.StatusOK,
		"/settings/developers":          http.StatusOK,
		"/settings/nothing":             http.StatusNotFound,
		"/settings/connectors?tenant=x": http.StatusForbidden,
	} {
		page := browser.Get(path)
		if id := page.Header.Get("X-Request-Id"); page.Status != status ||
			strings.Contains(page.Body, id) != (status != http.StatusOK) {
			t.Errorf("%s: %d %s", path, page.Status, page.Text())
		}
	}
}
