package token_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestRevoke_EveryTokenRevokesItsGrant(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	for what, choose := range map[string]func(first, second apitest.Connection) credential.Secret{
		"refresh token":            func(_, second apitest.Connection) credential.Secret { return second.Refresh },
		"superseded refresh token": func(first, _ apitest.Connection) credential.Secret { return first.Refresh },
		"access token":             func(_, second apitest.Connection) credential.Secret { return second.Access },
		"earlier access token":     func(first, _ apitest.Connection) credential.Secret { return first.Access },
	} {
		first := b.Connected(b.app, b.user)
		second := b.Refreshed(b.app, first)
		sibling := b.Connected(b.app, b.user)
		b.wantOK(what, b.revoke(b.app, choose(first, second)))
		b.wantRevoked(what, second)
		b.wantActive("the same user's other grant", sibling)
		b.wantOK(what+" again", b.revoke(b.app, choose(first, second)))
	}
}

func TestRevoke_AcceptsEveryAuthMethod(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	for _, method := range []client.AuthMethod{client.SecretJSON, client.SecretPost, client.SecretBasic} {
		c, secret := b.Fixture.Confidential(perm.ProgrammesRead)
		held := b.Linked(c, secret, b.user)
		setAuthMethod(b.Server, c, method)
		id, token := c.ID.String(), held.Access.Reveal()
		var answer apitest.Answer
		switch method {
		case client.SecretPost:
			answer = b.Form(apitest.RevokePath, "client_id", id, "client_secret", secret.Reveal(), "token", token)
		case client.SecretBasic:
			answer = b.FormWith(apitest.RevokePath, apitest.Basic(id, secret), "token", token)
		default:
			answer = b.PostJSON(apitest.RevokePath, "client_id", id, "client_secret", secret.Reveal(), "token", token)
		}
		b.wantOK(string(method), answer)
		b.wantRevoked(string(method), held)
	}
}

func TestRevoke_IgnoresTokensOfOtherClients(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	held := b.Connected(b.app, b.user)
	other := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	confidential, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	b.wantOK("refresh token", b.revoke(other, held.Refresh))
	b.wantOK("access token", b.revoke(other, held.Access))
	b.wantOK("a confidential client", b.PostJSON(apitest.RevokePath, "client_id", confidential.ID.String(),
		"client_secret", secret.Reveal(), "token", held.Refresh.Reveal()))
	b.wantActive("after another client's attempts", held)
	b.Refreshed(b.app, held)
}

func TestRevoke_OtherTextChangesNothing(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	held := b.Connected(b.app, b.user)
	_, code := b.Consent(b.app, b.user)
	refresh, access := held.Refresh.Reveal(), held.Access.Reveal()
	for what, text := range map[string]string{
		"garbage":               "word",
		"cut":                   refresh[:len(refresh)-1],
		"longer":                refresh + "A",
		"cut access token":      access[:len(access)-3],
		"three parts":           "a.b.c",
		"code":                  code.Reveal(),
		"grant id":              held.Grant.ID.String(),
		"another kind's prefix": strings.Replace(refresh, "alm_rt_", "alm_ac_", 1),
		"forged":                refresh[:20] + "AAAA" + refresh[24:],
	} {
		b.wantOK(what, b.revoke(b.app, credential.Secret(text)))
	}
	b.wantActive("after garbage", held)
	if n := b.Count(`select count(*) from account.grants where state = 'revoked'`); n != 0 {
		t.Errorf("%d grants were revoked", n)
	}
}

// RFC 7009: the client wants the grant to end, whether or not its access token has expired meanwhile.
func TestRevoke_ExpiredAccessTokenRevokesItsGrant(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	expired := b.Connected(b.app, b.user)
	b.Wait(2 * time.Hour)
	other := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	b.wantOK("another client", b.revoke(other, expired.Access))
	b.wantActive("after another client's attempt", expired)
	b.wantOK("expired access token", b.revoke(b.app, expired.Access))
	b.wantRevoked("expired access token", expired)
}

