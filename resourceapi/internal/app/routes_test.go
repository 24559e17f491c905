package app

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// Invariant O1 of package openapi, for this service: every method of every route is described, and every described
// operation has a route.
func TestO1_RoutesAreThoseDescribed(t *testing.T) {
	t.Parallel()
	document := orFail(openapi.New(base))(t)
	app := unconnected(t)
	var routed []string
	err := app.router.Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		if err != nil {
			return err
		}
		recorder, place := httptest.NewRecorder(), strings.NewReplacer("{", "", "}", "").Replace(path)
		app.router.ServeHTTP(recorder, httptest.NewRequest("BREW", place, nil))
		for method := range strings.SplitSeq(recorder.Header().Get("Allow"), ", ") {
			if method == "HEAD" { // implied by GET
				continue
			}
			operation, found := document.Find(method, path)
			if !found {
				t.Errorf("%s %s is not described", method, path)
			}
			routed = append(routed, method+" "+operation.Path)
		}
		return nil
	})
	if err != nil || len(routed) < 20 {
		t.Fatalf("%v, %d routes", err, len(routed))
	}
	for _, o := range document.Operations() {
		if is := slices.Contains(routed, o.Method+" "+o.Path); is != (o.Service == openapi.Resourceapi) {
			t.Errorf("%s %s is described as a route of %s, is one of this service: %t", o.Method, o.Path, o.Service, is)
		}
	}
}

// The permissions name exactly the modules that have routes.
func TestModules_AreThoseOfPermissions(t *testing.T) {
	t.Parallel()
	app := unconnected(t)
	var names []string
	for _, m := range app.modules {
		names = append(names, m.name)
		for _, some := range m.routes {
			for path := range some {
				if !strings.HasPrefix(path, "/v1/"+m.name+"/") {
					t.Errorf("%s is a route of %s", path, m.name)
				}
			}
		}
	}
	known := perm.Modules()
	slices.Sort(names)
	slices.Sort(known)
	if !slices.Equal(names, known) {
		t.Errorf("modules %q, permissions of %q", names, known)
	}
}

// forWorkspace returns the described operations that act in the workspace of the tenant header.
func forWorkspace(t *testing.T) []openapi.Operation {
	t.Helper()
	document := orFail(openapi.New(base))(t)
	operations := slices.DeleteFunc(document.Operations(), func(o openapi.Operation) bool {
		return o.Service != openapi.Resourceapi || !slices.ContainsFunc(o.List("parameters"), func(parameter any) bool {
			return parameter.(openapi.Object).Text("$ref") == "#/components/parameters/Tenant"
		})
	})
	if len(operations) < 12 {
		t.Fatalf("only %d operations", len(operations))
	}
	return operations
}

// required returns the permissions that the description says an operation requires, first the one of the route. Its
// text names them too.
func required(t *testing.T, o openapi.Operation) []perm.Permission {
	t.Helper()
	sentence := regexp.MustCompile(`(?s)Requires\s.*?\.(\s|$)`).FindString(o.Text("description"))
	all, called := o.Permissions()
	if !called || len(all) == 0 {
		t.Fatalf("%s %s is described without its permission", o.Method, o.Path)
	}
	for _, p := range all {
		if !strings.Contains(sentence, "`"+string(p)+"`") {
			t.Errorf("%s %s does not say that it requires %s", o.Method, o.Path, p)
		}
	}
	return all
}

// reads reports whether an operation of a module needs a permission to read. The others need one to write, even those
// that return the status of a write.
func reads(o openapi.Operation) bool {
	return o.Method == "GET" && o.Path != listPath+"/imports/{id}" && o.Path != "/v1/engage/erasures/{id}"
}

