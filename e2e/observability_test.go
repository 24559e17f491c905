package e2e

import (
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
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// One refresh is one trace: from the gateway to the service, and from there to PostgreSQL and Redis. It has the
// request id of the response, and does not continue a trace that the caller sends.
func TestTraces_RefreshIsOneTrace(t *testing.T) {
	t.Parallel()
	running := shared(t)
	p := harness.NewProduct(t, running, &met)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	const foreign = "4bf92f3577b34da6a3ce929d0e0e4736"
	answer := p.API().With("Traceparent", "00-"+foreign+"-00f067aa0ba902b7-01").
		Form(t, harness.TokenPath+"?code=alm_ac_in_the_wrong_place", connector.RefreshForm(tokens.RefreshToken))
	answer.Tokens(t)
	var spans []harness.Span
	complete := func() bool {
		spans = traceOf(harness.Spans(t, running), answer.Header.Get("X-Request-Id"))
		return has(spans, "gateway", "") && has(spans, "authserver", "postgresql") &&
			has(spans, "authserver", "redis") &&
			has(spans, "authserver", "POST")
	}
	await.NoError(t, func() error {
		if !complete() {
			return fmt.Errorf("incomplete trace: %v", steps(spans))
		}
		return nil
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
	if !has(spans, "authserver", "POST "+harness.TokenPath) {
		t.Errorf("no span has the route's name: %v", steps(spans))
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
	for _, span := range spans {
		if span.Service == service &&
			(strings.HasPrefix(span.Name, what) || span.Attribute("db.system") == what ||
				span.Attribute("db.system.name") == what) {
			return true
		}
	}
	return false
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
	t.Parallel()
	running := shared(t)
	p := harness.NewProduct(t, running, &met)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	refreshed := connector.Refresh(t, tokens.RefreshToken)
	refreshed.Tokens(t)
	listed := connector.List(t, tokens)
	listed.Wants(t, http.StatusOK)
	logs, err := harness.ReadLogs(running.LogDir())
	must(t, err)
	for _, c := range []struct {
		answer  harness.Answer
		service string
		path    string
	}{{refreshed, "authserver", harness.TokenPath}, {listed, "resourceapi", programmes}} {
		id := c.answer.Header.Get("X-Request-Id")
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
			if line.Path == c.path {
				seen++
			}
			if line.GrantID != "" {
				named++
			}
		}
		if seen != 2 || named != 1 {
			t.Errorf("%s: %d lines with the path and %d with the grant, want 2 and 1", c.service, seen, named)
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
	t.Parallel()
	running := shared(t)
	p := harness.NewProduct(t, running, &met)
	ws := p.NewWorkspace(t)
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
		past := 0.0
		if c.more > 0 && before.Has(c.name, c.labels...) { // with 0, the series must exist only
			past = before.Sum(t, c.name, c.labels...)
		}
		if now := after.Sum(t, c.name, c.labels...); now < past+c.more { // other tests count too
			t.Errorf("%s %v: %v after %v, want %v more", c.name, c.labels, now, past, c.more)
		}
	}
	identifiers := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-|alm_|@|nothing-of`)
	if found := identifiers.FindString(string(after)); found != "" {
		t.Errorf("the metrics contain an identifier: %s", found)
	}
}

// Public addresses do not serve metrics.
func TestMetrics_NotPublic(t *testing.T) {
	t.Parallel()
	running := shared(t)
	p := harness.NewProduct(t, running, &met)
	p.API().Get(t, "/metrics").Wants(t, http.StatusNotFound)
	p.App().Get(t, "/metrics").Wants(t, http.StatusNotFound)
	response, err := http.Get(
		running.Authservers[0].Metrics[:len(running.Authservers[0].Metrics)-len("/metrics")] + "/healthz",
	)
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
		content := fileContent(t, filepath.Join("..", "deploy", "observability", name))
		found := ours.FindAllString(string(content), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", name)
		}
		for _, metric := range found {
			if !names[metric] {
				t.Errorf("%s names %s, which no service has", name, metric)
			}
		}
	}
	content := fileContent(t, filepath.Join("..", "deploy", "docs", "observability.md"))
	section := string(content)
	written := map[string]bool{}
	for _, metric := range ours.FindAllString(section, -1) {
		if written[metric] = true; !names[metric] {
			t.Errorf("observability.md names %s, which no service has", metric)
		}
	}
	for metric := range names {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "")
		if strings.HasPrefix(metric, "almoner_") && !written[metric] && !written[base] {
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

// Sum adds the values of the series with that name and all these labels, each in the form route="/token". There must
// be at least one.
func (s scrape) Sum(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	values := s.series(name, labels)
	if len(values) == 0 {
		t.Errorf("there is no series %s with %v", name, labels)
	}
	sum := 0.0
	for _, value := range values {
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sum += number
	}
	return sum
}

// Has reports whether there is such a series.
func (s scrape) Has(name string, labels ...string) bool { return len(s.series(name, labels)) > 0 }

func (s scrape) series(name string, labels []string) (values []string) {
	for line := range strings.Lines(string(s)) {
		end := strings.LastIndex(line, " ")
		is, in, _ := strings.Cut(line[:max(end, 0)], "{")
		if is == name && !slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(in, label) }) {
			values = append(values, strings.TrimSpace(line[end+1:]))
		}
	}
	return values
}