// Contract, section 5: a caller that has a personal access token can end it, and its owner gets a mail.
func TestRevoke_PersonalAccessTokenNeedsNoClient(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	mails := &queued{}
	b.Store.SendMail(mails)
	confidential, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	id, path := confidential.ID.String(), apitest.RevokePath
	for what, send := range map[string]func(token string) apitest.Answer{
		"form":        func(token string) apitest.Answer { return b.Form(path, "token", token) },
		"JSON":        func(token string) apitest.Answer { return b.PostJSON(path, "token", token) },
		"a connector": func(token string) apitest.Answer { return b.revoke(b.app, credential.Secret(token)) },
		"an application": func(token string) apitest.Answer {
			return b.PostJSON(path, "client_id", id, "client_secret", secret.Reveal(), "token", token)
		},
	} {
		personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
		untouched := b.Fixture.Token(b.user, perm.ProgrammesRead)
		before := len(mails.kinds)
		b.wantOK(what, send(personal.Reveal()))
		b.wantOK(what+" again", send(personal.Reveal()))
		for token, want := range map[credential.Secret]int{personal: 1, untouched: 0} {
			if n := b.Count(`select count(*) from account.personal_access_tokens p
				join account.audit_events e on e.subject = 'token:' || p.id and e.user_id = p.user_id
				where hash = $1 and revoked_at is not null and revoke_reason = 'revoked_by_holder'
				and e.action = '`+audit.TokenRevoked+`'`, credential.Hash(token.Reveal())); n != want {
				t.Errorf("%s: %d events of a revoked token, want %d", what, n, want)
			}
		}
		if sent := mails.kinds[before:]; len(sent) != 1 || sent[0] != mail.TokenRevoked {
			t.Errorf("%s: mails %v", what, sent)
		}
	}
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	for what, answer := range map[string]apitest.Answer{
		"a wrong secret": b.PostJSON(path, "client_id", id, "client_secret", "alm_cs_x", "token", personal.Reveal()),
		"no such client": b.Form(path, "client_id", uuid.NewString(), "token", personal.Reveal()),
		"a bearer":       b.FormWith(path, apitest.Bearer(personal), "token", personal.Reveal()),
	} {
		if answer.Status != 400 {
			t.Errorf("%s: %d %s", what, answer.Status, answer.Body)
		}
	}
	if n := b.Count(`select count(*) from account.personal_access_tokens
		where hash = $1 and revoked_at is null`, credential.Hash(personal.Reveal())); n != 1 {
		t.Error("a client that could not authenticate revoked a personal access token")
	}
	restore := b.CutPostgres()
	if answer := b.Form(path, "token", personal.Reveal()); answer.Status != 503 {
		t.Errorf("during an outage: %d %s", answer.Status, answer.Body)
	}
	restore()
}

// queued records the kinds of queued mails.
type queued struct{ kinds []mail.Kind }

func (q *queued) Add(_ context.Context, _ pgx.Tx, m mail.Message) error {
	q.kinds = append(q.kinds, m.Kind)
	return nil
}

func TestRevoke_EndedGrantIsUnchanged(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	expired := b.Connected(b.app, b.user)
	b.Fixture.Exec(`update account.grants set ends_at = now() where id = $1`, expired.Grant.ID)
	b.wantOK("refresh token of an ended grant", b.revoke(b.app, expired.Refresh))
	b.wantActive("ended by time, not by the client", expired)

	byUser := b.Connected(b.app, b.user)
	b.Fixture.Exec(
		`update account.grants set state = 'revoked', revoked_at = now(), revoke_reason = 'disconnected_by_user'
			where id = $1`,
		byUser.Grant.ID,
	)
	b.wantOK("revoked already", b.revoke(b.app, byUser.Refresh))
	if g := b.Stored(byUser.Grant); g.Reason != grant.ByUser {
		t.Errorf("the first reason was replaced by %s", g.Reason)
	}
}

func TestRevoke_IgnoresTokenTypeHint(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	for _, hint := range []string{"access_token", "refresh_token", "password", ""} {
		held := b.Connected(b.app, b.user)
		b.wantOK(
			"hint "+hint,
			b.Form(
				apitest.RevokePath,
				"client_id", b.app.ID.String(),
				"token", held.Refresh.Reveal(),
				"token_type_hint", hint,
			),
		)
		b.wantRevoked("hint "+hint, held)
	}
}

