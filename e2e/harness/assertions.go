package harness

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
)

// ListPath is the route with which tests check whether an access token works.
const ListPath = "/v1/programmes/programmes"

// WantsRevoked checks that these tokens of one grant no longer work.
func (c Connector) WantsRevoked(t testing.TB, tokens ...Tokens) {
	t.Helper()
	for _, token := range tokens {
		c.List(t, token).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
	for _, token := range tokens {
		c.Refresh(t, token.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
}

// WantsWorking checks that the tokens work, and returns the refreshed ones.
func (c Connector) WantsWorking(t testing.TB, tokens Tokens) Tokens {
	t.Helper()
	c.List(t, tokens).Wants(t, http.StatusOK)
	return c.Refresh(t, tokens.RefreshToken).Tokens(t)
}

// List lists programmes with an access token in its workspace.
func (c Connector) List(t testing.TB, tokens Tokens) Answer {
	t.Helper()
	return c.product.As(tokens.AccessToken).With("X-Tenant-Id", tokens.WorkspaceID).Get(t, ListPath)
}

// TryPost is like Post for requests that may get no response.
func (c Connector) TryPost(t testing.TB, form url.Values) (Answer, error) {
	t.Helper()
	return c.product.API().Try(t, http.MethodPost, TokenPath, formType, form.Encode())
}

// TryList is like List for requests that may get no response.
func (c Connector) TryList(t testing.TB, tokens Tokens) (Answer, error) {
	t.Helper()
	return c.product.As(tokens.AccessToken).
		With("X-Tenant-Id", tokens.WorkspaceID).
		Try(t, http.MethodGet, ListPath, "", "")
}

// TryRevoke is like Revoke for requests that may get no response.
func (c Connector) TryRevoke(t testing.TB, token string) (Answer, error) {
	t.Helper()
	return c.product.API().
		Try(t, http.MethodPost, RevokePath, formType, url.Values{"client_id": {c.ClientID}, "token": {token}}.Encode())
}

// TryCode is like Code during an outage. It returns "" if a page reports that a service is unavailable.
func (a Attempt) TryCode(t testing.TB, person *Person) string {
	t.Helper()
	page := person.Arrive(t, a.product.AuthorizeURL(a.Query))
	if !page.IsConsent() {
		return ""
	}
	if page = page.Press(t, "approve"); page.Status >= http.StatusInternalServerError {
		return ""
	}
	return page.Callback(t).Code()
}

// TrySubmit is like Submit for requests that may get no response.
func (p *Person) TrySubmit(t testing.TB, form Form) (Page, error) {
	t.Helper()
	header := p.Header.Clone()
	header.Set("Content-Type", formType)
	answer, err := p.product.try(t, p.client, http.MethodPost, form.Action, header, form.Fields.Encode())
	return newPage(t, p, form.Action, answer), err
}

// TryOpen is like Open for requests that may get no response.
func (p *Person) TryOpen(t testing.TB, address string) (Page, error) {
	t.Helper()
	answer, err := p.product.try(t, p.client, http.MethodGet, address, p.Header.Clone(), "")
	return newPage(t, p, address, answer), err
}

// TryExchange is like Exchange for requests that may get no response.
func (a ConfidentialApp) TryExchange(t testing.TB, code string) (Answer, error) {
	t.Helper()
	body, err := json.Marshal(a.Body(code))
	if err != nil {
		t.Fatal(err)
	}
	return a.product.API().Try(t, http.MethodPost, TokenPath, "application/json", string(body))
}
