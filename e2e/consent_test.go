package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 4: the content of the consent page, and the effect of its two buttons.

func TestConsent_ApprovalReturnsCodeStateIssuer(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.Person(t, p.Demo.Users.Owner)
	for name, request := range map[string]map[string][]string{
		"confidential": p.DemoConfidential().Request(), "connector": p.DemoConnector().Begin().Query,
	} {
		t.Run(name, func(t *testing.T) {
			page := owner.Consent(t, request).Press(t, "approve")
			page.Wants(t, http.StatusSeeOther)
			callback := page.Callback(t)
			if got := strings.Join(callback.Names(), " "); got != "code iss state" ||
				callback.URI != request["redirect_uri"][0] {
				t.Errorf("redirected to %s with %s", callback.URI, got)
			}
			if callback.Values.Get("state") != request["state"][0] || callback.Values.Get("iss") != p.BaseURL {
				t.Error("wrong state or iss")
			}
			if !strings.HasPrefix(callback.Code(), "alm_ac_") {
				t.Error("the code does not have the format of section 2 of the contract")
			}
		})
	}
}

// grantsOf returns the number of grants of an application.
func grantsOf(t *testing.T, p *harness.Product, client string) int {
	t.Helper()
	return p.Database.Count(t, `select count(*) from account.grants where client_id = $1`, client)
}

// A write permission is never granted without its read permission: a request for the write adds the read, and the
// write is left out if the user lacks the read.
func TestConsent_WriteNeedsRead(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	attempt := connector.Begin()
	attempt.Query.Set("scope", harness.WriteProgrammes)
	page := p.Person(t, ws.Owner).Consent(t, attempt.Query)
	page.WantsText(t, "See programmes", "Add and change programmes")
	if tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t); tokens.Scope != connector.Scope {
		t.Errorf("granted %q", tokens.Scope)
	}
	writer := p.Person(t, ws.Member(t, harness.WriteProgrammes)).SignedIn(t)
	writer.Open(t, p.AuthorizeURL(connector.Begin().Query)).WantsPage(t, http.StatusForbidden).
		WantsText(t, "See programmes")

		// A connector that was registered for the write only gets the write only.
	drop := ws.Connector(t, harness.WriteProgrammes)
	if tokens := drop.Connect(t, p.Person(t, ws.Owner)); tokens.Scope != harness.WriteProgrammes {
		t.Errorf("granted %q", tokens.Scope)
	}
}

// wantsError checks for an error of RFC 6749, section 4.1.2.1, with state and iss (RFC 9207) and no other parameter.
// Several codes mean that the contract allows any of them. An empty state means that the callback must not have one.
func wantsError(t testing.TB, c harness.Callback, uri, state, issuer string, codes ...string) {
	t.Helper()
	want := []string{"error", "error_description", "iss", "state"}
	if state == "" {
		want = want[:3]
	}
	if c.URI != uri || !slices.Equal(c.Names(), want) {
		t.Errorf("redirected to %s with %v, want %s with %v", c.URI, c.Names(), uri, want)
	}
	if !slices.Contains(codes, c.Values.Get("error")) || c.Values.Get("error_description") == "" {
		t.Errorf("error %q (%s), want %v and a description", c.Values.Get("error"),
			harness.Redact(c.Values.Get("error_description")), codes)
	}
	if c.Values.Get("state") != state || c.Values.Get("iss") != issuer {
		t.Errorf("wrong state or iss in the error: iss %q, state of %d bytes, want %d", c.Values.Get("iss"),
			len(c.Values.Get("state")), len(state))
	}
}
