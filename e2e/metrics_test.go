package e2e

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

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
		content, err := os.ReadFile(filepath.Join("..", "deploy", "observability", name))
		must(t, err)
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
	content, err := os.ReadFile(filepath.Join("..", "deploy", "docs", "observability.md"))
	must(t, err)
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
	alerts, err := os.ReadFile(filepath.Join("..", "deploy", "observability", "alerts.yaml"))
	must(t, err)
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
