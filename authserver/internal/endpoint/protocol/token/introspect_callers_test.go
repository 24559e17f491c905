package token_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestIntrospect_OnlyServicesMayCall(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	confidential, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	connector, held := b.connector(apitest.REST)
	deleted := b.Service()
	b.Fixture.Exec(`update account.oauth_clients set deleted_at = now() where id = $1`, deleted.ID)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	id := b.service.ID.String()
	for what, headers := range map[string][]string{
		"no credentials":           nil,
		"a user's access token":    apitest.Bearer(held.Access),
		"a personal access token":  apitest.Bearer(personal),
		"a confidential client":    apitest.Basic(confidential.ID.String(), secret),
		"a connector":              apitest.Basic(connector.ID.String(), ""),
		"a wrong secret":           apitest.Basic(id, secret),
		"no secret":                apitest.Basic(id, ""),
		"an unknown client":        apitest.Basic(uuid.NewString(), b.service.Secret),
		"no UUID":                  apitest.Basic("service", b.service.Secret),
		"a deleted service":        apitest.Basic(deleted.ID.String(), deleted.Secret),
		"a scheme without content": {"Authorization", "Basic"},
		"two headers":              append(apitest.Basic(id, b.service.Secret), apitest.Basic(id, b.service.Secret)...),
	} {
		answer := b.FormWith(apitest.IntrospectPath, headers, "token", personal.Reveal())
		if answer.Status != 401 || answer.Text("error") != "invalid_client" ||
			!strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("%s: %d %q %s", what, answer.Status, answer.Header.Get("WWW-Authenticate"), answer.Body)
		}
	}
}

func TestIntrospect_AcceptsSecretInForm(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	confidential, secret := b.Fixture.Confidential(perm.ProgrammesRead)
	_, held := b.connector(apitest.REST)
	other := b.Service()
	id, own, token := b.service.ID.String(), b.service.Secret.Reveal(), held.Access.Reveal()
	basic := apitest.Basic(id, b.service.Secret)
	for _, c := range []struct {
		what    string
		status  int
		headers []string
		form    []string
	}{
		{"id and secret in the form", 200, nil, []string{"client_id", id, "client_secret", own}},
		{"Basic, and the same id in the form", 200, basic, []string{"client_id", id}},
		{"Basic, and the secret in the form", 400, basic, []string{"client_secret", own}},
		{"Basic, and an empty secret in the form", 400, basic, []string{"client_secret", ""}},
		{"both ways at once", 400, basic, []string{"client_id", id, "client_secret", own}},
		{"Basic, and another id in the form", 400, basic, []string{"client_id", other.ID.String()}},
		{"the id twice", 400, nil, []string{"client_id", id, "client_id", id, "client_secret", own}},
		{"the id alone", 401, nil, []string{"client_id", id}},
		{"the secret alone", 401, nil, []string{"client_secret", own}},
		{"another service's secret", 401, nil, []string{"client_id", id, "client_secret", other.Secret.Reveal()}},
		{"an unknown service", 401, nil, []string{"client_id", uuid.NewString(), "client_secret", own}},
		{"no UUID", 401, nil, []string{"client_id", "service", "client_secret", own}},
		{
			"a confidential client",
			401,
			nil,
			[]string{"client_id", confidential.ID.String(), "client_secret", secret.Reveal()},
		},
		{
			"a user's access token beside them",
			401,
			apitest.Bearer(held.Access),
			[]string{"client_id", id, "client_secret", own},
		},
	} {
		answer := b.FormWith(apitest.IntrospectPath, c.headers, append([]string{"token", token}, c.form...)...)
		challenged := strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic ")
		if answer.Status != c.status || challenged != (c.status == 401) {
			t.Errorf(
				"%s: %d %q %s, want %d",
				c.what, answer.Status, answer.Header.Get("WWW-Authenticate"), answer.Body, c.status,
			)
		}
		want := map[int]string{400: "invalid_request", 401: "invalid_client"}[c.status]
		if answer.Text("error") != want || (c.status == 200 && answer.Object()["active"] != true) {
			t.Errorf("%s: %s", c.what, answer.Body)
		}
	}
	inQuery := apitest.IntrospectPath + "?client_id=" + id + "&client_secret=" + own
	if answer := b.Form(inQuery, "token", token); answer.Status != 401 {
		t.Errorf("credentials in the query string: %d", answer.Status)
	}
	json := b.Send(http.MethodPost, apitest.IntrospectPath,
		`{"token":"`+token+`","client_id":"`+id+`","client_secret":"`+own+`"}`, "Content-Type", "application/json")
	if json.Status != 401 {
		t.Errorf("credentials in JSON: %d %s", json.Status, json.Body)
	}
	if strings.Contains(b.Log.String(), own) {
		t.Error("a secret is in the log")
	}
}

func TestIntrospect_WrongSecretsInFormAreThrottled(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	failElsewhere(t, b.Server, func(f *ratelimit.Limiter) time.Duration {
		return f.ForClient(b.service.ID.String())
	})
	wantLimited(t, func() apitest.Answer {
		return b.Form(
			apitest.IntrospectPath,
			"token", held.Access.Reveal(),
			"client_id", b.service.ID.String(),
			"client_secret", "alm_cs_wrong",
		)
	})
	b.active("with the right one", held.Access)
}

func TestIntrospect_OnlyWrongSecretsAreThrottled(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	failElsewhere(t, b.Server, func(f *ratelimit.Limiter) time.Duration {
		return f.ForClient(b.service.ID.String())
	})
	wantLimited(t, func() apitest.Answer {
		return b.FormWith(
			apitest.IntrospectPath,
			apitest.Basic(b.service.ID.String(), "alm_cs_wrong"),
			"token",
			held.Access.Reveal(),
		)
	})
	for range 10 {
		b.active("with the right one", held.Access)
		b.inactive("with the right one", "alm_pat_none")
	}
}
