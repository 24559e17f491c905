package app_test

import (
	"flag"
	"net/http"
	"slices"
	"strings"
	"testing"

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
		"/settings/security/authenticator/codes", "/settings/security/authenticator/remove",
		"/settings/connectors/policy", "/settings/connectors/disconnect", "/settings/connectors/llm",
		"/settings/user/name", "/token", "/readyz", "/settings/provider/unlink", "/login/again/passkey/options",
		"/settings/passkeys/options",
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
	s := newFuzzed(f)
	f.Fuzz(func(t *testing.T, path, method byte, id, query, headers, body string) {
		method, path = method%byte(len(fuzzedMethods())), path%byte(len(paths()))
		seed := routeSeed{fuzzedMethods()[method], paths()[path], id, query, headers, body, 0}
		answer := s.ask(t, seed)
		if want, isSeed := statuses[seed]; isSeed && !fuzzing && answer.Status != want {
			t.Errorf("%+v: %d %s, want %d", seed, answer.Status, answer.Refusal(), want)
		}
	})
}

func (s *fuzzed) ask(t *testing.T, seed routeSeed) fuzzkit.Answer {
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
	if !ok {
		return fuzzkit.Answer{}
	}
	s.log.Take()
	answer := fuzzkit.Ask(s.handler, r)
	s.checkLog(t, order.Secrets(), answer)
	if fuzzkit.Repeats(answer.Body, shown) {
		t.Errorf("%d: a secret of the request's headers is in the answer", answer.Status)
	}
	if answer.Status >= http.StatusBadRequest {
		checkRefusal(t, r.URL.EscapedPath(), answer)
	} else if len(order.Secrets()) > 0 && seed.method != http.MethodGet && seed.method != http.MethodHead {
		s.spoil()
	}
	return answer
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