// Every route of every module makes the checks of the contract's table (section 6) in their order, and requires the
// permissions of its description.
func TestModules_GateEveryRoute(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(everyPermission()...)
	able, unable := s.holding(workspaceID, user, everyPermission()...), s.holding(workspaceID, user)
	connector := s.token(claims(s.Grant(standing.Connector, workspaceID, user, mcpResource, perm.ProgrammesRead)))
	for _, o := range forWorkspace(t) {
		if o.Path == eventsPath { // of no module, and for every member
			continue
		}
		module := strings.Split(o.Path, "/")[2]
		path := strings.NewReplacer("{id}", uuid.NewString(), "{delivery}", uuid.NewString()).Replace(o.Path)
		ask := func(h header) answer { t.Helper(); return s.do(o.Method, path, h, "") }
		ask(header{}).expect(t, 401, "UNAUTHENTICATED", "none")
		ask(as(connector, workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		ask(header{"Authorization": able["Authorization"]}).expect(t, 400, "VALIDATION_ERROR", "")
		ask(able.with("X-Tenant-Id", uuid.NewString())).expect(t, 403, "FORBIDDEN", "")
		need := required(t, o)
		if slices.Contains(perm.Modules(), module) && reads(o) != strings.Contains(string(need[0]), ":read:") {
			t.Errorf("%s %s requires %s", o.Method, o.Path, need[0])
		}
		others := slices.DeleteFunc(everyPermission(), func(p perm.Permission) bool { return p == need[0] })
		ask(s.holding(workspaceID, user, others...)).expect(t, 403, "FORBIDDEN", "").has(t, string(need[0]))
		if slices.Contains(perm.Modules(), module) {
			for set, code := range map[string]string{
				"update account.tenant_modules set enabled = false":                     "MODULE_NOT_ENABLED",
				"update account.tenant_modules set enabled = true, provisioned = false": "TENANT_NOT_PROVISIONED",
				"delete from account.tenant_modules":                                    "MODULE_NOT_ENABLED",
			} {
				s.Exec(set+" where {mine} and module = $1", module)
				status := map[string]int{"MODULE_NOT_ENABLED": 403, "TENANT_NOT_PROVISIONED": 503}[code]
				ask(able).expect(t, status, code, "").has(t, "operates this server").
					header(t, "Retry-After", "")
				ask(unable).expect(t, 403, "FORBIDDEN", "") // who must not learn the module's state
				s.setModule(module, true, true)
			}
		} else if !strings.HasPrefix(path, webhooksPath) {
			t.Errorf("%s belongs to no module", path)
		}
		s.do(o.Method, path+"?unknownName=1", able, "").names(t, "unknownName")
		if t.Failed() {
			t.Fatalf("%s %s", o.Method, path)
		}
		// A list needs no body and no record, so its response shows that no other check refuses the request.
		a := ask(s.holding(workspaceID, user, need...))
		isList := o.Method == "GET" && path == o.Path
		if a.Status >= 500 || a.Status == 401 || a.Status == 403 || isList && a.Status != 200 {
			a.fail(t, "no refusal by the gate")
		}
	}
}

// Every response to a deprecated operation announces the deprecation, even a refusal.
func TestRouter_AnnouncesDeprecatedOperations(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	things := routes{"/v1/things/{id}": {"GET": handler, "POST": handler}}
	router := newRouter(new(gate.Gate), []routes{things}, handler, rest.Deprecations{{
		Method: "GET",
		Path:   "/v1/things/{id}",
		Since:  time.Unix(1_798_761_600, 0),
		Sunset: time.Unix(1_814_400_000, 0),
		Link:   "https://api.example.org/v1/docs",
	}})
	for method, want := range map[string]string{"GET": "@1798761600", "HEAD": "@1798761600", "POST": ""} {
		recorder := httptest.NewRecorder()
		router.ServeHTTP(recorder, httptest.NewRequest(method, "/v1/things/1", nil))
		if got := recorder.Header().Get("Deprecation"); got != want || recorder.Code != http.StatusForbidden {
			t.Errorf("%s: %d %q", method, recorder.Code, got)
		}
	}
}

// RFC 9728; contract, sections 1 and 5.
func TestWellKnown_MetadataIsPublic(t *testing.T) {
	s := newService(t)
	const known = "/.well-known/oauth-protected-resource"
	for path, resource := range map[string]string{
		known + "/v1":  base + "/v1",
		known + "/mcp": base + "/mcp",
		known:          base + "/mcp",
		"/mcp" + known: base + "/mcp",
	} {
		a := s.get(path, header{"Origin": "https://elsewhere.example"})
		var document struct {
			Resource             string   `json:"resource"`
			AuthorizationServers []string `json:"authorization_servers"`
			Scopes               []string `json:"scopes_supported"`
			Methods              []string `json:"bearer_methods_supported"`
			Name                 string   `json:"resource_name"`
		}
		a.decode(t, &document)
		if a.Status != 200 || a.Header.Get("Content-Type") != "application/json" || document.Resource != resource ||
			document.Name == "" || !slices.Equal(document.AuthorizationServers, []string{base}) ||
			!slices.Equal(document.Methods, []string{"header"}) {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		want := perm.ForConnectors()
		if resource == base+"/mcp" {
			want = perm.NewSet(perm.ProgrammesRead)
		}
		if !slices.Equal(document.Scopes, want.Strings()) || slices.Contains(document.Scopes, "offline_access") ||
			slices.Contains(document.Scopes, "account:api:access") {
			t.Errorf("%v", document.Scopes)
		}
		preflight := s.do("OPTIONS", path, header{
			"Origin":                         "https://elsewhere.example",
			"Access-Control-Request-Method":  "GET",
			"Access-Control-Request-Headers": "mcp-protocol-version",
		}, "")
		for _, one := range []answer{a, preflight} {
			one.header(t, "Access-Control-Allow-Origin", "*").
				header(t, "Access-Control-Expose-Headers", "WWW-Authenticate").
				header(t, "Access-Control-Allow-Credentials", "")
		}
		preflight.wants(t, 204).header(t, "Access-Control-Allow-Headers", "*, Authorization")
	}
	h := s.reader()
	a := s.get(listPath, h.with("Origin", "https://elsewhere.example"))
	a.header(t, "Access-Control-Allow-Origin", "")
}

// Unknown parameters and members are refused by name, not ignored (contract, section 6). TestModules_GateEveryRoute has
// the parameters of other routes.
func TestUnknownNames_AreRefused(t *testing.T) {
	s, h := newDeveloper(t)
	f := s.makeForm(h, allTypes)
	sent := s.accepted(f)
	one := listPath + "/" + s.Programmes(h.workspace(), 1)[0].String()
	form, submissions := f.own(), f.path()+"/submissions"
	asked := submissionOf(s.submissionToken(f), goodAnswers())
	public := header{}.json()
	const field = `{"title":"T","allowedOrigins":[],"fields":[{"name":"a","label":"A","type":"text","Required":true}]}`
	for _, c := range []struct {
		method, path string
		h            header
		body, name   string
	}{
		{"GET", listPath + "?Limit=5", h, "", "Limit"},
		{"GET", f.path() + "?x=1", public, "", "x"},
		{"POST", submissions + "?x=1", public, asked, "x"},
		{"GET", sent.StatusURL[len(base):] + "&x=1", public, "", "x"},
		{"POST", listPath, h, `{"name":"x","endson":"2026-01-01"}`, "endson"},
		{"POST", listPath, h, `{"name":"x","Name":"y"}`, "Name"},
		{"POST", listPath, h, `{"name":"x","name\u0000":"y"}`, `"name\x00"`},
		{"PATCH", one, h, `{"id":"x"}`, "id"},
		{"POST", one + "/transitions", h, `{"to":"active","reason":"x"}`, "reason"},
		{"POST", formsPath, h, field, "fields[0].Required"},
		{"POST", formsPath, h, strings.Replace(allTypes, `"title"`, `"Title":"x","title"`, 1), "Title"},
		{"PATCH", form, h, `{"Enabled":false}`, "Enabled"},
		{"POST", submissions, public, strings.Replace(asked, "{", `{"captcha":"x",`, 1), "captcha"},
	} {
		s.do(c.method, c.path, c.h, c.body).names(t, c.name)
	}
	if n := s.rows("resource.programmes", "name = 'x'") + s.submissions() - 1; n != 0 {
		t.Errorf("%d records of refused requests", n)
	}
	// Users reach the page of a form by links to which other sites have added parameters.
	s.get(f.path()+"/embed?utm_source=mail", header{}).wants(t, 200)
	s.do("POST", submissions, public, asked).wants(t, 202)
}

// Contract, section 5b: the usage of the caller's own credential, whatever it may do.
func TestMyUsage_IsThatOfTheCredential(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	g := s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead)
	granted, pat := as(s.token(claims(g)), workspaceID), s.holding(workspaceID, user, perm.ProgrammesRead)
	s.Exec(`insert into account.usage (tenant_id, credential_id, day, operation, service_id, kind, user_id, requests,
			refused, records)
		select $1, c.id, (now() at time zone 'UTC')::date - ago, c.operation, service, c.kind, $2, c.requests, 1, 10
		from (values ($3::uuid, 'listProgrammes', 'connection', 5), ($3, 'introspectToken', 'connection', 2),
				((select id from account.personal_access_tokens where user_id = $2), 'readMe',
					'personal_access_token', 9))
				c (id, operation, kind, requests),
			unnest(array[1, 40]) ago, unnest(array[gen_random_uuid(), gen_random_uuid()]) service`,
		workspaceID, user, g.ID)
	type record struct {
		Day, CredentialID, Kind, Operation string
		Requests, Refused, Records         int
	}
	type list struct {
		Data []record
		Meta struct {
			Count      int
			NextCursor string
		}
	}
	const path = mePath + "/usage"
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly) }
	read := func(query string, h header) list {
		t.Helper()
		a := s.get(path+query, h).wants(t, 200)
		if strings.Contains(string(a.Body), "service") {
			t.Errorf("a service in %s", a.Body)
		}
		return decoded[list](t, a)
	}
	of := func(ago int, operation string, requests int) record {
		return record{day(ago), g.ID.String(), "connection", operation, 2 * requests, 2, 20}
	}
	first, second := of(1, "listProgrammes", 5), of(1, "introspectToken", 2)
	third, fourth := of(40, "listProgrammes", 5), of(40, "introspectToken", 2)
	until := "?to=" + day(1) // the requests of this test count today
	for query, want := range map[string][]record{
		until:                                 {first, second},
		"?to=" + day(2):                       nil,
		until + "&from=" + day(40):            {first, second, third, fourth},
		"?from=" + day(40) + "&to=" + day(40): {third, fourth},
	} {
		if got := read(query, header{"Authorization": granted["Authorization"]}); !slices.Equal(got.Data, want) {
			t.Errorf("%s: %+v, want %+v", query, got.Data, want)
		}
	}
	if got := read("", granted); !slices.Contains(got.Data, first) {
		t.Errorf("of the last days: %+v", got)
	}
	page := read(until+"&limit=1", granted)
	next := read(until+"&limit=1&cursor="+page.Meta.NextCursor, granted)
	if !slices.Equal(append(page.Data, next.Data...), []record{first, second}) || next.Meta.NextCursor != "" {
		t.Errorf("%+v, then %+v", page, next)
	}
	if got := read(until, pat); len(got.Data) != 1 || got.Data[0].Operation != "readMe" || got.Data[0].Requests != 18 ||
		got.Data[0].Kind != "personal_access_token" {
		t.Errorf("of the token: %+v", got)
	}
	s.get(path+until+"&cursor="+page.Meta.NextCursor, pat).expect(t, 400, "VALIDATION_ERROR", "")
	for _, bad := range []string{
		"?credentialId=" + g.ID.String(), "?from=x", "?from=" + day(93), "?from=" + day(0) + "&to=" + day(1),
		"?limit=0", "?fields=service",
	} {
		s.get(path+bad, granted).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.RemoveMember(workspaceID, user)
	if got := read(until, pat); len(got.Data) != 1 {
		t.Errorf("no member any more: %+v", got)
	}
	s.Exec("update account.personal_access_tokens set revoked_at = now() where user_id = $1", user)
	s.get(path, pat).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
}

const mePath = "/v1/me"

type meRecord struct {
	User, Credential struct{ Name string }
	Workspaces       []struct {
		Name        string
		Permissions []string
	}
}

// gate tests what the credentials of a member may do. The header of the workspace is not read.
func TestMe_NamesUserCredentialAndWorkspace(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead, perm.ProgrammesWrite)
	g := s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	c, foreign := claims(g), claims(g)
	c.Scope, foreign.Audience = perm.NewSet(perm.ProgrammesRead), mcpResource
	granted, pat := as(s.token(c), uuid.New()), s.holding(workspaceID, user, perm.ProgrammesRead)
	for _, h := range []header{granted, pat} {
		m := decoded[meRecord](t, s.get(mePath, h).wants(t, 200))
		if m.User.Name == "" || m.Credential.Name == "" || len(m.Workspaces) != 1 || m.Workspaces[0].Name == "" ||
			!slices.Equal(m.Workspaces[0].Permissions, []string{"programmes:read:programmes"}) {
			t.Errorf("without names, or with a permission that the token does not have: %+v", m)
		}
	}
	s.get(mePath, as(s.token(foreign), workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	s.get(mePath+"?limit=5", as("x", workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	s.Member(workspaceID, user)
	s.get(mePath, pat).wants(t, 200, `"permissions":[]`)
	s.Exec("update account.tenant_features set enabled = false where {mine}")
	s.get(mePath, granted).wants(t, 200, `"workspaces":[]`) // of a connector
	s.RemoveMember(workspaceID, user)
	s.get(mePath, pat).wants(t, 200, `"workspaces":[]`)
}
