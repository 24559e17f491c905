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
func (r *run) exchange(ctx context.Context) {
	form := r.codeForm(r.attempt.code.Reveal(), r.attempt.verifier.Reveal())
	resp, values := r.requestToken(ctx, "the code", "", form)
	r.takeTokens(resp, values, "exchange_refused")
}

func (r *run) codeForm(code, verifier string) url.Values {
	return url.Values{
		"grant_type":    {"authorization_code"},
		"client_id":     {r.ClientID},
		"code":          {code},
		"redirect_uri":  {r.redirect},
		"code_verifier": {verifier},
		"resource":      {r.offered.resource},
	}
}

// requestToken sends a form to the token endpoint, with an Idempotency-Key unless it is "", and returns the object in
// the response. It registers the tokens as secrets.
func (r *run) requestToken(ctx context.Context, note, key string, form url.Values) (*response, object) {
	req := formRequest(r.server.token, note, form, tokenTimeout)
	if key != "" {
		req.header["Idempotency-Key"] = key
	}
	resp := r.send(ctx, req)
	values, _ := readObject(resp.body)
	for _, name := range []string{"access_token", "refresh_token", "id_token"} {
		r.secrets.add(credential.Secret(values.text(name)))
	}
	return resp, values
}

// takeTokens checks a response of the token endpoint (RFC 6749, section 5.1; connectors, Token) and stores its tokens.
// refused is the code of the finding if it is an error.
func (r *run) takeTokens(resp *response, values object, refused string) {
	access, refresh := credential.Secret(values.text("access_token")), credential.Secret(values.text("refresh_token"))
	switch {
	case resp.redirects():
		r.stop("token_redirects", resp)
	case resp.status != http.StatusOK:
		r.stop(refused, resp, resp.errorText())
	case access == "":
		r.stop("no_access_token", resp)
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
}

// refresh gets new tokens and checks what became of the old ones (RFC 6749, section 6; OAuth 2.1, section
// 4.3.1).
func (r *run) refresh(ctx context.Context) {
	former := r.tokens
	if former.refresh == "" {
		r.find("nothing_to_refresh", nil)
		return
	}
	key := ""
	if r.server.repeats {
		key = rand.Text()
		r.secrets.add(credential.Secret(key))
	}
	resp, values := r.requestToken(ctx, "refresh", key, r.refreshForm(former.refresh))
	r.takeTokens(resp, values, "refresh_refused")
	rotated := r.tokens.refresh != former.refresh
	r.find(either(rotated, "refresh_ok", "refresh_not_rotated"), resp)
	r.checkTokens(ctx, former.access)
	if key != "" && rotated {
		r.repeat(ctx, former.refresh, key)
	}
	if r.Replay && rotated {
		r.replay(ctx, former.refresh)
	}
}

// repeat sends the same request with the same Idempotency-Key, as a client does after a lost response. It runs only
// if the server's metadata offers this: otherwise the request would be a replay.
func (r *run) repeat(ctx context.Context, used credential.Secret, key string) {
	note := "the same request, with its Idempotency-Key"
	resp, values := r.requestToken(ctx, note, key, r.refreshForm(used))
	switch {
	case resp.status != http.StatusOK:
		r.stop("repeat_refused", resp, resp.errorText())
	case credential.Secret(values.text("refresh_token")) != r.tokens.refresh:
		r.find("repeat_other_token", resp)
	default:
		r.find("repeat_ok", resp)
		r.tokens.access = credential.Secret(values.text("access_token"))
	}
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
func (r *run) checkTokens(ctx context.Context, former credential.Secret) {
	resp, works := r.tryToken(ctx, "the new token", r.tokens.access)
	if !works {
		r.stop("new_token_refused", resp)
	}
	r.find("new_token_ok", resp)
	resp, works = r.tryToken(ctx, "the previous token", former)
	r.find(either(works, "former_token_works", "former_token_ended"), resp)
}

func (r *run) tryToken(ctx context.Context, note string, token credential.Secret) (resp *response, works bool) {
	req := r.initialize(note, token.Reveal())
	req.timeout = callTimeout
	resp = r.send(ctx, req)
	return resp, resp.status == http.StatusOK
}

// replay presents the used refresh token again, as an attacker would: the grant must end (RFC 9700, section
// 4.14.2).
func (r *run) replay(ctx context.Context, used credential.Secret) {
	resp, values := r.requestToken(ctx, "the used refresh token again", "", r.refreshForm(used))
	if values["access_token"] != nil || resp.status == http.StatusOK {
		r.find("replay_taken", resp)
		return
	}
	if resp.oauthError() != "invalid_grant" {
		r.find("replay_error", resp, resp.errorText())
	}
	note := "the newest refresh token, after the replay"
	resp, _ = r.requestToken(ctx, note, "", r.refreshForm(r.tokens.refresh))
	if resp.status == http.StatusOK {
		r.find("replay_ends_nothing", resp)
		return
	}
	resp, works := r.tryToken(ctx, "the access token, after the replay", r.tokens.access)
	r.find(either(works, "replay_leaves_access", "replay_ok"), resp)
}

// cleanUp revokes the grant and signs out, so that nothing is left behind (D4).
func (r *run) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	if r.tokens.access != "" {
		perform(func() { r.revoke(ctx) })
	}
	if r.signOut != nil {
		b := browser{run: r, origin: origin(r.signOut.action)}
		if resp, ok := r.try(ctx, b.submit(*r.signOut, "sign out")); ok {
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
	resp := r.send(ctx, formRequest(r.server.revoke, "revoke", form, tokenTimeout))
	if resp.status != http.StatusOK {
		r.find("revocation_refused", resp, resp.errorText())
		return
	}
	if again, works := r.tryToken(ctx, "the access token, after revocation", r.tokens.access); works {
		r.find("revoked_token_works", again)
	} else {
		r.find("revoked", resp)
	}
}
