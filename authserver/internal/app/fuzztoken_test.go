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
	s := newFuzzed(f)
	f.Fuzz(func(t *testing.T, contentType, authorization, body string) {
		answer := s.askForTokens(t, contentType, authorization, body)
		want, isSeed := statuses[[3]string{contentType, authorization, body}]
		if isSeed && !fuzzing && answer.Status != want {
			t.Errorf("%s %q: %d %s, want %d", contentType, body, answer.Status, answer.Refusal(), want)
		}
	})
}

func (s *fuzzed) askForTokens(t *testing.T, contentType, authorization, body string) fuzzkit.Answer {
	s.renew()
	order := s.stock().NewValues()
	headers := "Content-Type: " + contentType + "\n"
	if authorization != "" {
		headers += "Authorization: " + authorization + "\n"
	}
	r, ok := fuzzkit.Request{
		Method:  "POST",
		Path:    tokenPath,
		Headers: order.Fill(headers),
		Body:    order.Fill(body),
		From:    s.from.Next(),
	}.Read()
	s.log.Take()
	if !ok {
		return fuzzkit.Answer{}
	}
	basic := r.Header.Get("Authorization") != ""
	answer := fuzzkit.Ask(s.handler, r)
	s.checkLog(t, order.Secrets(), answer)
	switch secrets := order.Secrets(); {
	case fuzzkit.Repeats(answer.Body, secrets):
		t.Errorf("%d: a secret of the request is in the answer", answer.Status)
	case answer.Header.Get("Cache-Control") != "no-store":
		t.Errorf("%d: caches may store the response: %v", answer.Status, answer.Header)
	case answer.Status == http.StatusOK:
		checkTokens(t, answer)
	case !answer.IsFlat() || !slices.Contains(tokenErrors(), answer.Text("error")):
		t.Errorf("%d %s does not have the shape of RFC 6749", answer.Status, answer.Body)
	case answer.Status == http.StatusUnauthorized &&
		(!basic || !strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic ")):
		t.Errorf("401 to a request without Basic, or without a challenge: %v", answer.Header)
	case answer.Status == http.StatusTooManyRequests && answer.Header.Get("Retry-After") == "":
		t.Error("429 without Retry-After")
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
	logged := s.log.Take()
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
