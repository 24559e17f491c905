package attack

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Hostile input for parsers, in every place that takes text: no server error, and no error text of a store.

// hostileTexts are values for a parameter, a field or a header. The first of them go to every place: the stores refuse
// them, or they are long.
var hostileTexts = []string{
	"\x00", "\xff\xfe", "\xed\xa0\x80", strings.Repeat("a", 5000),
	"a\x00b", "\xc0\x80", "\u202e", strings.Repeat("%", 100), "%", "%zz", "%00", "'", "' or '1'='1", `" or ""="`,
	"'; drop table users; --", "$$; select 1; $$", `\`, `\\`, "{{7*7}}", "${jndi:ldap://127.0.0.1:9/x}",
	"../../../../etc/passwd", "-1", "1e309", "9223372036854775808", "null", "[]", "\r\nX: y", "\n", " ", "０１２",
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

// A reader is a place that reads text: it sends the text there.
type reader func(text string) harness.Answer

func TestParsers_HostileTextCausesNoServerError(t *testing.T) {
	p, e := newAttack(t)
	for place, send := range slices.Concat(readersOfAPI(t, p, e), readersOfPages(t, p, e), readersOfHeaders(t, p, e)) {
		for _, text := range choice(hostileTexts, 4, place) {
			wantsNoFault(t, send(text), text)
		}
	}
	p.In(e.Workspace, e.Token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
}

// readersOfAPI returns the paths, parameters and bodies of the API. In the rows, {} is the text.
func readersOfAPI(t *testing.T, p *harness.Product, e *target) []reader {
	api, account, public := p.In(e.Workspace, e.Token), p.As(e.Token), p.API().With("Origin", site)
	get := func(api harness.API, path string) reader {
		return func(text string) harness.Answer {
			return api.Get(t, strings.ReplaceAll(path, "{}", url.PathEscape(text)))
		}
	}
	post := func(api harness.API, path, body string) reader {
		return func(text string) harness.Answer {
			quoted, _ := json.Marshal(text) // a text always marshals
			return api.JSON(t, http.MethodPost, path, strings.ReplaceAll(body, "{}", string(quoted)))
		}
	}
	form := func(api harness.API, path, names string) reader {
		return func(text string) harness.Answer {
			values := url.Values{}
			for name := range strings.FieldsSeq(names) {
				values.Set(name, text)
			}
			return api.Form(t, path, values)
		}
	}
	return []reader{
		get(api, harness.ListPath+"?q={}"),
		get(api, harness.ListPath+"?status={}"),
		get(api, harness.ListPath+"?cursor={}"),
		get(api, harness.ListPath+"?limit={}"),
		get(api, harness.ListPath+"/{}"),
		get(api, "/v1/engage/forms/{}"),
		get(public, "/v1/engage/public/forms/{}"),
		get(public, "/v1/engage/public/submissions/{}?token={}"),
		get(public, e.publicForm()+"/embed?submission={}&token={}"),
		get(account, e.Clients()+"/{}"),
		get(account, "/v1/account/tenants/{}/oauth-clients"),
		post(api, harness.ListPath, `{"name":{},"summary":{},"startsOn":{}}`),
		post(api, "/v1/engage/forms", `{"title":{},"allowedOrigins":[{}],"fields":[{"name":{},"label":{},"type":{}}]}`),
		post(account, e.Clients(), `{"name":{},"redirectUris":[{}],"requiredPermissions":[{}],"connectorPlatform":{},
			"resource":{}}`),
		post(public, harness.TokenPath, `{"client_id":{},"client_secret":{},"code":{},"redirect_uri":{}}`),
		post(public, harness.TokenPath, `{"client_id":"`+e.app.ClientID+`","client_secret":"`+e.app.ClientSecret+`",
			"code":{},"redirect_uri":{},"code_verifier":{}}`),
		post(account, "/mcp", `{"jsonrpc":"2.0","id":{},"method":"tools/call",
			"params":{"name":"get_programme","arguments":{"id":{}}}}`),
		post(account, "/mcp", `{"jsonrpc":"2.0","id":1,"method":{},
			"params":{"name":{},"arguments":{"q":{},"cursor":{}}}}`),
		func(text string) harness.Answer {
			body := `{"submissionToken":"` + e.submissionToken(t) + `","answers":{"email":{},{}:{}}}`
			return post(public, e.publicForm()+"/submissions", body)(text)
		},
		func(text string) harness.Answer {
			rows := "name,summary\n\"" + strings.ReplaceAll(text, `"`, `""`) + "\",x\n"
			return api.Send(t, http.MethodPost, harness.ListPath+"/imports", "text/csv", rows)
		},
		form(public, harness.TokenPath, "grant_type client_id refresh_token"),
		func(text string) harness.Answer { return e.connector.Refresh(t, text) },
		func(text string) harness.Answer { return e.connector.Revoke(t, text) },
		form(p.DemoService().API(), harness.IntrospectPath, "token"),
		func(text string) harness.Answer {
			return form(p.API().With("Authorization", harness.Basic(text, text)), harness.IntrospectPath, "token")("x")
		},
	}
}

