package api_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
)

// The first row of the table in section 5 of the contract, at the real routes.
func TestRoutes_UnknownPathsAndMethodsComeBeforeAuthentication(t *testing.T) {
	t.Parallel()
	b := newClientsEnv(t)
	one := b.path() + "/" + uuid.NewString()
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", b.path() + "/", 404, ""},
		{"POST", one + "/secrets", 404, ""},
		{"GET", "/v1/account/tenants/" + b.Fixture.WorkspaceID.String(), 404, ""},
		{"GET", "/v1/account/tenants//oauth-clients", 404, ""},
		{"GET", "/V1/account/tenants/" + b.Fixture.WorkspaceID.String() + "/oauth-clients", 404, ""},
		{"PUT", b.path(), 405, "GET, HEAD, POST"},
		{"DELETE", b.path(), 405, "GET, HEAD, POST"},
		{"POST", one, 405, "DELETE, GET, HEAD"},
		{"PATCH", one, 405, "DELETE, GET, HEAD"},
		{"GET", one + "/secret", 405, "POST"},
		{"GET", apitest.TokenPath, 405, "POST"},
		{"PUT", apitest.RevokePath, 405, "POST"},
		{"GET", apitest.IntrospectPath, 405, "POST"},
	} {
		for what, headers := range map[string][]string{
			"no bearer":  nil,
			"a bad one":  apitest.Bearer("word"),
			"a good one": apitest.Bearer(b.token),
		} {
			answer := b.Send(c.method, c.path, "", headers...)
			if answer.Status != c.status || answer.Header.Get("Allow") != c.allow {
				t.Errorf(
					"%s %s, %s: %d, Allow %q; want %d, %q",
					c.method, c.path, what, answer.Status, answer.Header.Get("Allow"), c.status, c.allow,
				)
			}
		}
	}
	if registered := b.registered(confidential(nil)); b.send(
		"GET",
		b.path()+"/"+registered.Text("clientId"),
		"",
	).Status != 200 {
		t.Error("a registered client is not found at its path")
	}
}
