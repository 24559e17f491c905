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
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// wantEnded requires that the client has revoked the grant, with one event, and that its refresh token is refused.
func (b *testEnv) wantEnded(what string, held apitest.Connection) {
	b.t.Helper()
	b.wantRevoked(what, held.Grant, grant.ByClient)
	b.WantsRows(what, 1, `account.audit_events where action = '`+audit.GrantRevoked+`' and subject = 'grant:' || $1
		and actor = 'client:' || $2 and detail->>'reason' = 'revoked_by_client'`, held.Grant.ID.String(),
		held.Grant.ClientID.String())
	if held.Refresh != "" {
		b.Wants(what+": refresh", b.refresh(held.Refresh), 400, "invalid_grant")
	}
}

func TestRevoke_EveryTokenRevokesItsGrant(t *testing.T) {
	b := newTestEnv(t)
	for what, choose := range map[string]func(first, second apitest.Connection) credential.Secret{
		"refresh token":            func(_, second apitest.Connection) credential.Secret { return second.Refresh },
		"superseded refresh token": func(first, _ apitest.Connection) credential.Secret { return first.Refresh },
		"access token":             func(_, second apitest.Connection) credential.Secret { return second.Access },
		"earlier access token":     func(first, _ apitest.Connection) credential.Secret { return first.Access },
	} {
		first := b.connected()
		second := b.Refreshed(b.app, first)
		sibling := b.connected()
		b.wantOK(what, b.revoke(b.app, choose(first, second)))
		b.wantEnded(what, second)
		b.wantActive("the same user's other grant", sibling.Grant)
		b.wantOK(what+" again", b.revoke(b.app, choose(first, second)))
	}
	for _, hint := range []string{"access_token", "refresh_token", "password", ""} {
		held := b.connected()
		b.wantOK("hint "+hint, b.Form(apitest.RevokePath, "client_id", b.name, "token", held.Refresh.Reveal(),
			"token_type_hint", hint))
		b.wantEnded("hint "+hint, held)
	}
}

func TestRevoke_AcceptsEveryAuthMethod(t *testing.T) {
	b := newTestEnv(t)
	for _, method := range []client.AuthMethod{client.SecretJSON, client.SecretPost, client.SecretBasic} {
		c, secret := b.Fixture.Confidential(perm.ProgrammesRead)
		held := b.Linked(c, secret, b.user)
		b.setAuthMethod(c, method)
		token := []string{"token", held.Access.Reveal()}
		posted := append(token, "client_id", c.ID.String(), "client_secret", secret.Reveal())
		var answer apitest.Answer
		switch method {
		case client.SecretPost:
			answer = b.Form(apitest.RevokePath, posted...)
		case client.SecretBasic:
			answer = b.FormWith(apitest.RevokePath, apitest.Basic(c.ID.String(), secret), token...)
		default:
			answer = b.PostJSON(apitest.RevokePath, posted...)
		}
		b.wantOK(string(method), answer)
		b.wantEnded(string(method), held)
	}
}

func TestRevoke_IgnoresTokensOfOtherClients(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	other := b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead)
	b.wantOK("refresh token", b.revoke(other, held.Refresh))
	b.wantOK("access token", b.revoke(other, held.Access))
	b.wantOK("a confidential client", b.PostJSON(apitest.RevokePath, "client_id", b.linked.ID.String(),
		"client_secret", b.secret.Reveal(), "token", held.Refresh.Reveal()))
	b.wantActive("after another client's attempts", held.Grant)
	b.Refreshed(b.app, held)
}

func TestRevoke_OtherTextChangesNothing(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
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
	b.WantsRows("revoked grants", 0, `account.grants where state = 'revoked' and tenant_id = $1`, b.Fixture.WorkspaceID)
}

// RFC 7009: the client wants the grant to end, whether or not its access token has expired meanwhile.
func TestRevoke_ExpiredAccessTokenRevokesItsGrant(t *testing.T) {
	b := inTurn(t)
	expired := b.connected()
	b.Wait(2 * time.Hour)
	b.wantOK("another client", b.revoke(b.Fixture.Connector(apitest.MCP, perm.ProgrammesRead), expired.Access))
	b.wantActive("after another client's attempt", expired.Grant)
	b.wantOK("expired access token", b.revoke(b.app, expired.Access))
	b.wantEnded("expired access token", expired)
}

