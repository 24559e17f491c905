package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// cleanUpTimeout bounds the clean-up, which also runs after the user has cancelled.
const cleanUpTimeout = 15 * time.Second

// tokens are the latest tokens.
type tokens struct {
	access, refresh credential.Secret
}

// exchange exchanges the code for tokens (RFC 6749, section 4.1.3, with PKCE and resource).
func (r *run) exchange(ctx context.Context) error {
	resp, values, err := r.requestToken(ctx, "the code", "", url.Values{
		"grant_type":    {"authorization_code"},
		"client_id":     {r.ClientID},
		"code":          {r.attempt.code.Reveal()},
		"redirect_uri":  {r.redirect},
		"code_verifier": {r.attempt.verifier.Reveal()},
		"resource":      {r.offered.resource},
	})
	if err != nil {
		return err
	}
	return r.takeTokens(resp, values, "exchange_refused")
}

// requestToken sends a form to the token endpoint, with an Idempotency-Key unless it is "", and returns the object in
// the response. It registers the tokens as secrets.
func (r *run) requestToken(ctx context.Context, note, key string, form url.Values) (*response, object, error) {
	req := formRequest(r.server.token, note, form, tokenTimeout)
	if key != "" {
		req.header["Idempotency-Key"] = key
	}
	resp, err := r.send(ctx, req)
	if err != nil {
		return resp, nil, err
	}
	values, _ := readObject(resp.body)
	for _, name := range []string{"access_token", "refresh_token", "id_token"} {
		r.secrets.add(credential.Secret(values.text(name)))
	}
	return resp, values, nil
}

// takeTokens checks a response of the token endpoint (RFC 6749, section 5.1; connectors, Token) and stores its tokens.
// refused is the code of the finding if it is an error.
func (r *run) takeTokens(resp *response, values object, refused string) error {
	access, refresh := credential.Secret(values.text("access_token")), credential.Secret(values.text("refresh_token"))
	switch {
	case resp.redirects():
		return r.stop("token_redirects", resp)
	case resp.status != http.StatusOK:
		return r.stop(refused, resp, resp.errorText())
	case access == "":
		return r.stop("no_access_token", resp)
	}
	if refresh == "" {
		refresh = r.tokens.refresh // it remains valid unless it is replaced
	}
	r.tokens = tokens{access, refresh}
	kind := values.text("token_type")
	seconds, _ := values["expires_in"].(float64)
	scope, hasScope := values["scope"].(string)
	if !r.findAll(resp, []check{
		{!strings.EqualFold(kind, "Bearer"), "token_type", "token_type is " + quote(kind)},
		{seconds <= 0, "no_expires_in", ""},
		{refresh == "", "no_refresh_token", ""},
		{!hasScope, "no_scope_told", ""},
		{!strings.Contains(strings.ToLower(resp.header.Get("Cache-Control")), "no-store"), "token_cached", ""},
		{!resp.isJSON(), "token_content_type", ""},
	}) {
		lasts := time.Duration(min(seconds, 1e9)) * time.Second
		r.find("token_ok", resp, fmt.Sprintf("expires in %s, scope %s", lasts, quote(scope)))
	}
	return nil
}

// refresh gets new tokens and checks what became of the old ones (RFC 6749, section 6; OAuth 2.1, section
// 4.3.1).
func (r *run) refresh(ctx context.Context) error {
	former := r.tokens
	if former.refresh == "" {
		r.find("nothing_to_refresh", nil)
		return nil
	}
	key := ""
	if r.server.repeats {
		key = rand.Text()
		r.secrets.add(credential.Secret(key))
	}
	resp, values, err := r.requestToken(ctx, "refresh", key, r.refreshForm(former.refresh))
	if err != nil {
		return err
	}
	if err := r.takeTokens(resp, values, "refresh_refused"); err != nil {
		return err
	}
	rotated := r.tokens.refresh != former.refresh
	r.find(either(rotated, "refresh_ok", "refresh_not_rotated"), resp)
	if err := r.checkTokens(ctx, former.access); err != nil {
		return err
	}
	if key != "" && rotated {
		if err := r.repeat(ctx, former.refresh, key); err != nil {
			return err
		}
	}
	if r.Replay && rotated {
		return r.replay(ctx, former.refresh)
	}
	return nil
}

