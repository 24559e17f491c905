package e2e

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// One refresh is one trace: from the gateway to the service, and from there to PostgreSQL and Redis. It has the
// request id of the response, and does not continue a trace that the caller sends.
func TestTraces_RefreshIsOneTrace(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	const foreign = "4bf92f3577b34da6a3ce929d0e0e4736"
	answer := p.API().With("Traceparent", "00-"+foreign+"-00f067aa0ba902b7-01").
		Form(t, harness.TokenPath+"?code=alm_ac_in_the_wrong_place", connector.RefreshForm(tokens.RefreshToken))
	answer.Tokens(t)
	var spans []harness.Span
	await.NoError(t, func() error {
		spans = traceOf(harness.Spans(t, shared(t)), answer.Header.Get("X-Request-Id"))
		if has(spans, "gateway", "") && has(spans, "authserver", "postgresql") && has(spans, "authserver", "redis") &&
			has(spans, "authserver", "POST "+harness.TokenPath) {
			return nil
		}
		return fmt.Errorf("incomplete trace: %v", steps(spans))
	})
	ids := map[string]bool{}
	for _, span := range spans {
		ids[string(span.SpanId)] = true
	}
	roots := 0
	for _, span := range spans {
		if len(span.ParentSpanId) == 0 {
			roots++
			if span.Service != "gateway" {
				t.Errorf("the root span is of %s", span.Service)
			}
		} else if !ids[string(span.ParentSpanId)] {
			t.Errorf("the parent of %s %s is not in the trace", span.Service, span.Name)
		}
		if strings.Contains(span.String(), "wrong_place") {
			t.Errorf("the query is in a span of %s: %s", span.Service, span.Name)
		}
	}
	if roots != 1 {
		t.Errorf("%d roots: %v", roots, steps(spans))
	}
}

// traceOf returns the spans of the trace with the request id.
func traceOf(all []harness.Span, requestID string) (out []harness.Span) {
	trace := ""
	for _, span := range all {
		if span.Attribute("almoner.request_id") == requestID {
			trace = string(span.TraceId)
		}
	}
	for _, span := range all {
		if trace != "" && string(span.TraceId) == trace {
			out = append(out, span)
		}
	}
	return out
}

// has reports whether a service has a span with this name prefix or for this store.
func has(spans []harness.Span, service, what string) bool {
	return slices.ContainsFunc(spans, func(span harness.Span) bool {
		return span.Service == service && (strings.HasPrefix(span.Name, what) ||
			span.Attribute("db.system") == what || span.Attribute("db.system.name") == what)
	})
}

func steps(spans []harness.Span) (out []string) {
	for _, span := range spans {
		out = append(out, span.Service+": "+span.Name)
	}
	return out
}

// An operator can find a request in the logs by the request id of its response: the lines of the gateway and of the
// service, and the grant.
func TestLogs_ContainRequestAndGrant(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	answers := map[string]harness.Answer{
		harness.TokenPath: connector.Refresh(t, tokens.RefreshToken), programmes: connector.List(t, tokens),
	}
	logs, err := harness.ReadLogs(shared(t).LogDir())
	must(t, err)
	for path, answer := range answers {
		id := answer.Wants(t, http.StatusOK).Header.Get("X-Request-Id")
		var seen, named int
		for text := range strings.Lines(string(logs)) {
			if !strings.Contains(text, id) {
				continue
			}
			var line struct {
				RequestID string `json:"request_id"`
				GrantID   string `json:"grant_id"`
				Path      string `json:"path"`
			}
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.RequestID != id {
				t.Errorf("not a log line of the request: %s", text)
			}
			if line.Path == path {
				seen++
			}
			if line.GrantID != "" {
				named++
			}
		}
		if seen != 2 || named != 1 {
			t.Errorf("%s: %d lines with the path and %d with the grant, want 2 and 1", path, seen, named)
		}
	}
}

