package gateway

import (
	"encoding/hex"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/gateway"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// foreign is the trace id that callers send.
const foreign = "4bf92f3577b34da6a3ce929d0e0e4736"

// The value of GATEWAY_TRACING takes effect before the request reaches the services, and the trace that a caller
// sends does not reach them. Debian's Caddy does not have `tracing`. The test uses `vars` instead, which Caddy runs
// as early, with a header that is invalid if it contains the caller's header or comes second to it. Behind nginx the
// trace begins in the service.
func TestTraces_CallerTraceIsIgnored(t *testing.T) {
	t.Parallel()
	s := started(t)
	const begun, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	before(t, s.processes, func(t *testing.T, f *front, _ string) {
		want := ""
		if f.name == "caddy" {
			want = parent
		}
		for _, address := range f.traced() {
			span := s.spanOf(t, f, address)
			if got := hex.EncodeToString(span.ParentSpanId); got != want ||
				(hex.EncodeToString(span.TraceId) == begun) != (want == parent) ||
				hex.EncodeToString(span.TraceId) == foreign {
				t.Errorf("%s: the span of %s has the parent %q, want %q, in the trace %s", address, span.Service, got,
					want, hex.EncodeToString(span.TraceId))
			}
		}
	}, "GATEWAY_TRACING=vars named {http.request.header.Traceparent}\nrequest_header +Traceparent "+
		"{http.vars.named}00-"+begun+"-"+parent+"-01")
}

// One request is one trace, which begins with Caddy's span and contains nothing of the query.
func TestTraces_BeginAtCaddy(t *testing.T) {
	t.Parallel()
	skipIfCaddyCannotTrace(t)
	s := started(t)
	before(t, s.processes, func(t *testing.T, f *front, _ string) {
		if f.name != "caddy" {
			return
		}
		for _, address := range f.traced() {
			span := s.spanOf(t, f, address)
			root := s.waitForSpan(t,
				func(other harness.Span) bool { return string(other.SpanId) == string(span.ParentSpanId) })
			if root.Service != "gateway" || len(root.ParentSpanId) > 0 ||
				string(root.TraceId) != string(span.TraceId) ||
				hex.EncodeToString(root.TraceId) == foreign {
				t.Errorf("%s: unexpected root span %s", address, root)
			}
			path, _, _ := strings.Cut(strings.TrimPrefix(address, "https://"), "?")
			if root.Attribute("url.path") != path[strings.Index(path, "/"):] ||
				strings.Contains(root.String(), "wrong_place") {
				t.Errorf("%s: wrong path or query in Caddy's span %s", address, root)
			}
		}
	},
		"GATEWAY_TRACING=tracing",
		"OTEL_SERVICE_NAME=gateway",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+s.stack.Resourceapi.Setting("OTEL_EXPORTER_OTLP_ENDPOINT"),
		"OTEL_BSP_SCHEDULE_DELAY=200")
}

func skipIfCaddyCannotTrace(t *testing.T) {
	t.Helper()
	program, err := gateway.Find("caddy", os.Getenv(toolsVariable))
	if err != nil {
		t.Skip(err)
	}
	command := exec.CommandContext(t.Context(), program.Path, "list-modules")
	command.Env = slices.Concat(os.Environ(), program.Environment)
	if modules, err := command.Output(); err != nil ||
		!slices.Contains(strings.Fields(string(modules)), "http.handlers.tracing") {
		t.Skip("this Caddy cannot trace: Debian leaves the module out. " +
			"Put Caddy 2.11 or newer first in PATH, then try again")
	}
}

// traced returns URLs of each service and host.
func (f *front) traced() []string {
	const query = "?code=alm_ac_in_the_wrong_place"
	return []string{
		f.ports.baseURL() + "/v1/account/oauth/jwks" + query, f.ports.baseURL() + "/v1/docs" + query,
		f.ports.appURL() + "/login" + query,
	}
}

// spanOf sends a request with a foreign trace through a gateway and returns the first span of the service.
func (s *site) spanOf(t *testing.T, f *front, address string) harness.Span {
	t.Helper()
	transport := f.transport(t)
	trace := http.Header{"Traceparent": {"00-" + foreign + "-00f067aa0ba902b7-01"}}
	response, _ := ask(t, transport, http.MethodGet, address, "", trace)
	id := response.Header.Get("X-Request-Id")
	return s.waitForSpan(t,
		func(span harness.Span) bool { return id != "" && span.Attribute("almoner.request_id") == id })
}

func (s *site) waitForSpan(t *testing.T, wanted func(harness.Span) bool) harness.Span {
	t.Helper()
	var found harness.Span
	await.True(t, "the span is stored", func() bool {
		spans := harness.Spans(t, s.stack)
		i := slices.IndexFunc(spans, wanted)
		if i >= 0 {
			found = spans[i]
		}
		return i >= 0
	})
	return found
}