func TestRevoke_FailedAuthenticationIsRefused(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	confidential, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	held := b.Linked(confidential, secret, b.user)
	basic, basicSecret := b.Fixture.Confidential(perm.ProgrammesRead)
	setAuthMethod(b.Server, basic, client.SecretBasic)
	post, postSecret := b.Fixture.Confidential(perm.ProgrammesRead)
	setAuthMethod(b.Server, post, client.SecretPost)
	service := b.Service()
	id, app, token := confidential.ID.String(), b.app.ID.String(), held.Access.Reveal()
	path := apitest.RevokePath
	for _, c := range []struct {
		what   string
		answer apitest.Answer
		status int
		code   string
	}{
		{"no client", b.Form(path, "token", token), 400, "invalid_request"},
		{"no client in JSON", b.PostJSON(path, "token", token), 400, "invalid_request"},
		{"unknown client", b.Form(path, "client_id", uuid.NewString(), "token", token), 400, "invalid_client"},
		{"no UUID", b.Form(path, "client_id", "app", "token", token), 400, "invalid_client"},
		{"no secret", b.PostJSON(path, "client_id", id, "token", token), 400, "invalid_client"},
		{
			"wrong secret",
			b.PostJSON(path, "client_id", id, "client_secret", basicSecret.Reveal(), "token", token),
			400,
			"invalid_client",
		},
		{
			"a form from a JSON client",
			b.Form(path, "client_id", id, "client_secret", secret.Reveal(), "token", token),
			400,
			"invalid_client",
		},
		{"JSON from a connector", b.PostJSON(path, "client_id", app, "token", token), 400, "invalid_request"},
		{"Basic from a connector", b.FormWith(path, apitest.Basic(app, ""), "token", token), 400, "invalid_request"},
		{
			"a bearer",
			b.FormWith(path, apitest.Bearer(held.Access), "client_id", app, "token", token),
			400,
			"invalid_request",
		},
		{
			"a failed Basic",
			b.FormWith(path, apitest.Basic(basic.ID.String(), secret), "token", token),
			401,
			"invalid_client",
		},
		{
			"a Basic client's wrong secret without header",
			b.Form(path, "client_id", basic.ID.String(), "client_secret", postSecret.Reveal(), "token", token),
			400,
			"invalid_client",
		},
		{
			"a wrong posted secret",
			b.Form(path, "client_id", post.ID.String(), "client_secret", secret.Reveal(), "token", token),
			400,
			"invalid_client",
		},
		{
			"a posting client's wrong secret in the header",
			b.FormWith(path, apitest.Basic(post.ID.String(), basicSecret), "token", token),
			401,
			"invalid_client",
		},
		{
			"a service",
			b.FormWith(path, apitest.Basic(service.ID.String(), service.Secret), "token", token),
			400,
			"unauthorized_client",
		},
	} {
		if c.answer.Status != c.status || c.answer.Text("error") != c.code || c.answer.Text("error_description") == "" {
			t.Errorf("%s: %d %s, want %d %s", c.what, c.answer.Status, c.answer.Body, c.status, c.code)
		}
		if challenged := c.answer.Header.Get("WWW-Authenticate") != ""; challenged != (c.status == 401) {
			t.Errorf("%s: challenge %q", c.what, c.answer.Header.Get("WWW-Authenticate"))
		}
	}
	b.wantActive("after refusals", held)
}

func TestRevoke_MalformedRequestIs400(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	id := b.app.ID.String()
	post := func(contentType, body string) apitest.Answer {
		return b.Send(http.MethodPost, apitest.RevokePath, body, "Content-Type", contentType)
	}
	const form = "application/x-www-form-urlencoded"
	for what, answer := range map[string]apitest.Answer{
		"no token":        post(form, "client_id="+id),
		"an empty token":  post(form, "client_id="+id+"&token="),
		"a token twice":   post(form, "client_id="+id+"&token=a&token=a"),
		"no content type": post("", "client_id="+id+"&token=a"),
		"JSON token list": post("application/json", `{"client_id":"`+id+`","token":["a"]}`),
		"JSON key case":   post("application/json", `{"client_id":"`+id+`","Token":"a"}`),
		"JSON key twice":  post("application/json", `{"client_id":"`+id+`","token":"a","token":"a"}`),
		"in the query": b.Send(
			http.MethodPost,
			apitest.RevokePath+"?token=a&client_id="+id,
			"",
			"Content-Type", form,
		),
	} {
		if answer.Status != 400 || answer.Text("error") != "invalid_request" {
			t.Errorf("%s: %d %s", what, answer.Status, answer.Body)
		}
	}
	if answer := post(form, "client_id="+id+"&token="+strings.Repeat("x", 64<<10)); answer.Status != 413 {
		t.Errorf("a long body: %d", answer.Status)
	}
}