// wantsObjects checks that every line of the services' logs is a JSON object, including what libraries log when a
// store is unavailable. The output of migrations is not part of the log.
func wantsObjects(t *testing.T, logs []byte) {
	t.Helper()
	for text := range strings.Lines(string(logs)) {
		var line map[string]any
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "applied ") || strings.Contains(text, "index of searches") ||
			strings.HasSuffix(text, "schema is up to date") {
			continue
		}
		if json.Unmarshal([]byte(text), &line) != nil {
			t.Errorf("a line of a log is not JSON: %s", text)
		}
	}
}

// The metrics of the real services count the events of a grant and contain no identifiers.
func TestMetrics_CountGrantEvents(t *testing.T) {
	p, ws := inWorkspace(t)
	running := shared(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
	before := scrape(harness.Metrics(t, running))

	tokens := connector.Connect(t, owner)
	next := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	connector.List(t, next).Wants(t, http.StatusOK)
	connector.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant") // replay
	other := connector.Connect(t, owner)
	p.API().Form(t, harness.RevokePath, url.Values{"client_id": {connector.ClientID}, "token": {other.RefreshToken}}).
		Wants(t, http.StatusOK)
	p.API().Form(t, harness.TokenPath, url.Values{"grant_type": {"password"}, "client_id": {connector.ClientID}})
	p.API().Get(t, "/v1/nothing-of-the-sort")
	held := p.Database.Token(t, ws.Workspace, ws.Owner, harness.Everything()...)
	invented, err := credential.PersonalAccessToken.New(rand.Reader)
	must(t, err)
	for _, tool := range []string{"list_programmes", "nothing-of-the-sort"} {
		message(t, p.As(held), http.StatusOK, toolCall(tool))
		message(t, p.As(invented.Reveal()), http.StatusUnauthorized, toolCall(tool))
	}

	after := scrape(harness.Metrics(t, running))
	for _, c := range []struct {
		more   float64
		name   string
		labels []string
	}{
		{2, "almoner_token_requests_total", []string{`grant_type="authorization_code"`, `outcome="ok"`}},
		{1, "almoner_token_requests_total", []string{`grant_type="refresh_token"`, `outcome="ok"`}},
		{1, "almoner_token_requests_total", []string{`grant_type="refresh_token"`, `outcome="invalid_grant"`}},
		{1, "almoner_token_requests_total", []string{`grant_type="other"`, `outcome="unsupported_grant_type"`}},
		{1, "almoner_grant_rotations_total", nil},
		{1, "almoner_grant_replays_total", nil},
		{1, "almoner_grant_revocations_total", []string{`reason="refresh_token_replayed"`}},
		{1, "almoner_grant_revocations_total", []string{`reason="revoked_by_client"`}},
		{5, "almoner_http_requests_total", []string{`method="POST"`, `route="` + harness.TokenPath + `"`}},
		{1, "almoner_http_requests_total", []string{`method="GET"`, `route="` + programmes + `"`, `status="2xx"`}},
		{1, "almoner_http_requests_total", []string{`method="GET"`, `route="none"`, `status="4xx"`}},
		{1, "almoner_tool_calls_total", []string{`tool="list_programmes"`}},
		{1, "almoner_tool_calls_total", []string{`tool="unknown"`}},
		{1, "almoner_http_request_duration_seconds_count", []string{`route="` + harness.TokenPath + `"`}},
		{1, "almoner_store_duration_seconds_count", []string{`operation="evalsha"`, `store="redis"`}},
		{1, "almoner_store_duration_seconds_count", []string{`operation="batch"`, `store="postgres"`}},
		{0, "pgxpool_idle_conns", []string{`pool="requests"`}},
		{0, "pgxpool_max_conns", []string{`pool="searches"`}},
		{0, "redis_pool_conn_idle_current", nil},
		{0, "almoner_queue_jobs", []string{`state="available"`}},
		{0, "almoner_queue_oldest_job_seconds", nil},
		{0, "almoner_refusals_throttled_total", []string{`counted="grant"`}},
	} {
		past, _ := before.sum(c.name, c.labels...)
		now, found := after.sum(c.name, c.labels...)
		// With 0, the series must exist only. Other tests count too.
		if !found || c.more > 0 && now < past+c.more {
			t.Errorf("%s %v: %v (found: %t) after %v, want %v more", c.name, c.labels, now, found, past, c.more)
		}
	}
	identifiers := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-|alm_|@|nothing-of`)
	if found := identifiers.FindString(string(after)); found != "" {
		t.Errorf("the metrics contain an identifier: %s", found)
	}
}

// Public addresses do not serve metrics.
func TestMetrics_NotPublic(t *testing.T) {
	p := inParallel(t)
	p.API().Get(t, "/metrics").Wants(t, http.StatusNotFound)
	p.App().Get(t, "/metrics").Wants(t, http.StatusNotFound)
	response, err := http.Get(strings.TrimSuffix(shared(t).Authservers[0].Metrics, "/metrics") + "/healthz")
	must(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("the metrics port serves /healthz: status %d", response.StatusCode)
	}
}

// Every metric in the documents exists, and every metric that begins with almoner_ is documented.
func TestMetrics_MatchDocuments(t *testing.T) {
	t.Parallel()
	names := scrape(harness.Metrics(t, shared(t))).Names()
	ours := regexp.MustCompile(`\b(?:almoner|pgxpool|redis_pool)_[a-z_]+`)
	for _, name := range []string{"alerts.yaml", "alerts_test.yaml", "dashboard.json"} {
		found := ours.FindAllString(string(fileContent(t, filepath.Join("..", "deploy", "observability", name))), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", name)
		}
		for _, metric := range found {
			if !names[metric] {
				t.Errorf("%s names %s, which no service has", name, metric)
			}
		}
	}
	section := string(fileContent(t, filepath.Join("..", "deploy", "docs", "observability.md")))
	written := map[string]bool{}
	for _, metric := range ours.FindAllString(section, -1) {
		if written[metric] = true; !names[metric] {
			t.Errorf("observability.md names %s, which no service has", metric)
		}
	}
	ofHistogram := regexp.MustCompile(`_(bucket|sum|count)$`)
	for metric := range names {
		if strings.HasPrefix(metric, "almoner_") && !written[metric] &&
			!written[ofHistogram.ReplaceAllString(metric, "")] {
			t.Errorf("observability.md does not document %s", metric)
		}
	}
	// Each alert has a runbook.
	alerts := fileContent(t, filepath.Join("..", "deploy", "observability", "alerts.yaml"))
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(alerts), -1) {
		if !strings.Contains(section, "\n### "+alert[1]+"\n") ||
			!strings.Contains(string(alerts),
				"runbook_url: deploy/docs/observability.md#"+strings.ToLower(alert[1])+"\n") {
			t.Errorf("no runbook for the alert %s", alert[1])
		}
	}
}

// A scrape is the metrics of all services of a stack at one moment.
type scrape string

// Names returns the names of the metrics in the TYPE lines, including the series of histograms.
func (s scrape) Names() map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(string(s)) {
		name, kind, _ := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " ")
		if !strings.HasPrefix(line, "# TYPE ") {
			continue
		}
		names[name] = true
		if strings.TrimSpace(kind) == "histogram" {
			names[name+"_bucket"], names[name+"_sum"], names[name+"_count"] = true, true, true
		}
	}
	return names
}

// sum adds the values of the series with that name and all these labels, each in the form route="/token". It reports
// whether there is one.
func (s scrape) sum(name string, labels ...string) (sum float64, found bool) {
	for line := range strings.Lines(string(s)) {
		end := strings.LastIndex(line, " ")
		is, in, _ := strings.Cut(line[:max(end, 0)], "{")
		if is != name || slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(in, label) }) {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[end+1:]), 64); err == nil {
			sum, found = sum+value, true
		}
	}
	return sum, found
}

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
		all = append(all, fileContent(t, name)...)
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