// readersOfPages returns the parameters and forms of the pages. A form of the settings has the right key, so that its
// fields are read.
func readersOfPages(t *testing.T, p *harness.Product, e *target) []reader {
	open := func(address func(text string) string) reader {
		return func(text string) harness.Answer { return e.person.Open(t, address(text)).Answer }
	}
	readers := []reader{
		open(func(text string) string { return p.AppURL + "/settings/audit?before=" + url.QueryEscape(text) }),
		open(func(text string) string { return p.AppURL + "/settings/developers?tenant=" + url.QueryEscape(text) }),
		func(text string) harness.Answer {
			values := url.Values{"email": {text + "@example.org"}, "password": {text}}
			return p.App().Form(t, "/login", values)
		},
		func(text string) harness.Answer { // as the key of a form
			form := sent(t, p, "/settings/user/name", e.Workspace.ID, text, url.Values{"name": {text}})
			return e.person.Submit(t, form).Answer
		},
	}
	for _, query := range []url.Values{e.connector.Begin().Query, e.app.Request()} {
		for _, name := range slices.Sorted(maps.Keys(query)) {
			address := func(text string) string { return p.AuthorizeURL(copied(query, name, text)) }
			readers = append(readers, open(address))
		}
	}
	keyOfSettings, keyOfPasskeys, all := keyOf(t, p, e.person), keyOn(t, p, e.person, "/settings/passkeys"), fields(e)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(path, "/settings/") {
			key := keyOfSettings
			if path == "/settings/passkeys/remove" {
				key = keyOfPasskeys
			}
			readers = append(readers, func(text string) harness.Answer {
				hostile := url.Values{}
				for name := range all[path] {
					hostile.Set(name, text)
				}
				page := e.person.Submit(t, sent(t, p, path, e.Workspace.ID, key, hostile))
				if strings.Contains(page.Text(), outOfDate) ||
					strings.HasPrefix(page.Header.Get("Location"), "/login") {
					t.Errorf("%s is not read:\n%s", path, page)
				}
				return page.Answer
			})
		}
	}
	return readers
}

// readersOfHeaders returns the headers that the services read.
func readersOfHeaders(t *testing.T, p *harness.Product, e *target) []reader {
	var readers []reader
	for header := range strings.FieldsSeq("Idempotency-Key If-Match X-Tenant-Id Authorization Content-Type Origin " +
		"X-Request-Id Mcp-Protocol-Version Accept Cookie User-Agent") {
		with := func(api harness.API, text string) harness.API {
			// A Go client cannot send these in a header.
			return api.With(header, strings.NewReplacer("\x00", "", "\r", "", "\n", "").Replace(text))
		}
		readers = append(readers,
			func(text string) harness.Answer {
				return with(p.In(e.Workspace, e.Token), text).Send(t, http.MethodPost, harness.ListPath, "", `{}`)
			},
			func(text string) harness.Answer { return with(p.App(), text).Get(t, "/login") },
			func(text string) harness.Answer { return with(p.API(), text).Get(t, e.publicForm()+"/embed") })
	}
	return readers
}

// TestParsers_HostileBodyCausesNoServerError sends bodies that do not match their content type or can be read in two
// ways, to every route that takes a body.
func TestParsers_HostileBodyCausesNoServerError(t *testing.T) {
	p, e := newAttack(t)
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	bodies := []string{
		"", "{", "}", "null", "[]", "1", `"x"`, "{}{}", `{"a":1}x`, "\ufeff{}", "{'a':1}", `{"name":"x","name":"y"}`,
		`{"NAME":"x"}`, `{"name\u0000":"x"}`, `{"name":` + deep + `}`,
		strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000), `{"name":1e400}`, `{"name":"\ud800"}`,
		"{\"name\":\"\xff\"}", `{"name":null,"redirectUris":null,"requiredPermissions":null}`, "a=b", "a=b&a=c",
		"%zz=1", strings.Repeat("a=b&", 10_000),
		"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--x--\r\n", "\x00\x01\x02",
	}
	const asJSON, asForm = "application/json", "application/x-www-form-urlencoded"
	kinds := []string{
		asJSON, asForm, "multipart/form-data; boundary=x", "multipart/form-data", "text/csv", "text/plain",
		"application/json; charset=utf-16", "application/json, text/plain", ";", "/", "application/",
		"application/json;;;=", "application/xml", "",
	}
	readForms := []string{
		harness.TokenPath, "/token", harness.RevokePath, harness.IntrospectPath, e.publicForm() + "/embed",
	}
	for place, path := range append(readForms, e.Clients(), e.Clients()+"/"+e.app.ClientID+"/secret", harness.ListPath,
		harness.ListPath+"/imports", harness.ListPath+"/"+e.programme+"/transitions", "/v1/engage/forms",
		e.publicForm()+"/submissions", "/mcp") {
		api, as := p.API(), []string{asJSON, asForm}
		if place >= len(readForms) {
			api, as = p.In(e.Workspace, e.Token), []string{asJSON}
		}
		for at, body := range choice(bodies, 4, place) {
			// Two in turn, so that the token endpoint gets every kind in the short form too.
			kind := (at + place) % len(kinds)
			for _, kind := range append(as, kinds[kind], kinds[(kind+len(kinds)/2)%len(kinds)]) {
				wantsNoFault(t, api.With("Origin", site).Send(t, http.MethodPost, path, kind, body), body)
			}
		}
	}
	stranger := p.Person(t, e.Owner)
	for place, path := range []string{
		"/login", "/logout", "/login/again", "/oauth/authorize", "/oauth/authorize/workspace",
		"/settings/apps/disconnect", "/settings/connectors/disconnect", "/settings/passkeys", "/login/passkey",
		"/login/passkey/options",
	} {
		for at, body := range choice(bodies, 4, place) {
			kind := kinds[(at+place)%len(kinds)]
			wantsNoFault(t, stranger.Request(t, http.MethodPost, p.AppURL+path, kind, body).Answer, body)
		}
	}
}
