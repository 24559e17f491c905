package doctor

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
	"github.com/almonerhq/almoner/shared/credential"
)

// tokens are the latest tokens.
type tokens struct {
	access, refresh credential.Secret
	scope           string
}

// exchange exchanges the code for tokens (RFC 6749, section 4.1.3, with PKCE and resource).
func (w *run) exchange(ctx context.Context) error {
	answer, values, err := w.requestToken(ctx, "the code", url.Values{
		"grant_type": {"authorization_code"}, "client_id": {w.ClientID}, "code": {w.attempt.code.Reveal()},
		"redirect_uri": {w.redirect}, "code_verifier": {w.attempt.verifier.Reveal()}, "resource": {w.offered.resource},
	})
	if err != nil {
		return err
	}
	return w.take(answer, values, true)
}

// requestToken sends a form to the token endpoint and returns the object in the response. It registers the tokens as
// secrets.
func (w *run) requestToken(ctx context.Context, note string, form url.Values) (*wire.Answer, map[string]any, error) {
	return w.requestTokenWithKey(ctx, note, form, "")
}

// requestTokenWithKey is requestToken with an Idempotency-Key, unless it is "".
func (w *run) requestTokenWithKey(
	ctx context.Context,
	note string,
	form url.Values,
	key string,
) (*wire.Answer, map[string]any, error) {
	request := wire.Form(w.server.token, form.Encode(), tokenLimit)
	request.Note = note
	if key != "" {
		request.Header["Idempotency-Key"] = key
	}
	answer, err := w.send(ctx, request)
	if err != nil {
		return answer, nil, err
	}
	values, err := readObject(answer.Body)
	for _, name := range []string{"access_token", "refresh_token", "id_token"} {
		if text, ok := values[name].(string); ok {
			w.secrets.Add(credential.Secret(text))
		}
	}
	if err != nil {
		values = nil
	}
	return answer, values, nil
}

// take judges a successful response (RFC 6749, section 5.1; connectors, Token) and stores its tokens.
func (w *run) take(answer *wire.Answer, values map[string]any, first bool) error {
	access, _ := values["access_token"].(string)
	refresh, _ := values["refresh_token"].(string)
	switch {
	case answer.Status >= 300 && answer.Status < 400:
		w.find("token_redirects", answer)
		return errStop
	case answer.Status != 200 && first:
		w.find("exchange_refused", answer, w.described(answer))
		return errStop
	case answer.Status != 200:
		w.find("refresh_refused", answer, w.described(answer))
		return errStop
	case access == "":
		w.find("no_access_token", answer)
		return errStop
	}
	previous := w.tokens.refresh
	w.tokens = tokens{access: credential.Secret(access), refresh: credential.Secret(refresh)}
	w.tokens.scope, _ = values["scope"].(string)
	if !first && refresh == "" {
		w.tokens.refresh = previous
	}
	w.checkTokenResponse(answer, values, first && refresh == "")
	return nil
}

func (w *run) checkTokenResponse(answer *wire.Answer, values map[string]any, endsSoon bool) {
	kind, _ := values["token_type"].(string)
	seconds, timed := values["expires_in"].(float64)
	_, hasScope := values["scope"].(string)
	sound := true
	for _, fault := range []struct {
		is     bool
		code   string
		detail string
	}{
		{!strings.EqualFold(kind, "Bearer"), "token_type", "token_type is " + quote(kind)},
		{!timed || seconds <= 0, "no_expires_in", ""},
		{endsSoon, "no_refresh_token", ""},
		{!hasScope, "no_scope_told", ""},
		{!strings.Contains(strings.ToLower(answer.Header.Get("Cache-Control")), "no-store"), "token_cached", ""},
		{!isJSON(answer.Header), "token_content_type", ""},
	} {
		if fault.is {
			sound = false
			w.find(fault.code, answer, fault.detail)
		}
	}
	if sound {
		lasts := time.Duration(min(seconds, 1e9)) * time.Second
		w.find("token_ok", answer, fmt.Sprintf("expires in %s, scope %s", lasts, quote(w.tokens.scope)))
	}
}
