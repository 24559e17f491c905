package oidc

import (
	"io"
	"net/http"
)

// maxAnswer bounds what is read of one answer of the provider, in bytes.
const maxAnswer = 1 << 20

// newClient never follows a redirect: the token endpoint's request holds our secret, and goes to the address that the
// provider's own document names or nowhere.
func newClient() *http.Client {
	return &http.Client{
		Timeout:       RequestTimeout,
		Transport:     bounded{http.DefaultTransport.(*http.Transport).Clone()},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxAnswer), response.Body}
	return response, nil
}