// Contract, section 5: a caller that has a personal access token can end it, and its owner gets a mail.
func TestRevoke_PersonalAccessTokenNeedsNoClient(t *testing.T) {
	b := ownTestEnv(t)
	mails := &queued{}
	b.Store.SendMail(mails)
	const path = apitest.RevokePath
	asApp := func(secret, token credential.Secret) apitest.Answer {
		return b.PostJSON(path, "client_id", b.linked.ID.String(), "client_secret", secret.Reveal(), "token",
			token.Reveal())
	}
	const revoked = `account.personal_access_tokens p
		join account.audit_events e on e.subject = 'token:' || p.id and e.user_id = p.user_id
		where hash = $1 and revoked_at is not null and revoke_reason = 'revoked_by_holder'
		and e.action = '` + audit.TokenRevoked + `'`
	for what, send := range map[string]func(token credential.Secret) apitest.Answer{
		"form": func(token credential.Secret) apitest.Answer { return b.Form(path, "token", token.Reveal()) },
		"JSON": func(token credential.Secret) apitest.Answer {
			return b.PostJSON(path, "token", token.Reveal())
		},
		"a connector":    func(token credential.Secret) apitest.Answer { return b.revoke(b.app, token) },
		"an application": func(token credential.Secret) apitest.Answer { return asApp(b.secret, token) },
	} {
		personal, untouched := b.Fixture.Token(b.user), b.Fixture.Token(b.user)
		mails.kinds = nil
		b.wantOK(what, send(personal))
		b.wantOK(what+" again", send(personal))
		b.WantsRows(what, 1, revoked, credential.Hash(personal.Reveal()))
		b.WantsRows(what+": another token", 0, revoked, credential.Hash(untouched.Reveal()))
		b.Equal(what+": mails", mails.kinds, []mail.Kind{mail.TokenRevoked})
	}
	personal := b.Fixture.Token(b.user)
	b.Wants("a wrong secret", asApp("alm_cs_x", personal), 400, "invalid_client")
	b.Wants("no such client", b.Form(path, "client_id", uuid.NewString(), "token", personal.Reveal()), 400,
		"invalid_client")
	b.Wants("a bearer", b.FormWith(path, apitest.Bearer(personal), "token", personal.Reveal()), 400, "invalid_request")
	restore := b.CutPostgres()
	b.Wants("an outage", b.Form(path, "token", personal.Reveal()), 503, "temporarily_unavailable")
	restore()
	b.WantsRows("after refusals", 1, `account.personal_access_tokens where hash = $1 and revoked_at is null`,
		credential.Hash(personal.Reveal()))
}

// queued records the kinds of queued mails.
type queued struct{ kinds []mail.Kind }

func (q *queued) Add(_ context.Context, _ pgx.Tx, m mail.Message) error {
	q.kinds = append(q.kinds, m.Kind)
	return nil
}

func TestRevoke_EndedGrantIsUnchanged(t *testing.T) {
	b := newTestEnv(t)
	expired, byUser := b.connected(), b.connected()
	b.Fixture.Exec(`update account.grants set ends_at = now() where id = $1`, expired.Grant.ID)
	b.wantOK("refresh token of an ended grant", b.revoke(b.app, expired.Refresh))
	b.wantActive("ended by time, not by the client", expired.Grant)
	b.disconnect(byUser.Grant)
	b.wantOK("revoked already", b.revoke(b.app, byUser.Refresh))
	b.wantRevoked("the first reason", byUser.Grant, grant.ByUser)
}