// repeat sends the same request with the same Idempotency-Key, as a client does after a lost response. It runs only
// if the server's metadata offers this: otherwise the request would be a replay.
func (r *run) repeat(ctx context.Context, used credential.Secret, key string) error {
	note := "the same request, with its Idempotency-Key"
	resp, values, err := r.requestToken(ctx, note, key, r.refreshForm(used))
	if err != nil {
		return err
	}
	switch {
	case resp.status != http.StatusOK:
		return r.stop("repeat_refused", resp, resp.errorText())
	case credential.Secret(values.text("refresh_token")) != r.tokens.refresh:
		r.find("repeat_other_token", resp)
	default:
		r.find("repeat_ok", resp)
		r.tokens.access = credential.Secret(values.text("access_token"))
	}
	return nil
}

func (r *run) refreshForm(token credential.Secret) url.Values {
	return url.Values{
		"grant_type":    {"refresh_token"},
		"client_id":     {r.ClientID},
		"refresh_token": {token.Reveal()},
		"resource":      {r.offered.resource},
	}
}

// checkTokens tries the new access token and the old one.
func (r *run) checkTokens(ctx context.Context, former credential.Secret) error {
	resp, works, err := r.tryToken(ctx, "the new token", r.tokens.access)
	if err != nil {
		return err
	}
	if !works {
		return r.stop("new_token_refused", resp)
	}
	r.find("new_token_ok", resp)
	resp, works, err = r.tryToken(ctx, "the previous token", former)
	if err != nil {
		return err
	}
	r.find(either(works, "former_token_works", "former_token_ended"), resp)
	return nil
}

func (r *run) tryToken(ctx context.Context, note string, token credential.Secret) (*response, bool, error) {
	req := r.initialize(note, token.Reveal())
	req.timeout = callTimeout
	resp, err := r.send(ctx, req)
	return resp, err == nil && resp.status == http.StatusOK, err
}

// replay presents the used refresh token again, as an attacker would: the grant must end (RFC 9700, section
// 4.14.2).
func (r *run) replay(ctx context.Context, used credential.Secret) error {
	resp, values, err := r.requestToken(ctx, "the used refresh token again", "", r.refreshForm(used))
	if err != nil {
		return err
	}
	if values["access_token"] != nil || resp.status == http.StatusOK {
		r.find("replay_taken", resp)
		return nil
	}
	if resp.oauthError() != "invalid_grant" {
		r.find("replay_error", resp, resp.errorText())
	}
	note := "the newest refresh token, after the replay"
	resp, _, err = r.requestToken(ctx, note, "", r.refreshForm(r.tokens.refresh))
	if err != nil {
		return err
	}
	if resp.status == http.StatusOK {
		r.find("replay_ends_nothing", resp)
		return nil
	}
	resp, works, err := r.tryToken(ctx, "the access token, after the replay", r.tokens.access)
	if err != nil {
		return err
	}
	r.find(either(works, "replay_leaves_access", "replay_ok"), resp)
	return nil
}

// cleanUp revokes the grant and signs out, so that nothing is left behind (D4).
func (r *run) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	if r.tokens.access != "" {
		r.revoke(ctx)
	}
	if r.signOut != nil {
		b := browser{run: r, origin: origin(r.signOut.action)}
		if resp, err := r.send(ctx, b.submit(*r.signOut, "sign out")); err == nil {
			r.find(either(resp.status < 400, "signed_out", "not_signed_out"), resp)
		}
	}
}

// revoke revokes the grant (RFC 7009) and checks that the token no longer works.
func (r *run) revoke(ctx context.Context) {
	if r.server.revoke == "" {
		r.find("no_revocation", nil)
		return
	}
	token, hint := r.tokens.refresh, "refresh_token"
	if token == "" {
		token, hint = r.tokens.access, "access_token"
	}
	form := url.Values{"client_id": {r.ClientID}, "token": {token.Reveal()}, "token_type_hint": {hint}}
	resp, err := r.send(ctx, formRequest(r.server.revoke, "revoke", form, tokenTimeout))
	if err != nil {
		return
	}
	if resp.status != http.StatusOK {
		r.find("revocation_refused", resp, resp.errorText())
		return
	}
	again, works, err := r.tryToken(ctx, "the access token, after revocation", r.tokens.access)
	switch {
	case err != nil:
	case works:
		r.find("revoked_token_works", again)
	default:
		r.find("revoked", resp)
	}
}
