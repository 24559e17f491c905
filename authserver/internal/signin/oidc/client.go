package oidc

import (
	"io"
	"net/http"
)

// maxAnswer limits how much of one response of the provider is read, in bytes.
const maxAnswer = 1 << 20

// newClient returns a client that follows no redirects: the token request contains our client secret, and must go only
// to the URL that the provider's own document names.
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