func TestRevoke_FailedAuthenticationIsRefused(t *testing.T) {
	b := newTestEnv(t)
	held := b.Linked(b.linked, b.secret, b.user)
	basic, basicSecret := b.standard(client.SecretBasic)
	post, postSecret := b.standard(client.SecretPost)
	id, app, secret := b.linked.ID.String(), b.name, b.secret.Reveal()
	access := []string{"token", held.Access.Reveal()}
	object := func(pairs ...string) apitest.Answer {
		return b.PostJSON(apitest.RevokePath, append(pairs, access...)...)
	}
	header := func(headers []string, pairs ...string) apitest.Answer {
		return b.FormWith(apitest.RevokePath, headers, append(pairs, access...)...)
	}
	form := func(pairs ...string) apitest.Answer { return header(nil, pairs...) }
	basicOf := func(c client.Client, secret credential.Secret) []string { return apitest.Basic(c.ID.String(), secret) }
	withoutHeader := form("client_id", basic.ID.String(), "client_secret", postSecret.Reveal())
	for _, c := range []struct {
		what   string
		answer apitest.Answer
		status int
		code   string
	}{
		{"no client", form(), 400, "invalid_request"},
		{"no client in JSON", object(), 400, "invalid_request"},
		{"unknown client", form("client_id", uuid.NewString()), 400, "invalid_client"},
		{"no UUID", form("client_id", "app"), 400, "invalid_client"},
		{"no secret", object("client_id", id), 400, "invalid_client"},
		{"wrong secret", object("client_id", id, "client_secret", basicSecret.Reveal()), 400, "invalid_client"},
		{"a form from a JSON client", form("client_id", id, "client_secret", secret), 400, "invalid_client"},
		{"JSON from a connector", object("client_id", app), 400, "invalid_request"},
		{"Basic from a connector", header(apitest.Basic(app, "")), 400, "invalid_request"},
		{"a bearer", header(apitest.Bearer(held.Access), "client_id", app), 400, "invalid_request"},
		{"a failed Basic", header(basicOf(basic, b.secret)), 401, "invalid_client"},
		{"a Basic client's wrong secret without header", withoutHeader, 400, "invalid_client"},
		{"a wrong posted secret", form("client_id", post.ID.String(), "client_secret", secret), 400, "invalid_client"},
		{"a posting client's wrong secret in the header", header(basicOf(post, basicSecret)), 401, "invalid_client"},
		{"a service", header(basicOf(b.service.Client, b.service.Secret)), 400, "unauthorized_client"},
	} {
		b.Wants(c.what, c.answer, c.status, c.code)
		if challenge := c.answer.Header.Get("WWW-Authenticate"); (challenge != "") != (c.status == 401) {
			t.Errorf("%s: challenge %q", c.what, challenge)
		}
	}
	b.wantActive("after refusals", held.Grant)
}

func TestRevoke_MalformedRequestIs400(t *testing.T) {
	b := newTestEnv(t)
	form, object := "client_id="+b.name+"&token=", `{"client_id":"`+b.name+`",`
	for what, c := range map[string]struct{ query, contentType, body string }{
		"no token":       {"", asForm, "client_id=" + b.name},
		"an empty token": {"", asForm, form},
		"a token twice":  {"", asForm, form + "a&token=a"},
		"JSON key case":  {"", asJSON, object + `"Token":"a"}`},
		"JSON no text":   {"", asJSON, object + `"token":["a"]}`},
		"in the query":   {"?" + form + "a", asForm, ""},
	} {
		answer := b.Send(http.MethodPost, apitest.RevokePath+c.query, c.body, "Content-Type", c.contentType)
		b.Wants(what, answer, 400, "invalid_request")
	}
	long := b.Form(apitest.RevokePath, "client_id", b.name, "token", strings.Repeat("x", 64<<10))
	b.Wants("a long body", long, 413, "invalid_request")
}

func TestRevoke_OutageIsNeverSuccess(t *testing.T) {
	b := inTurn(t)
	held, other := b.connected(), b.connected()
	restore := b.CutPostgres()
	for _, token := range []credential.Secret{held.Refresh, held.Access, "word"} {
		b.Wants("an outage", b.revoke(b.app, token), 503, "temporarily_unavailable")
	}
	unknown := b.exchangeCode("alm_ac_word", "client_id", uuid.NewString())
	b.Wants("the exchange of an unknown client", unknown, 503, "temporarily_unavailable")
	restore()
	b.wantActive("after the outage", held.Grant)
	b.wantOK("afterwards", b.revoke(b.app, held.Refresh))
	b.wantEnded("afterwards", held)
	b.Redis.Kill()
	b.wantOK("without Redis", b.revoke(b.app, other.Refresh))
	b.wantRevoked("without Redis", other.Grant, grant.ByClient)
}

// With the lock on the memberships, the client can be read and its grant cannot. With the lock on the grant's row,
// everything can be read and the revocation cannot be committed.
func TestRevoke_UncommittedRevocationIs503(t *testing.T) {
	b := impatiently(t)
	for what, lock := range map[string]string{
		"unreadable":  `lock table account.memberships in access exclusive mode`,
		"unwriteable": `select 1 from account.grants for update`,
	} {
		held := b.connected()
		release := b.Lock(lock)
		for _, answer := range atOnce(
			func() apitest.Answer { return b.revoke(b.app, held.Refresh) },
			func() apitest.Answer { return b.revoke(b.app, held.Access) },
		) {
			b.Wants(what, answer, 503, "temporarily_unavailable")
		}
		release()
		b.wantOK(what+" afterwards", b.revoke(b.app, held.Refresh))
		b.wantEnded(what+" afterwards", held)
	}
}
