package app_test

import (
	"flag"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/devkit/fuzzkit"
)

const clientsOf = "/v1/account/tenants/{id}/oauth-clients"

// paths returns paths of every kind; the input replaces {id}. New paths must be added at the end, because stored inputs
// refer to them by index. Paths that call the OpenID Connect provider and clients with metadata documents are left out,
// because their responses depend on other servers.
func paths() []string {
	return []string{
		"/v1/account/oauth/introspect", "/v1/account/oauth/revoke", clientsOf, clientsOf + "/<linked>",
		"/v1/account/tenants/<tenant>/oauth-clients/{id}", "/v1/account/tenants/<tenant>/oauth-clients/{id}/secret",
		"/authorize", "/v1/account/oauth/jwks", "/.well-known/oauth-authorization-server", "/.well-known/{id}",
		"/v1/account/{id}", "/mcp/.well-known/openid-configuration", "/register", "/healthz", "/static/{id}", "/{id}",
		"/login", "/logout", "/oauth/authorize", "/oauth/authorize/workspace", "/login/again",
		"/login/passkey/options", "/login/passkey", "/login/again/passkey", "/settings/passkeys",
		"/settings/passkeys/remove", "/login/upstream/callback", "/login/upstream/confirm", "/settings/provider",
		"/settings/user", "/settings/developers", "/settings/developers/new", "/settings/developers/replace",
		"/settings/applications", "/settings/applications/new", "/settings/applications/secret", "/settings/webhooks",
		"/settings/webhooks/new", "/settings/apps", "/settings/connect", "/settings/security", "/settings/audit",
		"/settings/audit.jsonl", "/settings/audit.csv", "/settings/connectors", "/settings/connectors/log",
		"/settings/connectors/log.jsonl", "/settings/connectors/log.csv", "/settings/developers/tokens",
		"/settings/developers/tokens/replace", "/settings/developers/tokens/revoke", "/settings/developers/apps",
		"/settings/developers/apps/secret", "/settings/developers/apps/delete", "/settings/apps/disconnect",
		"/settings/apps/disconnect-all", "/settings/security/sign-out", "/settings/security/sign-out-others",
		"/settings/security/tokens/revoke", "/login/code", "/settings/security/authenticator",
		"/settings/security/authenticator/codes", "/settings/security/authenticator/codes.txt",
		"/settings/welcome", "/settings/security/sessions", "/settings/security/events", "/settings/security/tokens",
		"/settings/security/authenticator/remove",
		"/settings/connectors/policy", "/settings/connectors/disconnect", "/settings/connectors/llm",
		"/settings/user/name", "/token", "/readyz", "/settings/provider/unlink", "/login/again/passkey/options",
		"/settings/passkeys/options", "/settings/webhooks/events", "/settings/webhooks/delivery",
		"/settings/applications/delete",
	}
}

func fuzzedMethods() []string {
	return []string{"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH", "BREW"}
}

// Requests of strangers and of signed-in users to every route must not cause a server error, must get errors in the
// shape of their route, and must not reveal a secret in the response or the log. Seeds get their status.
func FuzzRoutes(f *testing.F) {
	statuses := map[routeSeed]int{}
	for _, seed := range routeSeeds() {
		path, method := slices.Index(paths(), seed.path), slices.Index(fuzzedMethods(), seed.method)
		if path < 0 || method < 0 {
			f.Fatalf("%s %s is not in the lists", seed.method, seed.path)
		}
		f.Add(byte(path), byte(method), seed.id, seed.query, seed.headers, seed.body)
		status := seed.status
		seed.status = 0
		statuses[seed] = status
	}
	if len(statuses) != len(routeSeeds()) {
		f.Fatal("two seeds are equal")
	}
	fuzzing := flag.Lookup("test.fuzz").Value.String() != ""
	s := underFuzz(f)
	f.Fuzz(func(t *testing.T, path, method byte, id, query, headers, body string) {
		method, path = method%byte(len(fuzzedMethods())), path%byte(len(paths()))
		seed := routeSeed{fuzzedMethods()[method], paths()[path], id, query, headers, body, 0}
		answer, _, _ := s.ask(t, seed)
		if want, isSeed := statuses[seed]; isSeed && !fuzzing && answer.Status != want {
			t.Errorf("%+v: %d %s, want %d", seed, answer.Status, answer.Refusal(), want)
		}
	})
}

