package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/contract/openapi"
)

// Invariant O2 of package openapi: every response is described (harness.Checker checks each one that a test receives),
// and every described response occurs (TestMain). The tests in this file make the error responses occur that all
// operations share, with requests built from the description, so a new operation is tested as soon as it is
// described.

// A sampler builds requests from the examples in the description.
type sampler struct {
	*harness.Product
	description *openapi.Document
	ws          harness.TestWorkspace
}

func newSampler(t *testing.T, p *harness.Product) sampler {
	t.Helper()
	checker, err := harness.Checker()
	must(t, err)
	return sampler{p, checker.Document, p.NewWorkspace(t)}
}

// path returns the operation's path with the example parameters. The values in exists replace the examples.
func (s sampler) path(o openapi.Operation, exists map[string]string) string {
	path, query := o.Path, url.Values{}
	for _, p := range s.description.Parameters(o) {
		value, _ := p.Value("example").(string)
		if text, given := exists[p.Text("name")]; given {
			value = text
		}
		switch p.Text("in") {
		case "path":
			path = strings.ReplaceAll(path, "{"+p.Text("name")+"}", url.PathEscape(value))
		case "query":
			if p.Value("required") == true {
				query.Set(p.Text("name"), value)
			}
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// existing returns parameters of what exists: the workspace, the demo's form and a submission to it.
func (s sampler) existing(t *testing.T) map[string]string {
	t.Helper()
	status, err := url.Parse(formOf(s.Product).accepted(t))
	must(t, err)
	return map[string]string{
		"tenantId": s.ws.Workspace.ID, "embedKey": s.Demo.Engage.EmbedKey,
		"id": path.Base(status.Path), "token": status.Query().Get("token"),
	}
}

// body returns the first example of a request body, with its media type.
func (s sampler) body(o openapi.Operation) (mediaType, body string) {
	for _, member := range s.description.Resolve(o.Map("requestBody")).Map("content") {
		example, _ := s.description.Example(member.Value.(openapi.Object))
		switch example := example.(type) {
		case string:
			return member.Name, example
		case openapi.Object:
			if member.Name == "application/x-www-form-urlencoded" {
				form := url.Values{}
				for _, field := range example {
					form.Set(field.Name, field.Value.(string))
				}
				return member.Name, form.Encode()
			}
			encoded, _ := json.Marshal(example) // decoded from JSON
			return member.Name, string(encoded)
		}
	}
	return "", ""
}

// caller returns an API that may call the operation.
func (s sampler) caller(o openapi.Operation) harness.API {
	api := s.API()
	switch scheme(o) {
	case "bearer":
		api = s.As(s.ws.Token)
	case "assistant":
		api = s.As(s.ws.Token).With("Accept", "application/json, text/event-stream")
	case "service":
		api = s.DemoService().API()
	}
	if s.takes(o, "X-Tenant-Id") {
		api = api.With("X-Tenant-Id", s.ws.Workspace.ID)
	}
	return api
}

func (s sampler) takes(o openapi.Operation, parameter string) bool {
	for _, p := range s.description.Parameters(o) {
		if p.Text("name") == parameter {
			return true
		}
	}
	return false
}

func (s sampler) send(t *testing.T, api harness.API, o openapi.Operation, path string) harness.Answer {
	t.Helper()
	mediaType, body := s.body(o)
	return api.Send(t, o.Method, path, mediaType, body)
}

// scheme returns the first security scheme of the operation, or "".
func scheme(o openapi.Operation) string {
	for _, one := range o.List("security") {
		for _, member := range one.(openapi.Object) {
			return member.Name
		}
	}
	return ""
}

func describes(o openapi.Operation, status string) bool {
	return o.Map("responses").Value(status) != nil
}

// Every operation with authentication rejects callers without credentials, of another workspace, and without a tenant
// header.
func TestDescribed_UnauthorizedCallers(t *testing.T) {
	s := newSampler(t, inParallel(t))
	here := map[string]string{"tenantId": s.ws.Workspace.ID}
	for _, o := range s.description.Operations() {
		path := s.path(o, here)
		switch scheme(o) {
		case "bearer":
			stranger := s.As(s.Demo.Tokens.Reader).With("X-Tenant-Id", s.ws.Workspace.ID)
			s.send(t, s.caller(o).Without("Authorization"), o, path).Wants(t, http.StatusUnauthorized)
			if !strings.HasPrefix(o.Path, "/v1/me") { // which names no workspace
				s.send(t, stranger, o, path).Wants(t, http.StatusForbidden)
			}
			if s.takes(o, "X-Tenant-Id") {
				s.send(t, s.caller(o).Without("X-Tenant-Id"), o, path).Wants(t, http.StatusBadRequest)
			}
		case "assistant":
			s.send(t, s.caller(o).Without("Authorization"), o, path).Wants(t, http.StatusUnauthorized)
			s.send(t, s.As(s.Demo.Tokens.OwnerIn.LLMDisabled), o, path).Wants(t, http.StatusForbidden)
		case "service":
			s.send(t, s.caller(o).Without("Authorization"), o, path).Wants(t, http.StatusUnauthorized)
		case "clientBasic":
			stranger := s.API().With("Authorization", harness.Basic(uuid.NewString(), "alm_cs_nobody"))
			mediaType := "application/x-www-form-urlencoded"
			body := "grant_type=authorization_code&code=x&redirect_uri=https://x.example/&token=x"
			stranger.Send(t, o.Method, path, mediaType, body).Wants(t, http.StatusUnauthorized)
		}
	}
}

// An unknown object is 404 and a body that is too long is 413, for every operation that describes these.
func TestDescribed_UnknownObjectsAndLargeBodies(t *testing.T) {
	s := newSampler(t, inParallel(t))
	here := map[string]string{"tenantId": s.ws.Workspace.ID, "group": "nothing"}
	there := map[string]string{"tenantId": s.ws.Workspace.ID, "embedKey": s.Demo.Engage.EmbedKey}
	for _, o := range s.description.Operations() {
		if describes(o, "404") && o.Path != "/mcp" { // there, 404 means an unknown method of the protocol
			s.send(t, s.caller(o), o, s.path(o, here)).Wants(t, http.StatusNotFound)
		}
		if describes(o, "413") {
			mediaType, _ := s.body(o)
			huge := strings.Repeat("x", 70<<10)
			if strings.HasPrefix(o.Path, programmes) { // which accepts batches and imports of 2 MiB
				huge = strings.Repeat("x", 2<<20+1)
			}
			caller := s.caller(o)
			if s.takes(o, "Idempotency-Key") { // without it, a DELETE does not read the body
				caller = caller.With("Idempotency-Key", uuid.NewString())
			}
			caller.Send(t, o.Method, s.path(o, there), mediaType, huge).Wants(t, http.StatusRequestEntityTooLarge)
		}
	}
}

// Every operation that checks the Origin header rejects one that is not allowed.
func TestDescribed_ForeignOrigins(t *testing.T) {
	s := newSampler(t, inParallel(t))
	there := s.existing(t)
	for _, o := range s.description.Operations() {
		foreign := s.caller(o).With("Origin", "https://elsewhere.example").With("Access-Control-Request-Method", "POST")
		if (scheme(o) == "" || o.Path == "/mcp") && describes(o, "403") {
			s.send(t, foreign, o, s.path(o, there)).Wants(t, http.StatusForbidden)
		}
	}
}

// Conditional requests: 304 and 412.
func TestDescribed_ConditionalRequests(t *testing.T) {
	s := newSampler(t, inParallel(t))
	api := workspaceOf(s.Product, s.ws)
	form, _ := newForm(t, s.Product, s.ws)
	made := api.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Night Shelter"}).
		Wants(t, http.StatusCreated).Object(t)
	there := map[string]map[string]string{
		forms + "/{id}":      {"id": form.ID},
		programmes + "/{id}": {"id": made["id"].(string)},
		"/v1/account/tenants/{tenantId}/connector-policy": {"tenantId": s.ws.Workspace.ID},
	}
	for _, o := range s.description.Operations() {
		if !describes(o, "304") {
			continue
		}
		caller, path := s.caller(o), s.path(o, there[o.Path])
		first := caller.Get(t, path).Wants(t, http.StatusOK)
		again := caller.With("If-None-Match", first.Header.Get("ETag")).Get(t, path).Wants(t, http.StatusNotModified)
		if len(again.Body) > 0 {
			t.Errorf("%s: unexpected body", again.Request)
		}
		if describes(o, "412") {
			caller.With("If-Match", `"0"`).Get(t, path).Wants(t, http.StatusPreconditionFailed)
		}
		caller.Send(t, http.MethodHead, path, "", "").WantsHeader(t, "ETag", first.Header.Get("ETag"))
	}
}

// Every public document exists, and pages of any website may read it.
func TestDescribed_PublicDocuments(t *testing.T) {
	s := newSampler(t, inParallel(t))
	for _, o := range s.description.Operations() {
		if group := o.List("tags")[0]; group != "Discovery" && group != "Service" || scheme(o) != "" {
			continue
		}
		want := http.StatusOK
		if o.Method == http.MethodOptions {
			want = http.StatusNoContent
		}
		s.send(t, s.API(), o, s.path(o, nil)).Wants(t, want)
	}
}

// readyForOutage returns a function that checks, while Postgres is stopped, that every operation which describes a 503
// returns it.
func readyForOutage(t *testing.T, p *harness.Product) (wants503 func(t *testing.T)) {
	t.Helper()
	s := newSampler(t, p)
	there := s.existing(t)
	operations := slices.DeleteFunc(s.description.Operations(), func(o openapi.Operation) bool {
		return !describes(o, "503") || isUnreachable(o.Method+" "+o.Path+" 503")
	})
	return func(t *testing.T) {
		t.Helper()
		for _, answer := range harness.Concurrently(len(operations), func(i int) harness.Answer {
			return s.send(t, s.caller(operations[i]), operations[i], s.path(operations[i], there))
		}) {
			if strings.Contains(string(answer.Wants(t, http.StatusServiceUnavailable).Body), byGateway) {
				t.Errorf("the service has not responded:\n%s", answer)
			}
		}
	}
}

// message sends a JSON-RPC message to the MCP endpoint.
func message(t *testing.T, api harness.API, status int, body string) {
	t.Helper()
	api.With("Accept", "application/json, text/event-stream").
		Send(t, http.MethodPost, "/mcp", "application/json", body).Wants(t, status)
}

func TestDescribed_MCPEndpoint(t *testing.T) {
	p := inParallel(t)
	api := p.As(p.NewWorkspace(t).Token)
	message(t, api, http.StatusOK, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	message(t, api, http.StatusAccepted, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	message(t, api, http.StatusBadRequest, `not JSON`)
	message(t, api.With("Mcp-Protocol-Version", "2026-07-28"), http.StatusNotFound,
		`{"jsonrpc":"2.0","id":1,"method":"unheard/of"}`)
	api.Send(t, http.MethodPost, "/mcp", "text/plain", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).
		Wants(t, http.StatusUnsupportedMediaType)
	api.Get(t, "/mcp").WantsNested(t, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	api.Send(t, http.MethodDelete, "/mcp", "", "").Wants(t, http.StatusMethodNotAllowed)
	p.API().With("Origin", p.AppURL).Send(t, http.MethodOptions, "/mcp", "", "").Wants(t, http.StatusNoContent)
}

// Described responses that no other test causes.
func TestDescribed_RemainingResponses(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	p.As(ws.Token).JSON(t, http.MethodPost, ws.Clients()+"/"+connector.ClientID+"/secret", "{}").
		WantsFlat(t, http.StatusBadRequest, "invalid_client_metadata")
	p.As(ws.Token).Get(t, ws.Clients()+"/"+connector.ClientID).Wants(t, http.StatusOK)
	connector.Revoke(t, "").WantsFlat(t, http.StatusBadRequest, "invalid_request")
	p.DemoService().API().Form(t, harness.IntrospectPath, url.Values{}).
		WantsFlat(t, http.StatusBadRequest, "invalid_request")
	basic := ws.Confidential(t, "client_secret_basic", harness.ReadProgrammes)
	failed := p.API().With("Authorization", harness.Basic(basic.ClientID, alterLast(basic.ClientSecret)))
	exchange := change(basic.Form("x"), "token", "x")
	delete(exchange, "client_id")
	delete(exchange, "client_secret")
	for _, path := range []string{harness.TokenPath, "/token", harness.RevokePath} {
		failed.Form(t, path, exchange).WantsFlat(t, http.StatusUnauthorized, "invalid_client")
	}

	p.As(ws.Token).Get(t, "/v1/me").Wants(t, http.StatusOK)
	p.As(ws.Token).Get(t, "/v1/me?unknown=1").WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	form := formOf(p)
	for _, path := range []string{form.path + "?captcha=1", form.accepted(t) + "&captcha=1"} {
		form.api().Get(t, path).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	}
}

// workspaceOf returns the API with the owner's token and the tenant header.
func workspaceOf(p *harness.Product, o harness.TestWorkspace) harness.API {
	return p.In(o.Workspace, o.Token)
}
