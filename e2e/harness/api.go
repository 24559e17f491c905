package harness

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"
)

// An API is one of the product's base URLs with the headers that a caller sends. It is a value: With returns a copy.
type API struct {
	product *Product
	base    string
	header  http.Header
}

// With returns a copy that sends this header in place of any earlier value.
func (a API) With(name string, values ...string) API {
	a.header = a.header.Clone()
	a.header[http.CanonicalHeaderKey(name)] = values
	return a
}

// Without returns a copy that does not send the header.
func (a API) Without(name string) API {
	a.header = a.header.Clone()
	a.header.Del(name)
	return a
}

// Get sends GET.
func (a API) Get(t testing.TB, path string) Answer {
	t.Helper()
	return a.Send(t, http.MethodGet, path, "", "")
}

// JSON sends the value as JSON. A string is sent unchanged.
func (a API) JSON(t testing.TB, method, path string, value any) Answer {
	t.Helper()
	text, isText := value.(string)
	if !isText {
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text = string(encoded)
	}
	return a.Send(t, method, path, "application/json", text)
}

const formType = "application/x-www-form-urlencoded"

// Form posts a form.
func (a API) Form(t testing.TB, path string, form url.Values) Answer {
	t.Helper()
	return a.Send(t, http.MethodPost, path, formType, form.Encode())
}

// Send sends a request with any method and body.
func (a API) Send(t testing.TB, method, path, contentType, body string) Answer {
	t.Helper()
	if contentType != "" {
		a = a.With("Content-Type", contentType)
	}
	return a.product.roundTrip(t, a.product.client, method, a.base+path, a.header, body)
}

// Try is like Send for requests that may get no response, as in an outage.
func (a API) Try(t testing.TB, method, path, contentType, body string) (Answer, error) {
	t.Helper()
	if contentType != "" {
		a = a.With("Content-Type", contentType)
	}
	return a.product.try(t, a.product.client, method, a.base+path, a.header, body)
}

// withoutAddress removes the URL from the error, because its query may contain a code.
func withoutAddress(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