func TestRevoke_OutageIsNeverSuccess(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	held := b.Connected(b.app, b.user)
	restore := b.CutPostgres()
	for what, token := range map[string]credential.Secret{
		"refresh token": held.Refresh,
		"access token":  held.Access,
		"garbage":       "word",
	} {
		if answer := b.revoke(b.app, token); answer.Status != 503 ||
			answer.Text("error") != "temporarily_unavailable" ||
			answer.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", what, answer.Status, answer.Body)
		}
	}
	restore()
	b.wantActive("after the outage", held)
	b.wantOK("afterwards", b.revoke(b.app, held.Refresh))
	b.wantRevoked("afterwards", held)
}

// With the lock on the memberships, the client can be read and its grant cannot.
func TestRevoke_UnreadableGrantIs503(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	held := b.Connected(b.app, b.user)
	lock, err := b.Fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(t.Context()) }()
	if _, err := lock.Exec(t.Context(), `lock table account.memberships in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	for what, token := range map[string]credential.Secret{"refresh token": held.Refresh, "access token": held.Access} {
		if answer := b.revoke(b.app, token); answer.Status != 503 {
			t.Errorf("%s: %d %s", what, answer.Status, answer.Body)
		}
	}
}

// With the lock on the grant's row, everything can be read and the revocation cannot be committed.
func TestRevoke_UncommittedRevocationIs503(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	held := b.Connected(b.app, b.user)
	lock, err := b.Fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `select 1 from account.grants
		where id = $1 for update`, held.Grant.ID); err != nil {
		t.Fatal(err)
	}
	if answer := b.revoke(b.app, held.Refresh); answer.Status != 503 {
		t.Errorf("while the row is locked: %d %s", answer.Status, answer.Body)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantOK("afterwards", b.revoke(b.app, held.Refresh))
	b.wantRevoked("afterwards", held)
}

func TestRevoke_WithoutKeysAccessTokenIs503(t *testing.T) {
	t.Parallel()
	first := newRevokeEnv(t)
	held := first.Connected(first.app, first.user)
	b := &revokeEnv{Server: startWithoutKeys(t), t: t}
	c := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	if answer := b.revoke(c, held.Access); answer.Status != 503 {
		t.Errorf("%d %s", answer.Status, answer.Body)
	}
}

func TestRevoke_WorksWithoutRedis(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	held := b.Connected(b.app, b.user)
	b.Redis.Kill()
	b.wantOK("without Redis", b.revoke(b.app, held.Refresh))
	if g := b.Stored(held.Grant); g.State != grant.Revoked {
		t.Errorf("the grant is %s", g.State)
	}
	if strings.Contains(b.Log.String(), held.Refresh.Reveal()) {
		t.Error("a token is in the log")
	}
}

func TestRevoke_OnlyWrongSecretsAreThrottled(t *testing.T) {
	t.Parallel()
	b := newRevokeEnv(t)
	c, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	held := b.Linked(c, secret, b.user)
	failElsewhere(t, b.Server, func(f *ratelimit.Limiter) time.Duration { return f.ForClient(c.ID.String()) })
	wantLimited(t, func() apitest.Answer {
		return b.PostJSON(
			apitest.RevokePath,
			"client_id", c.ID.String(),
			"client_secret", "alm_cs_wrong",
			"token", held.Access.Reveal(),
		)
	})
	b.wantActive("by a wrong secret", held)
	b.wantOK(
		"the right one",
		b.PostJSON(
			apitest.RevokePath,
			"client_id", c.ID.String(),
			"client_secret", secret.Reveal(),
			"token", held.Access.Reveal(),
		),
	)
	b.wantRevoked("by the right one", held)
}
