package token_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
)

func TestIntrospect_OnlyServicesMayCall(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	held, deleted, other := b.connected(), b.Service(), b.Service()
	b.Fixture.Exec(`update account.oauth_clients set deleted_at = now() where id = $1`, deleted.ID)
	personal := b.Fixture.Token(b.user)
	id, own, confidential := b.service.ID.String(), b.service.Secret.Reveal(), b.linked.ID.String()
	basic := apitest.Basic(id, b.service.Secret)
	posted := []string{"client_id", id, "client_secret", own}
	for _, c := range []struct {
		what    string
		status  int
		headers []string
		form    []string
	}{
		{"Basic", 200, basic, nil},
		{"id and secret in the form", 200, nil, posted},
		{"Basic, and the same id in the form", 200, basic, []string{"client_id", id}},
		{"Basic, and the secret in the form", 400, basic, []string{"client_secret", own}},
		{"Basic, and an empty secret in the form", 400, basic, []string{"client_secret", ""}},
		{"both ways at once", 400, basic, posted},
		{"Basic, and another id in the form", 400, basic, []string{"client_id", other.ID.String()}},
		{"the id twice", 400, nil, append(posted, "client_id", id)},
		{"the id alone", 401, nil, []string{"client_id", id}},
		{"the secret alone", 401, nil, []string{"client_secret", own}},
		{"another service's secret", 401, nil, []string{"client_id", id, "client_secret", other.Secret.Reveal()}},
		{"an unknown service", 401, nil, []string{"client_id", uuid.NewString(), "client_secret", own}},
		{"no UUID", 401, nil, []string{"client_id", "service", "client_secret", own}},
		{"an app", 401, nil, []string{"client_id", confidential, "client_secret", b.secret.Reveal()}},
		{"a user's access token beside them", 401, apitest.Bearer(held.Access), posted},
		{"no credentials", 401, nil, nil},
		{"a user's access token", 401, apitest.Bearer(held.Access), nil},
		{"a personal access token", 401, apitest.Bearer(personal), nil},
		{"Basic of an app", 401, apitest.Basic(confidential, b.secret), nil},
		{"Basic of a connector", 401, apitest.Basic(b.name, ""), nil},
		{"Basic with a wrong secret", 401, apitest.Basic(id, b.secret), nil},
		{"Basic without a secret", 401, apitest.Basic(id, ""), nil},
		{"Basic of an unknown client", 401, apitest.Basic(uuid.NewString(), b.service.Secret), nil},
		{"Basic without a UUID", 401, apitest.Basic("service", b.service.Secret), nil},
		{"a deleted service", 401, apitest.Basic(deleted.ID.String(), deleted.Secret), nil},
		{"a scheme without content", 401, []string{"Authorization", "Basic"}, nil},
		{"two headers", 401, append(basic, basic...), nil},
	} {
		form := append([]string{"token", personal.Reveal()}, c.form...)
		answer := b.FormWith(apitest.IntrospectPath, c.headers, form...)
		b.Wants(c.what, answer, c.status, map[int]string{400: "invalid_request", 401: "invalid_client"}[c.status])
		challenged := strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic ")
		if challenged != (c.status == 401) || (c.status == 200 && answer.Object()["active"] != true) {
			t.Errorf("%s: want a challenge with 401 only, and active with 200\n%s", c.what, b.Explain(answer))
		}
	}
	inQuery := apitest.IntrospectPath + "?client_id=" + id + "&client_secret=" + own
	b.Wants("in the query", b.Form(inQuery, "token", personal.Reveal()), 401, "invalid_client")
	inJSON := b.PostJSON(apitest.IntrospectPath, append(posted, "token", personal.Reveal())...)
	b.Wants("in JSON", inJSON, 401, "invalid_client")
	if strings.Contains(b.Log.String(), own) {
		t.Error("a secret is in the log")
	}
}

func TestIntrospect_MalformedRequestIs400(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	personal := b.Fixture.Token(b.user).Reveal()
	const form, query = "application/x-www-form-urlencoded", apitest.IntrospectPath + "?token="
	send := func(path, contentType, body string) apitest.Answer {
		return b.Send(http.MethodPost, path, body, append(apitest.Basic(b.service.ID.String(), b.service.Secret),
			"Content-Type", contentType)...)
	}
	post := func(contentType, body string) apitest.Answer { return send(apitest.IntrospectPath, contentType, body) }
	inJSON := post("application/json", `{"token":"`+personal+`"}`)
	for what, answer := range map[string]apitest.Answer{
		"no token":           post(form, ""),
		"an empty token":     post(form, "token="),
		"two tokens":         post(form, "token="+personal+"&token="+personal),
		"a broken form":      post(form, "token=%zz"),
		"JSON":               inJSON,
		"no content type":    post("", "token="+personal),
		"token in the query": send(query+personal, form, ""),
	} {
		b.Wants(what, answer, 400, "invalid_request")
	}
	if !strings.Contains(inJSON.Text("error_description"), "Content-Type") {
		t.Errorf("the cause is not named\n%s", b.Explain(inJSON))
	}
	b.Wants("a long body", post(form, "token="+strings.Repeat("x", 64<<10)), 413, "invalid_request")
	hinted := post(form, "token_type_hint=refresh_token&unknown=1&token="+personal)
	b.WantsMembers("a wrong hint", hinted, map[string]any{"active": true})
}
