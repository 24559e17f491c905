package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 4.3 and contract, section 3: the exchange of a confidential application in JSON.

func TestConfidentialExchange_ReturnsToken(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app, owner := p.DemoConfidential(), p.Person(t, p.Demo.Users.Owner)
	for name, more := range map[string]map[string]any{
		"spec 4.3":                      {},
		"grant_type authorization_code": {"grant_type": "authorization_code"},
		"the REST API's resource":       {"resource": p.BaseURL + "/v1"},
		"unknown parameters":            {"nonce": "x", "audience": "https://x.example", "scope": "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			body := app.Body(app.Code(t, owner))
			for key, value := range more {
				body[key] = value
			}
			answer := app.Exchange(t, body).Wants(t, http.StatusOK)
			answer.WantsKeys(t, "access_token", "token_type", "expires_in", "scope", "tenant_id")
			answer.WantsHeader(t, "Cache-Control", "no-store")
			tokens := answer.Tokens(t)
			wantsSeconds(t, "expires_in", tokens.ExpiresIn, 90*24*3600)
			if tokens.TokenType != "Bearer" || tokens.Scope != harness.ReadProgrammes ||
				tokens.WorkspaceID != p.Demo.Workspaces.Main.ID {
				t.Errorf("wrong token response:\n%s", answer)
			}
			p.In(p.Demo.Workspaces.Main, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
		})
	}
}

// wantsSeconds checks a duration, with a tolerance for the time that the test takes.
func wantsSeconds(t *testing.T, name string, got, want int) {
	t.Helper()
	if got > want || got < want-30 {
		t.Errorf("%s is %d seconds, want %d or slightly less", name, got, want)
	}
}

func TestConfidentialExchange_IgnoresMediaTypeParameters(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app, owner := p.DemoConfidential(), p.Person(t, p.Demo.Users.Owner)
	body := `{"client_id":"` + app.ClientID + `","client_secret":"` + app.ClientSecret +
		`","redirect_uri":"` + app.RedirectURI + `","code":"`
	for _, kind := range []string{"application/json", "application/json; charset=utf-8", "APPLICATION/JSON"} {
		p.API().Send(t, http.MethodPost, harness.TokenPath, kind, body+app.Code(t, owner)+`"}`).Tokens(t)
	}
}

func TestConfidentialExchange_ErrorCodes(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	app, other := ws.Confidential(t, "", harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	code := app.Code(t, p.Person(t, ws.Owner))
	for name, c := range map[string]struct {
		key   string
		value any // nil: omitted
		codes []string
	}{
		"no client_id":         {"client_id", nil, []string{"invalid_request"}},
		"no code":              {"code", nil, []string{"invalid_request"}},
		"no redirect_uri":      {"redirect_uri", nil, []string{"invalid_request"}},
		"no secret":            {"client_secret", nil, []string{"invalid_client"}},
		"unknown client":       {"client_id", uuid.NewString(), []string{"invalid_client"}},
		"client no identifier": {"client_id", "nonsense", []string{"invalid_client"}},
		"wrong secret":         {"client_secret", alterLast(app.ClientSecret), []string{"invalid_client"}},
		"secret of another":    {"client_secret", other.ClientSecret, []string{"invalid_client"}},
		"empty secret":         {"client_secret", "", []string{"invalid_client"}},
		"a connector": {
			"client_id",
			ws.Connector(t, harness.ReadProgrammes).ClientID,
			[]string{"invalid_request", "invalid_client"},
		},
		"unknown code":           {"code", "alm_ac_" + strings.Repeat("A", 100), []string{"invalid_grant"}},
		"other callback":         {"redirect_uri", app.RedirectURI + "/", []string{"invalid_grant"}},
		"other resource":         {"resource", p.BaseURL + "/mcp", []string{"invalid_target"}},
		"resource with slash":    {"resource", p.BaseURL + "/v1/", []string{"invalid_target"}},
		"refresh_token":          {"grant_type", "refresh_token", []string{"unauthorized_client"}},
		"client_credentials":     {"grant_type", "client_credentials", []string{"unsupported_grant_type"}},
		"password":               {"grant_type", "password", []string{"unsupported_grant_type"}},
		"grant_type in capitals": {"grant_type", "Authorization_Code", []string{"unsupported_grant_type"}},
	} {
		t.Run(name, func(t *testing.T) {
			body := app.Body(code)
			if body[c.key] = c.value; c.value == nil {
				delete(body, c.key)
			}
			answer := app.Exchange(t, body)
			answer.WantsFlat(t, http.StatusBadRequest, c.codes...)
			answer.WantsHeader(t, "Cache-Control", "no-store").WantsHeader(t, "WWW-Authenticate", "")
		})
	}
	app.Exchange(t, app.Body(code)).Tokens(t) // fewer than five of these errors count for the code
}

// "JSON is strict" (contract, section 3).
func TestConfidentialExchange_StrictJSON(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app := p.DemoConfidential()
	code := app.Code(t, p.Person(t, p.Demo.Users.Owner))
	id, secret := `"client_id":"`+app.ClientID+`"`, `"client_secret":"`+app.ClientSecret+`"`
	rest := `"code":"` + code + `","redirect_uri":"` + app.RedirectURI + `"`
	good := "{" + id + "," + secret + "," + rest + "}"
	for name, body := range map[string]string{
		"duplicate key":      "{" + id + "," + id + "," + secret + "," + rest + "}",
		"duplicate, escaped": "{" + id + `,"client\u005fid":"x",` + secret + "," + rest + "}",
		"another case": "{" + strings.Replace(id, "client_id", "Client_ID", 1) +
			"," + secret + "," + rest + "}",
		"another case besides": "{" + id + `,"CLIENT_ID":"x",` + secret + "," + rest + "}",
		"a number":             "{" + id + `,"client_secret":7,` + rest + "}",
		"null":                 "{" + id + `,"client_secret":null,` + rest + "}",
		"a list":               "{" + id + `,"client_secret":["` + app.ClientSecret + `"],` + rest + "}",
		"trailing data":        good + "{}",
		"trailing letter":      good + "x",
		"in a list":            "[" + good + "]",
		"cut":                  good[:len(good)-1],
		"text":                 `"` + code + `"`,
		"empty":                "",
		"a form":               app.Form(code).Encode(),
		"not UTF-8":            strings.Replace(good, "}", `,"x":"`+"\xff"+`"}`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			app.Exchange(t, body).WantsFlat(t, http.StatusBadRequest, "invalid_request")
		})
	}
	app.Exchange(t, "\n "+good+" \n").Tokens(t)
}

