package tracing

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/almonerhq/almoner/shared/web"
)

// Server makes a span for each request to next, which must be web.Observe with Watchers. It continues a
// caller's trace only if the caller is one of the proxies; otherwise it starts a new trace with a link to the
// caller's (T2).
func (t *Tracing) Server(next http.Handler, proxies web.Proxies) http.Handler {
	if t == nil {
		return next
	}
	addressed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := proxies.ClientAddress(r).String() // the library trusts any X-Forwarded-For (T1)
		trace.SpanFromContext(r.Context()).SetAttributes(attribute.String("client.address", from))
		next.ServeHTTP(w, r)
	})
	return otelhttp.NewHandler(addressed, "request", otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()), otelhttp.WithPropagators(t.headers),
		otelhttp.WithPublicEndpointFn(func(r *http.Request) bool { return !proxies.Trusted(r) }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return web.Method(r.Method) }))
}

// Watchers returns watchers that name the span of a request by its route and add the request's id, so that a
// trace can be found by the id in a response.
func (t *Tracing) Watchers() []web.Watcher {
	if t == nil {
		return nil
	}
	return []web.Watcher{requestNames{}}
}

type requestNames struct{}

// Begins implements web.Watcher.
func (requestNames) Begins(r *http.Request) {
	trace.SpanFromContext(r.Context()).SetAttributes(
		attribute.String("almoner.request_id", web.RequestID(r.Context())),
		attribute.String("user_agent.original", "")) // replaces the library's value (T1)
}

// Ends implements web.Watcher.
func (requestNames) Ends(r *http.Request, outcome web.Outcome) {
	if outcome.Route == "" {
		return
	}
	span := trace.SpanFromContext(r.Context())
	span.SetName(web.Method(r.Method) + " " + outcome.Route)
	span.SetAttributes(attribute.String("http.route", outcome.Route))
}

// Client makes a span for each request that next sends to one of our services, and passes the trace on. It
// must not be used for requests to third parties.
func (t *Tracing) Client(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return otelhttp.NewTransport(withoutQuery{next}, otelhttp.WithTracerProvider(t.provider),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()), otelhttp.WithPropagators(t.headers))
}

// withoutQuery overwrites the URL of a span, because the library records the whole URL (T1).
type withoutQuery struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w withoutQuery) RoundTrip(r *http.Request) (*http.Response, error) {
	address := *r.URL
	address.RawQuery, address.Fragment, address.User = "", "", nil
	trace.SpanFromContext(r.Context()).SetAttributes(attribute.String("url.full", address.String()))
	return w.next.RoundTrip(r)
}
