package e2e

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// No secret is in a log, and none is stored in plain text (contract, section 2). This test sends every kind of secret
// to every kind of handler, correctly and incorrectly, and then searches. TestMain searches the logs again at the end
// for all secrets that any test has used.

func TestLeaks_NoSecretIsLoggedOrStored(t *testing.T) {
	running := harness.Private(t,
		harness.Options{Traced: true, Settings: map[string]string{"ALMONER_LOG_LEVEL": "debug"}})
	var secrets harness.Secrets
	p := harness.NewProduct(t, running, &secrets)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	misuse(t, p, ws, owner)
	rows, err := harness.EveryRow(t.Context(), running.DatabaseURL)
	must(t, err)
	wantsNoSecret(t, &secrets, "Postgres", rows, ws.Workspace.ID)
	running.Redis.Stop() // Redis writes its data to disk
	wantsNoSecret(t, &secrets, "Redis", readAll(t, filepath.Join(running.StoreDir(), "redis", "appendonlydir", "*")),
		"g:{")
	tokens := p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	p.In(ws.Workspace, tokens).Get(t, programmes).Wants(t, http.StatusOK)
	p.DemoConnector().Refresh(t, "alm_rt_"+rand.Text()+rand.Text())
	must(t, running.Redis.Restart(t.Context()))
	running.Postgres.Stop()
	for _, token := range []string{ws.Token, tokens} {
		p.In(ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusServiceUnavailable)
	}
	owner.Open(t, p.AuthorizeURL(p.DemoConfidential().Request()))
	must(t, running.Postgres.Restart(t.Context()))

	marker := rand.Text()
	p.API().Get(t, "/v1/"+marker)
	p.App().Get(t, "/"+marker)
	p.API().Get(t, "/v1/account/"+marker)
	logs, err := harness.ReadLogs(running.LogDir())
	must(t, err)
	if count := strings.Count(string(logs), marker); count < 4 { // the gateway's twice, authserver's, resourceapi's
		t.Fatalf("the marker is in the logs %d times, want at least 4: wrong log files", count)
	}
	for _, kind := range []string{
		"access token", "password", "consent ticket", "code verifier", "status token", "credential alm_ac",
		"credential alm_rt", "credential alm_cs", "credential alm_pa", "cookie almoner",
	} {
		if secrets.Count()[kind] == 0 {
			t.Errorf("no %s was used, so the test proves nothing about it (used: %v)", kind, secrets.Count())
		}
	}
	wantsNoSecret(t, &secrets, "the services' logs", logs, marker)
	wantsObjects(t, logs)
	wantsNoSecret(t, &secrets, "the traces", readAll(t, filepath.Join(filepath.Dir(running.LogDir()), "traces.otlp")),
		"almoner.request_id")
	wantsNoSecret(t, &secrets, "the metrics", []byte(harness.Metrics(t, running)), "almoner_token_requests_total")
	wantsNoSecret(t, &secrets, "the stores' logs", readAll(t, filepath.Join(running.StoreDir(), "*", "*.log")),
		"ready to accept connections")
	if found := secrets.FoundIn([]byte("level=info bearer=" + ws.Token)); len(found) == 0 {
		t.Error("the search does not find a token that is there")
	}
}

// wantsNoSecret searches the text for secrets. The sign must be in the text, as proof that it is the right one.
func wantsNoSecret(t *testing.T, secrets *harness.Secrets, where string, text []byte, sign string) {
	t.Helper()
	if !strings.Contains(string(text), sign) {
		t.Errorf("%s: %q is not in the %d bytes", where, sign, len(text))
	}
	if found := secrets.FoundIn(text); len(found) > 0 {
		t.Errorf("%s: secrets of these kinds: %v", where, found)
	}
}

func readAll(t *testing.T, pattern string) []byte {
	t.Helper()
	names, err := filepath.Glob(pattern)
	must(t, err)
	var all []byte
	for _, name := range names {
		content := fileContent(t, name)
		all = append(all, content...)
	}
	return all
}

