package e2e

import (
	"fmt"
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
