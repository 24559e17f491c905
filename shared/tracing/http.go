package tracing

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/almonerhq/almoner/shared/web"
)

// Server makes a span of each request to next (which is web.Observe's, with Watchers). A trace that the caller names
// goes on only where it is one of the proxies; another's begins anew and keeps a link to it (T2).
func (t *Tracing) Server(next http.Handler, proxies web.Proxies) http.Handler {
	if t == nil {
		return next
	}
	addressed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := proxies.ClientAddress(r).String() // the library takes it from whoever says it (T1)
		trace.SpanFromContext(r.Context()).SetAttributes(attribute.String("client.address", from))
		next.ServeHTTP(w, r)
	})
	return otelhttp.NewHandler(
		addressed,
		"request",
		otelhttp.WithTracerProvider(
			t.provider,
		),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(t.headers),
		otelhttp.WithPublicEndpointFn(func(r *http.Request) bool { return !proxies.Trusted(r) }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return web.Method(r.Method) }),
	)
}

// Watchers name the span of a request by its route and give it the request's id, so that a trace is found by the id of
// an answer.
func (t *Tracing) Watchers() []web.Watcher {
	if t == nil {
		return nil
	}
	return []web.Watcher{requestNames{}}
}

type requestNames struct{}

// Begins is web.Watcher's.
func (requestNames) Begins(r *http.Request) {
	trace.SpanFromContext(r.Context()).SetAttributes(
		attribute.String("almoner.request_id", web.RequestID(r.Context())),
		attribute.String("user_agent.original", "")) // in the place of what the library puts there (T1)
}

// Ends is web.Watcher's.
func (requestNames) Ends(r *http.Request, outcome web.Outcome) {
	if outcome.Route == "" {
		return
	}
	span := trace.SpanFromContext(r.Context())
	span.SetName(web.Method(r.Method) + " " + outcome.Route)
	span.SetAttributes(attribute.String("http.route", outcome.Route))
}

// Client makes a span of each request that is sent by next to one of our own, and tells it of the trace. It is not for
// strangers.
func (t *Tracing) Client(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return otelhttp.NewTransport(
		withoutQuery{next},
		otelhttp.WithTracerProvider(
			t.provider,
		),
		otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithPropagators(t.headers),
	)
}

// withoutQuery says again what a span's URL is, as the library puts the whole of it there (T1).
type withoutQuery struct{ next http.RoundTripper }

// RoundTrip is http.RoundTripper's.
func (w withoutQuery) RoundTrip(r *http.Request) (*http.Response, error) {
	address := *r.URL
	address.RawQuery, address.Fragment, address.User = "", "", nil
	trace.SpanFromContext(r.Context()).SetAttributes(attribute.String("url.full", address.String()))
	return w.next.RoundTrip(r)
}