// misuse sends every secret where it belongs and where it does not.
func misuse(t *testing.T, p *harness.Product, ws harness.TestWorkspace, owner *harness.Person) {
	t.Helper()
	app, connector := ws.Confidential(t, "", harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)
	basic := ws.Confidential(t, "client_secret_basic", harness.ReadProgrammes)
	page := owner.Consent(t, connector.Begin().Query)
	ticket := page.DecisionForm(t, "approve").Fields.Get("ticket")
	page.Approve(t)
	attempt := connector.Begin()
	code := attempt.Code(t, owner)
	tokens, long := attempt.Post(t, attempt.CodeForm(code)).Tokens(t), app.Connect(t, owner)
	unused := app.Code(t, owner)
	for _, secret := range []string{
		ws.Token, tokens.AccessToken, long.AccessToken, tokens.RefreshToken, code, unused, app.ClientSecret, ticket,
		ws.Owner.Password,
	} {
		for _, api := range []harness.API{
			p.In(ws.Workspace, secret), p.As(secret), p.API().With("Authorization", secret),
			p.API().With("X-Tenant-Id", secret), p.API().With("X-Request-Id", secret),
			p.API().With("Authorization", harness.Basic(secret, secret)), p.API().With("Cookie", "almoner="+secret),
		} {
			api.Get(t, programmes+"?"+url.Values{"cursor": {secret}, "access_token": {secret}}.Encode())
			api.Get(t, ws.Clients())
			api.JSON(t, http.MethodPost, programmes, map[string]any{"name": "", "summary": secret})
			api.Form(t, harness.TokenPath, url.Values{"grant_type": {secret}, "client_id": {secret}, "code": {secret}})
			body := app.Body(secret)
			body["client_secret"], body["redirect_uri"] = secret, secret
			api.JSON(t, http.MethodPost, harness.TokenPath, body)
			api.Form(t, harness.IntrospectPath, url.Values{"token": {secret}})
			api.Form(t, harness.RevokePath, url.Values{"client_id": {connector.ClientID}, "token": {alterLast(secret)}})
		}
		connector.Refresh(t, secret)
		attempt.Post(t, change(attempt.CodeForm(code), "code", secret))
		owner.Open(t, p.AuthorizeURL(url.Values{"client_id": {secret}, "state": {secret}, "redirect_uri": {secret}}))
		owner.Request(t, http.MethodPost, p.AppURL+"/oauth/authorize", "application/x-www-form-urlencoded",
			url.Values{"ticket": {secret}}.Encode())
		stranger := p.Person(t, ws.Owner)
		stranger.Email, stranger.Password = "x@example.org", alterLast(ws.Owner.Password)
		stranger.Open(t, p.AppURL+"/login?return="+url.QueryEscape("/settings/user?x="+secret))
	}
	stranger := p.Person(t, ws.Owner)
	stranger.Email = ws.Owner.Password // typed into the wrong field
	stranger.SignIn(t, stranger.Open(t, p.AppURL+"/login"))
	p.DemoService().Introspect(t, long.AccessToken)
	p.API().With("Authorization", harness.Basic(basic.ClientID, basic.ClientSecret)).
		Form(t, harness.TokenPath, url.Values{"grant_type": {"authorization_code"}})
	app.Exchange(t, app.Body(unused))
	app.Exchange(t, app.Body(unused)) // replay
	connector.Refresh(t, connector.Refresh(t, connector.Connect(t, owner).RefreshToken).Tokens(t).RefreshToken)
	_, form := newForm(t, p, ws)
	token := p.API().Get(t, form).Object(t)["submissionToken"]
	p.API().With("Idempotency-Key", rand.Text()).
		JSON(t, http.MethodPost, form+"/submissions", map[string]any{"submissionToken": token, "answers": helper()}).
		Wants(t, http.StatusAccepted)
}
