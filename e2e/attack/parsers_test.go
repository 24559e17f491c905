package attack

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Hostile input for parsers, in every place that takes text: no server error, and no error text of a store.

// hostileTexts returns values for a parameter, a field or a header.
func hostileTexts() []string {
	return []string{
		"\x00",
		"a\x00b",
		"\xff\xfe",
		"\xc0\x80",
		"\xed\xa0\x80",
		"\u202e",
		strings.Repeat("a", 5000),
		strings.Repeat("%", 100),
		"%",
		"%zz",
		"%00",
		"'",
		"' or '1'='1",
		`" or ""="`,
		"'; drop table users; --",
		"$$; select 1; $$",
		`\`,
		`\\`,
		"{{7*7}}",
		"${jndi:ldap://127.0.0.1:9/x}",
		"../../../../etc/passwd",
		"-1",
		"1e309",
		"9223372036854775808",
		"null",
		"[]",
		"\r\nX: y",
		"\n",
		" ",
		"０１２",
	}
}

// wantsNoFault checks that a response is no server error and reveals no internals.
func wantsNoFault(t *testing.T, answer harness.Answer, sent string) {
	t.Helper()
	if answer.Status >= http.StatusInternalServerError {
		t.Errorf("%.60q: a server error:\n%s", sent, answer)
	}
	for _, word := range []string{
		"SQLSTATE", "ERROR:", "invalid byte sequence", "pgconn", "json:", "strconv", "url:", "goroutine",
		"account.users", "account.oauth_clients", "account.grants", "resource.programmes", "root:x:0",
	} {
		if strings.Contains(string(answer.Body), word) && !strings.Contains(sent, word) {
			t.Errorf("%.60q: the response contains %q:\n%s", sent, word, answer)
		}
	}
}

func TestParsers_HostileTextCausesNoServerError(t *testing.T) {
	p, e := newAttack(t)
	api, account := p.In(e.Workspace, e.Token), p.As(e.Token)
	connect, confidential := e.connector.Begin().Query, e.app.Request()
	for _, text := range hostileTexts() {
		escaped, path := url.QueryEscape(text), url.PathEscape(text)
		answers := []harness.Answer{
			api.Get(t, harness.ListPath+"?q="+escaped),
			api.Get(t, harness.ListPath+"?status="+escaped),
			api.Get(t, harness.ListPath+"?cursor="+escaped),
			api.Get(t, harness.ListPath+"?limit="+escaped),
			api.Get(t, harness.ListPath+"/"+path),
			api.JSON(t, http.MethodPost, harness.ListPath,
				map[string]any{"name": text, "summary": text, "startsOn": text}),
			api.Send(t, http.MethodPost, harness.ListPath+"/imports", "text/csv",
				"name,summary\n\""+strings.ReplaceAll(text, `"`, `""`)+"\",x\n"),
			api.Get(t, "/v1/engage/forms/"+path),
			p.API().Get(t, "/v1/engage/public/forms/"+path),
			p.API().Get(t, "/v1/engage/public/submissions/"+path+"?token="+escaped),
			p.API().Get(t, e.publicForm()+"/embed?submission="+escaped+"&token="+escaped),
			account.Get(t, e.Clients()+"/"+path),
			account.Get(t, "/v1/account/tenants/"+path+"/oauth-clients"),
			e.app.Exchange(t, map[string]any{
				"client_id": text, "client_secret": text, "code": text, "redirect_uri": text,
			}),
			e.app.Exchange(t, map[string]any{
				"client_id": e.app.ClientID, "client_secret": e.app.ClientSecret, "code": text, "redirect_uri": text,
				"code_verifier": text,
			}),
			e.connector.Post(t, url.Values{"grant_type": {text}, "client_id": {text}, "refresh_token": {text}}),
			e.connector.Refresh(t, text),
			e.connector.Revoke(t, text),
			p.DemoService().Introspect(t, text),
			p.API().With("Authorization", harness.Basic(text, text)).Form(t, harness.IntrospectPath,
				url.Values{"token": {"x"}}),
			p.App().Form(t, "/login", url.Values{"email": {text + "@example.org"}, "password": {text}}),
			e.person.Open(t, p.AppURL+"/settings/audit?before="+escaped).Answer,
			e.person.Open(t, p.AppURL+"/settings/developers?tenant="+escaped).Answer,
			e.Register(t, map[string]any{
				"name": text, "redirectUris": []string{text}, "requiredPermissions": []string{text},
				"connectorPlatform": text, "resource": text,
			}),
			api.JSON(t, http.MethodPost, "/v1/engage/forms", map[string]any{
				"title": text, "allowedOrigins": []string{text},
				"fields": []map[string]any{{"name": text, "label": text, "type": text}},
			}),
			p.API().With("Origin", site).JSON(t, http.MethodPost, e.publicForm()+"/submissions", map[string]any{
				"submissionToken": e.submissionToken(t), "answers": map[string]any{"email": text, text: text},
			}),
			account.JSON(t, http.MethodPost, "/mcp", map[string]any{
				"jsonrpc": "2.0", "id": text, "method": "tools/call",
				"params": map[string]any{"name": "get_programme", "arguments": map[string]any{"id": text}},
			}),
			account.JSON(t, http.MethodPost, "/mcp", map[string]any{
				"jsonrpc": "2.0", "id": 1, "method": text,
				"params": map[string]any{"name": text, "arguments": map[string]any{"q": text, "cursor": text}},
			}),
		}
		for name := range connect {
			answers = append(answers, e.person.Open(t, p.AuthorizeURL(copied(connect, name, text))).Answer)
		}
		for name := range confidential {
			answers = append(answers, e.person.Open(t, p.AuthorizeURL(copied(confidential, name, text))).Answer)
		}
		for path, values := range fields(e) { // the key is checked first, and then every field
			if strings.HasPrefix(path, "/settings/") {
				hostile := maps.Clone(values)
				for name := range hostile {
					hostile.Set(name, text)
				}
				answers = append(answers, e.person.Submit(t, sent(t, p, path, e.Workspace.ID, text, hostile)).Answer)
			}
		}
		if !strings.ContainsAny(text, "\x00\r\n") { // a Go client cannot send these in a header; smuggling_test.go does
			for _, header := range []string{
				"Idempotency-Key", "If-Match", "X-Tenant-Id", "Authorization", "Content-Type", "Origin", "X-Request-Id",
				"Mcp-Protocol-Version", "Accept", "Cookie", "User-Agent",
			} {
				answers = append(answers, api.With(header, text).Send(t, http.MethodPost, harness.ListPath, "", `{}`),
					p.App().With(header, text).Get(t, "/login"),
					p.API().With(header, text).Get(t, e.publicForm()+"/embed"))
			}
		}
		for _, answer := range answers {
			wantsNoFault(t, answer, text)
		}
	}
	p.In(e.Workspace, e.Token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
}