// ask sends a request, if net/http accepts it, and returns the request and the secrets in it.
func (s *fuzzed) ask(t *testing.T, seed routeSeed) (answer fuzzkit.Answer, r *http.Request, secrets []string) {
	s.renew()
	order := s.stock().NewValues()
	request := fuzzkit.Request{
		Method:  seed.method,
		Path:    order.FillPublic(strings.ReplaceAll(seed.path, "{id}", seed.id)),
		Headers: order.Fill(seed.headers),
		From:    s.from.Next(),
	}
	shown := order.Secrets() // only the server may read them: a form may come back with its input
	request.Query = order.FillPublic(seed.query)
	request.Body = order.Fill(seed.body)
	r, ok := request.Read()
	s.Log.Take()
	if !ok {
		return answer, nil, nil
	}
	answer, secrets = fuzzkit.Ask(s.Handler, r), order.Secrets()
	s.checkLog(t, secrets, answer)
	if fuzzkit.Repeats(answer.Body, shown) {
		t.Errorf("%d: a secret of the request's headers is in the answer", answer.Status)
	}
	if answer.Status >= http.StatusBadRequest {
		checkRefusal(t, r.URL.EscapedPath(), answer)
	} else if len(secrets) > 0 && !slices.Contains([]string{"GET", "HEAD"}, seed.method) && seed.path != tokenPath {
		s.spoil()
	}
	return answer, r, secrets
}

// checkRefusal requires the shape of the route (spec 7.1, contract section 5).
func checkRefusal(t *testing.T, path string, answer fuzzkit.Answer) {
	t.Helper()
	right := answer.IsFlat()
	switch {
	case strings.HasPrefix(path, "/v1/account/tenants/") && answer.Status == http.StatusUnauthorized:
		right = answer.IsGateway() && answer.Header.Get("WWW-Authenticate") != ""
	case strings.HasPrefix(path, "/v1/account/tenants/") && answer.Status == http.StatusForbidden:
		right = answer.Text("message") == "Forbidden" || answer.Code() == "FORBIDDEN"
	case isForPeople(path):
		right = answer.IsPage() || (strings.Contains(path, "passkey") && answer.Text("message") != "")
	}
	if !right {
		t.Errorf("%s: %d %s is not of the shape of its route", path, answer.Status, answer.Body)
	}
	if answer.Status == http.StatusMethodNotAllowed && answer.Header.Get("Allow") == "" {
		t.Errorf("%s: 405 without Allow", path)
	}
	if answer.Status == http.StatusTooManyRequests && answer.Header.Get("Retry-After") == "" {
		t.Errorf("%s: 429 without Retry-After", path)
	}
}

func isForPeople(path string) bool {
	for _, prefix := range []string{"/v1/", "/.well-known/", "/mcp/"} {
		if strings.HasPrefix(path, prefix) {
			return false
		}
	}
	return !slices.Contains([]string{"/authorize", "/token", "/register", "/healthz", "/readyz"}, path)
}

// A tokenSeed is a request to the token endpoint and the status of its response.
type tokenSeed struct {
	contentType, authorization, body string
	status                           int
}

func tokenSeeds() []tokenSeed {
	const form, object = "application/x-www-form-urlencoded", "application/json"
	const exchange = "grant_type=authorization_code&client_id=<connector>&resource=https://api.example.org/v1" +
		"&code_verifier=" + verifier + "&redirect_uri=" + fixture.Callback
	const byBasic = "grant_type=authorization_code&code=<basiccode>&redirect_uri=" + fixture.Callback
	const refresh = "grant_type=refresh_token&client_id=<connector>&resource=https://api.example.org/v1"
	const link = `{"client_id":"<linked>","client_secret":"<secret>","code":"<linkedcode>","redirect_uri":"` +
		fixture.Callback + `"}`
	return []tokenSeed{
		{form, "", exchange + "&code=<code>", 200},
		{form + "; charset=utf-8", "", exchange + "&code=%3ccode%3e", 400},
		{form, "", exchange + "&code=<used>", 400},
		{form, "", exchange + "&code=<code>&code=<code>", 400},
		{form, "", strings.Replace(exchange, "/v1", "/mcp", 1) + "&code=<code>", 400},
		{form, "", strings.Replace(exchange, verifier, "short", 1) + "&code=<code>", 400},
		{form, "", refresh + "&refresh_token=<refresh>", 200},
		{form, "", refresh + "&refresh_token=<refresh>x", 400},
		{form, "", refresh + "&refresh_token=<old>", 400},
		{form, "", refresh + "&refresh_token=<access>", 400},
		{form, "", strings.Replace(refresh, "<connector>", "", 1) + "&refresh_token=<refresh>", 400},
		{form, "Bearer <access>", refresh + "&refresh_token=<refresh>", 400},
		{form, "Basic <basic>", byBasic, 200}, {form, "Basic <basic>x", byBasic, 400},
		{form, "Basic <service>", byBasic, 400},
		{form, "Basic MDAwMDAwMDAtMDAwMC00MDAwLTgwMDAtMDAwMDAwMDAwMDAwOng=", byBasic, 401},
		{form, "", "grant_type=client_credentials&client_id=<linked>&client_secret=<secret>", 400},
		{form, "", "a=1;b=2", 400}, {form, "", "client_id=%zz", 400}, {form, "", "", 400},
		{form, "", "client_id=https://127.0.0.1/x&client_assertion=a.b.c" +
			"&client_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer&" + refresh, 400},
		{object, "", link, 200},
		{object, "", strings.Replace(link, "{",
			`{"grant_type":"authorization_code","resource":"https://api.example.org/v1",`, 1), 200},
		{object, "", strings.Replace(link, "<secret>", "<pat>", 1), 400},
		{object, "", strings.Replace(link, "<linkedcode>", "<code>", 1), 400},
		{object, "", strings.Replace(link, "client_id", "Client_ID", 1), 400},
		{object, "", strings.Replace(link, "{", `{"client_id":"<linked>",`, 1), 400},
		{object, "", strings.Replace(link, `"<secret>"`, "7", 1), 400},
		{object, "", link + "{}", 400}, {object, "", "[]", 400}, {object, "", "null", 400},
		{object, "", "\xff", 400}, {object, "", "", 400},
		{object, "", `{"client_id":"\ud800","code":"\u0000"}`, 400},
		{"multipart/form-data; boundary=x", "", "--x--", 400}, {"", "", "", 400}, {"text/plain;;", "\t", "x", 400},
		{object, "", strings.Repeat(" ", 64<<10) + link, 413},
	}
}

