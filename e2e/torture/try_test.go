package torture

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Requests that may get no response, or an incomplete one, because a service or a store has been stopped.

const formType = "application/x-www-form-urlencoded"

// tryList lists programmes with an access token in its workspace.
func tryList(t testing.TB, c harness.Connector, tokens harness.Tokens) (harness.Answer, error) {
	t.Helper()
	return c.API().With("Authorization", "Bearer "+tokens.AccessToken).With("X-Tenant-Id", tokens.WorkspaceID).
		Try(t, http.MethodGet, harness.ListPath, "", "")
}

// tryRevoke revokes a token with the connector's client id.
func tryRevoke(t testing.TB, c harness.Connector, token string) (harness.Answer, error) {
	t.Helper()
	form := url.Values{"client_id": {c.ClientID}, "token": {token}}
	return c.API().Try(t, http.MethodPost, harness.RevokePath, formType, form.Encode())
}

// tryExchange exchanges the code of a confidential application.
func tryExchange(t testing.TB, p *harness.Product, app harness.ConfidentialApp, code string) (harness.Answer, error) {
	t.Helper()
	body, err := json.Marshal(app.Body(code))
	if err != nil {
		t.Fatal(err)
	}
	return p.API().Try(t, http.MethodPost, harness.TokenPath, "application/json", string(body))
}

// tryCode returns the code after the person has consented, or "" if a page reports that a service is unavailable.
func tryCode(t testing.TB, a harness.Attempt, person *harness.Person) string {
	t.Helper()
	page := person.Arrive(t, a.URL())
	if !page.IsConsent() {
		return ""
	}
	if page = page.Press(t, "approve"); page.Status >= http.StatusInternalServerError {
		return ""
	}
	return page.Callback(t).Code()
}

// trySubmit sends a form from the person's browser.
func trySubmit(t testing.TB, person *harness.Person, form harness.Form) (harness.Page, error) {
	t.Helper()
	return person.Try(t, http.MethodPost, form.Action, formType, form.Fields.Encode())
}
