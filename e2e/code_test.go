package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// Spec 3 and 4.3, contract section 3: a code is valid for 60 seconds and for one exchange.

func TestCode_SecondExchangeRevokesGrant(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	api := func(token string) harness.Answer { return p.In(ws.Workspace, token).Get(t, programmes) }
	t.Run("confidential", func(t *testing.T) {
		app := ws.Confidential(t, "", harness.ReadProgrammes)
		code := app.Code(t, owner)
		tokens := app.Exchange(t, app.Body(code)).Tokens(t)
		api(tokens.AccessToken).Wants(t, http.StatusOK)
		app.Exchange(t, app.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		api(tokens.AccessToken).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		app.Exchange(t, app.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	})
	t.Run("connector, after refreshes", func(t *testing.T) {
		attempt := ws.Connector(t, harness.ReadProgrammes).Begin()
		code := attempt.Code(t, owner)
		tokens := attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
		later := attempt.Refresh(t, tokens.RefreshToken).Tokens(t)
		attempt.Post(t, attempt.CodeForm(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		for _, token := range []string{tokens.AccessToken, later.AccessToken} {
			api(token).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		}
		attempt.Refresh(t, later.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	})
}

// "if it is otherwise valid (client, redirect URI, resource, verifier)": a caller who has only found a used code
// cannot revoke the grant.
func TestCode_InvalidSecondExchangeRevokesNothing(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	other := ws.Connector(t, harness.ReadProgrammes)
	attempt := ws.Connector(t, harness.ReadProgrammes).Begin()
	code := attempt.Code(t, owner)
	tokens := attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
	for name, value := range map[string]string{
		"code_verifier": strings.Repeat("w", 52),
		"redirect_uri":  attempt.RedirectURI + "/",
		"resource":      p.BaseURL + "/mcp",
		"client_id":     other.ClientID,
		"code":          alterLast(code),
	} {
		attempt.Post(t, change(attempt.CodeForm(code), name, value)).
			WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_target")
	}
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	appCode := app.Code(t, owner)
	long := app.Exchange(t, app.Body(appCode)).Tokens(t)
	for name, value := range map[string]string{
		"client_secret": alterLast(app.ClientSecret),
		"redirect_uri":  app.RedirectURI + "/",
	} {
		body := app.Body(appCode)
		body[name] = value
		app.Exchange(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_client")
	}
	for _, token := range []string{tokens.AccessToken, long.AccessToken} {
		p.In(ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
	}
	attempt.Refresh(t, tokens.RefreshToken).Tokens(t)
}

// "A wrong redirect URI, verifier or resource does not burn the code; the fifth does"
func TestCode_FifthErrorBurnsCode(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	connector := ws.Connector(t, harness.ReadProgrammes)
	mistakes := []struct{ name, value, code string }{
		{"code_verifier", strings.Repeat("w", 52), "invalid_grant"},
		{"redirect_uri", connector.RedirectURI + "/", "invalid_grant"},
		{"resource", p.BaseURL + "/mcp", "invalid_target"},
	}
	for kind := range mistakes {
		t.Run("mixed from "+mistakes[kind].name, func(t *testing.T) {
			attempt := connector.Begin()
			code := attempt.Code(t, owner)
			err := func(i int, more ...string) {
				m := mistakes[(kind+i)%len(mistakes)]
				attempt.Post(t, change(attempt.CodeForm(code), m.name, m.value)).
					WantsFlat(t, http.StatusBadRequest, append(more, m.code)...)
			}
			for i := range 4 {
				err(i)
			}
			attempt.Post(t, attempt.CodeForm(code)).Tokens(t)

			attempt = connector.Begin()
			code = attempt.Code(t, owner)
			for i := range 4 {
				err(i)
			}
			err(4, "invalid_grant") // wrong resource and burned code: either error is allowed
			attempt.Post(t, attempt.CodeForm(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		})
	}
}

// "another client, or a wrong secret, does not count"
func TestCode_OtherClientsErrorsDoNotBurnCode(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	stranger := ws.Confidential(t, "", harness.ReadProgrammes)
	code := app.Code(t, owner)
	for range 6 {
		stranger.Exchange(t, stranger.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		body := app.Body(code)
		body["client_secret"], body["redirect_uri"] = alterLast(app.ClientSecret), "https://evil.example/"
		app.Exchange(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_client")
	}
	app.Exchange(t, app.Body(code)).Tokens(t)

	connector, other := ws.Connector(t, harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)
	attempt := connector.Begin()
	code = attempt.Code(t, owner)
	for range 6 {
		other.Post(t, change(attempt.CodeForm(code), "client_id", other.ClientID)).
			WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
}

func TestCode_MalformedCodeHasNoEffect(t *testing.T) {
	t.Parallel()
	p := enter(t)
	attempt := p.DemoConnector().Begin()
	code := attempt.Code(t, p.Person(t, p.Demo.Users.Owner))
	for name, wrong := range misspellings(code) {
		t.Run(name, func(t *testing.T) {
			attempt.Post(t, change(attempt.CodeForm(code), "code", wrong)).
				WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_request")
		})
	}
	attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
}

func TestCode_ExpiresAfterOneMinute(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	early := ws.Connector(t, harness.ReadProgrammes)
	late := ws.Connector(t, harness.ReadProgrammes).Begin()
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	lateCode, appCode := late.Code(t, owner), app.Code(t, owner)
	await.True(t, "a code is redeemed less than 10 s after its issue", func() bool {
		attempt, began := early.Begin(), time.Now()
		form := attempt.CodeForm(attempt.Code(t, owner))
		ageCode(t, p, early.ClientID, 50*time.Second)
		answer := attempt.Post(t, form)
		if time.Since(began) > 10*time.Second {
			return false
		}
		answer.Tokens(t)
		return true
	})
	for _, client := range []string{late.ClientID, app.ClientID} {
		ageCode(t, p, client, time.Minute)
	}
	late.Post(t, late.CodeForm(lateCode)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	app.Exchange(t, app.Body(appCode)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
}

// ageCode makes the code of a client's newest grant older. Its lifetime is stored in Redis.
func ageCode(t *testing.T, p *harness.Product, clientID string, by time.Duration) {
	t.Helper()
	grant := p.Database.Text(t,
		`select id::text from account.grants where client_id = $1 order by created_at desc limit 1`, clientID)
	command := fmt.Sprintf("HINCRBY g:{%s} cx %d", grant, -by.Milliseconds())
	if _, err := localstore.AskRedis(shared(t).RedisURL, command); err != nil {
		t.Fatal(err)
	}
}

// "At exchange … the user must still be a member … and hold at least one of the granted permissions, and (connector)
// the workspace's LLM integration must still be on"; "a refusal by those … consumes nothing".
func TestCode_ExchangeRechecksUserWithoutConsuming(t *testing.T) {
	t.Parallel()
	p := enter(t)
	all := harness.Everything()
	for name, c := range map[string]struct {
		away, back func(*testing.T, harness.TestWorkspace)
	}{
		"membership": {
			func(t *testing.T, o harness.TestWorkspace) { p.Database.Leave(t, o.Workspace, o.Owner) },
			func(t *testing.T, o harness.TestWorkspace) { p.Database.Join(t, o.Workspace, o.Owner, all...) },
		},
		"permissions": {
			func(t *testing.T, o harness.TestWorkspace) {
				p.Database.Permit(t, o.Workspace, o.Owner, harness.ReadForms)
			},
			func(t *testing.T, o harness.TestWorkspace) { p.Database.Permit(t, o.Workspace, o.Owner, all...) },
		},
		"LLM integration": {
			func(t *testing.T, o harness.TestWorkspace) { p.Database.SetLLM(t, o.Workspace, false) },
			func(t *testing.T, o harness.TestWorkspace) { p.Database.SetLLM(t, o.Workspace, true) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			owner := p.Person(t, ws.Owner)
			attempt := ws.Connector(t, harness.ReadProgrammes).Begin()
			app := ws.Confidential(t, "", harness.ReadProgrammes)
			code, appCode := attempt.Code(t, owner), app.Code(t, owner)
			c.away(t, ws)
			for range 6 {
				attempt.Post(t, attempt.CodeForm(code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			}
			if name != "LLM integration" { // does not affect confidential applications
				app.Exchange(t, app.Body(appCode)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			}
			c.back(t, ws)
			attempt.Post(t, attempt.CodeForm(code)).Tokens(t)
			app.Exchange(t, app.Body(appCode)).Tokens(t)
		})
	}
}