// Requests of strangers to the token endpoint must get tokens or an error in the shape of RFC 6749, and must not reveal
// a secret in the response or the log. Seeds get their status: an input that is refused too early finds no faults.
func FuzzTokenEndpoint(f *testing.F) {
	statuses := map[[3]string]int{}
	for _, seed := range tokenSeeds() {
		f.Add(seed.contentType, seed.authorization, seed.body)
		statuses[[3]string{seed.contentType, seed.authorization, seed.body}] = seed.status
	}
	if len(statuses) != len(tokenSeeds()) {
		f.Fatal("two seeds are equal")
	}
	fuzzing := flag.Lookup("test.fuzz").Value.String() != ""
	s := underFuzz(f)
	f.Fuzz(func(t *testing.T, contentType, authorization, body string) {
		answer := s.askForTokens(t, contentType, authorization, body)
		want, isSeed := statuses[[3]string{contentType, authorization, body}]
		if isSeed && !fuzzing && answer.Status != want {
			t.Errorf("%s %q: %d %s, want %d", contentType, body, answer.Status, answer.Refusal(), want)
		}
	})
}

func (s *fuzzed) askForTokens(t *testing.T, contentType, authorization, body string) fuzzkit.Answer {
	headers := "Content-Type: " + contentType + "\n"
	if authorization != "" {
		headers += "Authorization: " + authorization + "\n"
	}
	answer, r, secrets := s.ask(t, routeSeed{method: "POST", path: tokenPath, headers: headers, body: body})
	switch {
	case r == nil:
	case fuzzkit.Repeats(answer.Body, secrets):
		t.Errorf("%d: a secret of the request is in the answer", answer.Status)
	case answer.Header.Get("Cache-Control") != "no-store":
		t.Errorf("%d: caches may store the response: %v", answer.Status, answer.Header)
	case answer.Status == http.StatusOK:
		checkTokens(t, answer)
	case !slices.Contains(tokenErrors(), answer.Text("error")):
		t.Errorf("%d %s does not have the shape of RFC 6749", answer.Status, answer.Body)
	case answer.Status == http.StatusUnauthorized && (r.Header.Get("Authorization") == "" ||
		!strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic ")):
		t.Errorf("401 to a request without Basic, or without a challenge: %v", answer.Header)
	case !slices.Contains([]int{400, 401, 413, 429}, answer.Status):
		t.Errorf("%d %s", answer.Status, answer.Body)
	}
	return answer
}

func tokenErrors() []string {
	return []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client",
		"unsupported_grant_type", "invalid_scope", "invalid_target", "rate_limited"}
}

func checkTokens(t *testing.T, answer fuzzkit.Answer) {
	t.Helper()
	lives, _ := answer.Object()["expires_in"].(float64)
	if answer.Text("access_token") == "" || answer.Text("token_type") != "Bearer" || lives <= 0 ||
		answer.Text("tenant_id") == "" ||
		answer.Text("scope") == "" {
		t.Errorf("200 without tokens: %v", slices.Sorted(maps.Keys(answer.Object())))
	}
}

// checkLog requires that the log of one request contains no secret of the request or its response, and no panic.
func (s *fuzzed) checkLog(t *testing.T, secrets []string, answer fuzzkit.Answer) {
	t.Helper()
	logged := s.Log.Take()
	for _, name := range []string{"access_token", "refresh_token", "clientSecret"} {
		if made := answer.Text(name); made != "" {
			secrets = append(secrets, made)
		}
	}
	if fuzzkit.Repeats(logged, secrets) {
		t.Error("a secret is in the log")
	}
	if answer.Status >= http.StatusInternalServerError {
		t.Errorf("%d %s\n%s", answer.Status, answer.Body, logged)
	}
	if !strings.Contains(logged, "msg=request") || strings.Contains(logged, "msg=panic") {
		t.Errorf("the log of the request: %s", logged)
	}
}
