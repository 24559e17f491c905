package doctor

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
)

// guesses checks /authorize, /token and /register on the API's origin, which hosted clients use if discovery
// fails.
func (w *run) guesses(ctx context.Context) error {
	if !w.profile.hosted {
		return nil
	}
	for _, one := range []func(context.Context) error{w.guessAuthorize, w.guessToken, w.guessRegister} {
		if err := one(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *run) guessAuthorize(ctx context.Context) error {
	answer, err := w.send(ctx, wire.Request{
		Method: http.MethodGet,
		URL:    origin(w.typed) + "/authorize?state=guess",
		Note:   "a guess",
		Within: w.DiscoveryTimeout,
	})
	if err != nil {
		return err
	}
	location, query, _ := strings.Cut(answer.Header.Get("Location"), "?")
	endpoint, _, _ := strings.Cut(w.server.authorize, "?")
	redirects := answer.Status == http.StatusFound || answer.Status == http.StatusSeeOther
	switch {
	case endpoint == origin(w.typed)+"/authorize":
	case redirects && location == endpoint && strings.Contains(query, "state=guess"):
		w.find("guess_authorize_ok", answer)
	default:
		w.find("guess_authorize", answer)
	}
	return nil
}

func (w *run) guessToken(ctx context.Context) error {
	form := url.Values{"grant_type": {"authorization_code"}, "client_id": {"almoner-doctor"}, "code": {"guess"}}
	answer, err := w.send(ctx, wire.Form(origin(w.typed)+"/token", form.Encode(), w.DiscoveryTimeout))
	if err != nil {
		return err
	}
	switch {
	case answer.Status >= 300 && answer.Status < 400:
		w.find("guess_token_redirects", answer)
	case oauthError(answer) == "":
		w.find("guess_token", answer)
	default:
		w.find("guess_token_ok", answer)
	}
	return nil
}

func (w *run) guessRegister(ctx context.Context) error {
	if w.server.register != "" {
		return nil
	}
	answer, err := w.send(ctx, wire.Request{
		Method: http.MethodPost,
		URL:    origin(w.typed) + "/register",
		Note:   "a guess",
		Body:   `{"redirect_uris":[]}`,
		Within: w.DiscoveryTimeout,
		Header: map[string]string{"Content-Type": "application/json", "Accept": "application/json"},
	})
	if err != nil {
		return err
	}
	if answer.Status == http.StatusNotFound {
		w.find("guess_register_ok", answer)
	} else {
		w.find("guess_register", answer)
	}
	return nil
}

// oauthError returns the OAuth error code of a response (RFC 6749, section 5.2), or "".
func oauthError(answer *wire.Answer) string {
	values, err := readObject(answer.Body)
	if err != nil {
		return ""
	}
	code, _ := values["error"].(string)
	return code
}