// TestParsers_HostileBodyCausesNoServerError sends bodies that do not match their content type or can be read in two
// ways, to every route that takes a body.
func TestParsers_HostileBodyCausesNoServerError(t *testing.T) {
	p, e := newAttack(t)
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	bodies := []string{
		"",
		"{",
		"}",
		"null",
		"[]",
		"1",
		`"x"`,
		"{}{}",
		`{"a":1}x`,
		"\ufeff{}",
		"{'a':1}",
		`{"name":"x","name":"y"}`,
		`{"NAME":"x"}`,
		`{"name\u0000":"x"}`,
		`{"name":` + deep + `}`,
		strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000),
		`{"name":1e400}`,
		`{"name":"\ud800"}`,
		"{\"name\":\"\xff\"}",
		`{"name":null,"redirectUris":null,"requiredPermissions":null}`,
		"a=b",
		"a=b&a=c",
		"%zz=1",
		strings.Repeat("a=b&", 10_000),
		"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n",
		"\x00\x01\x02",
	}
	kinds := []string{
		"application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"multipart/form-data", "text/csv", "text/plain", "application/json; charset=utf-16",
		"application/json, text/plain", ";", "/", "application/", "application/json;;;=", "application/xml", "",
	}
	paths := []string{
		harness.TokenPath,
		"/token",
		"/v1/account/oauth/revoke",
		harness.IntrospectPath,
		e.Clients(),
		e.Clients() + "/" + e.app.ClientID + "/secret",
		harness.ListPath,
		harness.ListPath + "/imports",
		harness.ListPath + "/" + e.programme + "/transitions",
		"/v1/engage/forms",
		e.publicForm() + "/submissions",
		e.publicForm() + "/embed",
		"/mcp",
	}
	for _, path := range paths {
		api := p.In(e.Workspace, e.Token)
		if strings.HasPrefix(path, "/v1/account/oauth") || path == "/token" {
			api = p.API()
		}
		for at, body := range bodies {
			for _, kind := range []string{kinds[0], kinds[1], kinds[at%len(kinds)]} {
				wantsNoFault(t, api.With("Origin", site).Send(t, http.MethodPost, path, kind, body), body)
			}
		}
	}
	for _, path := range []string{
		"/login", "/logout", "/login/again", "/oauth/authorize", "/oauth/authorize/workspace",
		"/settings/apps/disconnect", "/settings/connectors/disconnect", "/settings/passkeys", "/login/passkey",
		"/login/passkey/options",
	} {
		for at, body := range bodies {
			wantsNoFault(t,
				p.Person(t, e.Owner).Request(t, http.MethodPost, p.AppURL+path, kinds[at%len(kinds)], body).Answer,
				body)
		}
	}
}

// TestJSON_KeysMatchExactlyAndOnce checks that a JSON key must match exactly and occur once, so that no two readers can
// disagree.
func TestJSON_KeysMatchExactlyAndOnce(t *testing.T) {
	p, e := newAttack(t)
	api, mcp := p.In(e.Workspace, e.Token), p.As(e.Token)
	for _, body := range []string{
		`{"Name":"x"}`, `{"NAME":"x"}`, `{"name\u0000":"x"}`, `{"ｎame":"x"}`, `{"name":"x","name":"y"}`,
		`{"name":"x"} {"name":"y"}`,
	} {
		gets(t, api.JSON(t, http.MethodPost, harness.ListPath, body), body, http.StatusBadRequest)
	}
	registration := `"redirectUris":["https://app.example/"],"requiredPermissions":["programmes:read:programmes"]`
	for _, body := range []string{
		`{"Name":"x",` + registration + `}`,
		`{"name":"x","name":"y",` + registration + `}`,
		`{"name":"x",` + registration + `,"redirectUris":["https://evil.example/"]}`,
		`{"name":"x","RedirectUris":["https://evil.example/"],"requiredPermissions":["programmes:read:programmes"]}`,
	} {
		gets(t, p.As(e.Token).JSON(t, http.MethodPost, e.Clients(), body), body, http.StatusBadRequest)
	}
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"Method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method\u0000":"tools/list"}`,
		`{"JSONRPC":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"whoami"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_programmes","name":"whoami"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_programme","arguments":{"ID":"` +
			e.programme + `"}}}`,
	} {
		if answer := mcp.JSON(t, http.MethodPost, "/mcp", body); strings.Contains(string(answer.Body), `"tools":`) ||
			strings.Contains(string(answer.Body), e.Workspace.ID) ||
			strings.Contains(string(answer.Body), "Winter pantry") {
			t.Errorf("%s is read as another key:\n%s", body, answer)
		}
	}
}
