package harness

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"testing"
)

// NewKey returns an Idempotency-Key.
func NewKey() string { return rand.Text() }

// RefreshWith uses a refresh token, with an Idempotency-Key unless that is "".
func (c Connector) RefreshWith(t testing.TB, refreshToken, key string) Answer {
	t.Helper()
	return c.PostWith(t, c.RefreshForm(refreshToken), key)
}

// PostWith sends a form to the token endpoint with an Idempotency-Key, unless that is "".
func (c Connector) PostWith(t testing.TB, form url.Values, key string) Answer {
	t.Helper()
	answer, err := c.TryPostWith(t, form, key)
	if err != nil {
		t.Fatalf("%s: %v", answer.Request, err)
	}
	return answer
}

// TryPostWith is like PostWith for requests that may get no response or an incomplete one.
func (c Connector) TryPostWith(t testing.TB, form url.Values, key string) (Answer, error) {
	t.Helper()
	api := c.product.API()
	if key != "" {
		api = api.With("Idempotency-Key", key)
		c.product.secrets.Add("Idempotency-Key", key)
	}
	return api.Try(t, http.MethodPost, TokenPath, formType, form.Encode())
}