func TestConfidentialExchange_NeedsJSON(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app := p.DemoConfidential()
	code := app.Code(t, p.Person(t, p.Demo.Users.Owner))
	t.Run("a form", func(t *testing.T) {
		p.API().Form(t, harness.TokenPath, app.Form(code)).
			WantsFlat(t, http.StatusBadRequest, "invalid_request", "invalid_client", "unauthorized_client")
	})
	for _, kind := range []string{
		"", "text/plain", "text/json", "application/jsonp", "multipart/form-data; boundary=x",
		"application/json, text/plain",
	} {
		t.Run(kind, func(t *testing.T) {
			body := `{"client_id":"` + app.ClientID + `","client_secret":"` + app.ClientSecret +
				`","redirect_uri":"` + app.RedirectURI + `","code":"` + code + `"}`
			p.API().Send(t, http.MethodPost, harness.TokenPath, kind, body).
				WantsFlat(t, http.StatusBadRequest, "invalid_request")
		})
	}
	app.Exchange(t, app.Body(code)).Tokens(t)
}

func TestTokenEndpoint_IgnoresQuery(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app := p.DemoConfidential()
	code := app.Code(t, p.Person(t, p.Demo.Users.Owner))
	query := url.Values{
		"client_id":     {app.ClientID},
		"client_secret": {app.ClientSecret},
		"code":          {code},
		"redirect_uri":  {app.RedirectURI},
	}
	p.API().JSON(t, http.MethodPost, harness.TokenPath+"?"+query.Encode(), `{}`).
		WantsFlat(t, http.StatusBadRequest, "invalid_request")
	p.API().Form(t, harness.TokenPath+"?"+query.Encode(), url.Values{}).
		WantsFlat(t, http.StatusBadRequest, "invalid_request")
	other := harness.TokenPath + "?client_id=x&code=y&grant_type=password"
	p.API().JSON(t, http.MethodPost, other, app.Body(code)).Tokens(t)
}

func TestTokenEndpoint_RejectsAuthorizationHeader(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	app, connector := ws.Confidential(t, "", harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)
	post := ws.Confidential(t, "client_secret_post", harness.ReadProgrammes)
	attempt := connector.Begin()
	appCode, postCode, connectorCode := app.Code(t, owner), post.Code(t, owner), attempt.Code(t, owner)
	for _, value := range []string{
		harness.Basic(app.ClientID, app.ClientSecret),
		"Bearer " + ws.Token,
		"Basic nonsense",
	} {
		api := p.API().With("Authorization", value)
		api.JSON(t, http.MethodPost, harness.TokenPath, app.Body(appCode)).
			WantsFlat(t, http.StatusBadRequest, "invalid_request", "invalid_client")
		api.Form(t, harness.TokenPath, post.Form(postCode)).
			WantsFlat(t, http.StatusBadRequest, "invalid_request", "invalid_client")
		api.Form(t, harness.TokenPath, attempt.CodeForm(connectorCode)).
			WantsFlat(t, http.StatusBadRequest, "invalid_request", "invalid_client")
	}
	// With the header only, the request is well-formed, but this application is not registered for Basic.
	code := map[string]any{"code": appCode, "redirect_uri": app.RedirectURI}
	p.API().With("Authorization", harness.Basic(app.ClientID, app.ClientSecret)).
		JSON(t, http.MethodPost, harness.TokenPath, code).
		WantsFlat(t, http.StatusBadRequest, "invalid_request", "invalid_client")
	app.Exchange(t, app.Body(appCode)).Tokens(t)
	p.API().Form(t, harness.TokenPath, post.Form(postCode)).Tokens(t)
	attempt.Post(t, attempt.CodeForm(connectorCode)).Tokens(t)
}

func TestTokenEndpoint_OnlyPostOfLimitedSize(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions,
	} {
		answer := p.API().Send(t, method, harness.TokenPath, "", "").Wants(t, http.StatusMethodNotAllowed)
		wantsAllow(t, answer, http.MethodPost)
	}
	app := p.DemoConfidential()
	fill := func(size int) map[string]any {
		body := app.Body("x")
		body["padding"] = strings.Repeat("p", size)
		return body
	}
	app.Exchange(t, fill(63<<10)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	app.Exchange(t, fill(65<<10)).Wants(t, http.StatusRequestEntityTooLarge)
	form := p.DemoConnector().RefreshForm("x")
	form.Set("padding", strings.Repeat("p", 65<<10))
	p.DemoConnector().Post(t, form).Wants(t, http.StatusRequestEntityTooLarge)
}
