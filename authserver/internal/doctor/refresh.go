package doctor

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
	"github.com/almonerhq/almoner/shared/credential"
)

// cleanUpLimit bounds the clean-up, which also runs after the user has cancelled.
const cleanUpLimit = 15 * time.Second

// refresh gets new tokens and checks what became of the old ones (RFC 6749, section 6; OAuth 2.1, section
// 4.3.1).
func (w *run) refresh(ctx context.Context) error {
	former := w.tokens
	if former.refresh == "" {
		w.find("nothing_to_refresh", nil)
		return nil
	}
	key := ""
	if w.server.repeats {
		key = rand.Text()
		w.secrets.Add(credential.Secret(key))
	}
	answer, values, err := w.requestTokenWithKey(ctx, "refresh", w.refreshForm(former.refresh), key)
	if err != nil {
		return err
	}
	if err := w.take(answer, values, false); err != nil {
		return err
	}
	switch {
	case w.tokens.refresh == former.refresh:
		w.find("refresh_not_rotated", answer)
	default:
		w.find("refresh_ok", answer)
	}
	if err := w.judgeTokens(ctx, former.access); err != nil {
		return err
	}
	if key != "" && w.tokens.refresh != former.refresh {
		if err := w.repeat(ctx, former.refresh, key); err != nil {
			return err
		}
	}
	if w.Replay && w.tokens.refresh != former.refresh {
		return w.replay(ctx, former.refresh)
	}
	return nil
}

// repeat sends the same request with the same Idempotency-Key, as a client does after a lost response. It runs only
// if the server's metadata offers this: otherwise the request would be a replay.
func (w *run) repeat(ctx context.Context, used credential.Secret, key string) error {
	note := "the same request, with its Idempotency-Key"
	answer, values, err := w.requestTokenWithKey(ctx, note, w.refreshForm(used), key)
	if err != nil {
		return err
	}
	switch refresh, _ := values["refresh_token"].(string); {
	case answer.Status != http.StatusOK:
		w.find("repeat_refused", answer, w.described(answer))
		return errStop
	case credential.Secret(refresh) != w.tokens.refresh:
		w.find("repeat_other_token", answer)
	default:
		w.find("repeat_ok", answer)
		access, _ := values["access_token"].(string)
		w.tokens.access = credential.Secret(access)
	}
	return nil
}

func (w *run) refreshForm(token credential.Secret) url.Values {
	return url.Values{
		"grant_type":    {"refresh_token"},
		"client_id":     {w.ClientID},
		"refresh_token": {token.Reveal()},
		"resource":      {w.offered.resource},
	}
}

// judgeTokens tries the new access token and the old one.
func (w *run) judgeTokens(ctx context.Context, former credential.Secret) error {
	answer, works, err := w.works(ctx, "the new token", w.tokens.access)
	if err != nil {
		return err
	}
	if !works {
		w.find("new_token_refused", answer)
		return errStop
	}
	w.find("new_token_ok", answer)
	answer, works, err = w.works(ctx, "the previous token", former)
	switch {
	case err != nil:
		return err
	case works:
		w.find("former_token_works", answer)
	default:
		w.find("former_token_ended", answer)
	}
	return nil
}

func (w *run) works(ctx context.Context, note string, token credential.Secret) (*wire.Answer, bool, error) {
	r := w.initialize(note, token.Reveal())
	r.Within = callLimit
	answer, err := w.send(ctx, r)
	return answer, err == nil && answer.Status == http.StatusOK, err
}

// replay presents the used refresh token again, as an attacker would: the grant must end (RFC 9700, section
// 4.14.2).
func (w *run) replay(ctx context.Context, used credential.Secret) error {
	answer, values, err := w.requestToken(ctx, "the used refresh token again", w.refreshForm(used))
	if err != nil {
		return err
	}
	if values["access_token"] != nil || answer.Status == http.StatusOK {
		w.find("replay_taken", answer)
		return nil
	}
	if code := oauthError(answer); code != "invalid_grant" {
		w.find("replay_error", answer, w.described(answer))
	}
	answer, _, err = w.requestToken(ctx, "the newest refresh token, after the replay", w.refreshForm(w.tokens.refresh))
	if err != nil {
		return err
	}
	if answer.Status == http.StatusOK {
		w.find("replay_ends_nothing", answer)
		return nil
	}
	answer, works, err := w.works(ctx, "the access token, after the replay", w.tokens.access)
	switch {
	case err != nil:
		return err
	case works:
		w.find("replay_leaves_access", answer)
	default:
		w.find("replay_ok", answer)
	}
	return nil
}

// cleanUp revokes the grant and signs out, so that nothing is left behind (D4).
func (w *run) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanUpLimit)
	defer cancel()
	w.step = "clean up"
	if w.tokens.access != "" {
		w.giveBack(ctx)
	}
	if w.leave != nil {
		b := browser{run: w, origin: origin(w.leave.action)}
		answer, err := w.send(ctx, b.submit(*w.leave, "sign out"))
		if err == nil && answer.Status < 400 {
			w.find("signed_out", answer)
		} else if err == nil {
			w.find("not_signed_out", answer)
		}
	}
}

// giveBack revokes the grant (RFC 7009) and checks that the token no longer works.
func (w *run) giveBack(ctx context.Context) {
	if w.server.revoke == "" {
		w.find("no_revocation", nil)
		return
	}
	token, hint := w.tokens.refresh, "refresh_token"
	if token == "" {
		token, hint = w.tokens.access, "access_token"
	}
	form := url.Values{"client_id": {w.ClientID}, "token": {token.Reveal()}, "token_type_hint": {hint}}
	request := wire.Form(w.server.revoke, form.Encode(), tokenLimit)
	request.Note = "revoke"
	answer, err := w.send(ctx, request)
	if err != nil {
		return
	}
	if answer.Status != http.StatusOK {
		w.find("revocation_refused", answer, w.described(answer))
		return
	}
	again, works, err := w.works(ctx, "the access token, after revocation", w.tokens.access)
	switch {
	case err != nil:
	case works:
		w.find("revoked_token_works", again)
	default:
		w.find("revoked", answer)
	}
}
