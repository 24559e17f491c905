package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/exaring/otelpgx"
	"github.com/go-logr/logr"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/extra/redisotel/v9"
	goredis "github.com/redis/go-redis/v9"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/version"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Tracing makes OpenTelemetry spans and sends them by OTLP over HTTP to the collector in the TraceSettings. A nil
// *Tracing is off. It is safe for concurrent use. Invariants:
//
//   - T1 No span has a query string, a User-Agent, an untrusted X-Forwarded-For, a statement's arguments, or a Redis
//     command's key or arguments.
//   - T2 Only a trusted proxy can choose a trace's id or decide that it is recorded.
//   - T3 A trace begins with a request: background work of the process makes none.
type Tracing struct {
	provider *sdk.TracerProvider
	headers  propagation.TraceContext // W3C trace context; baggage is not propagated
}

// StartTracing starts tracing, or returns nil if no endpoint is configured. OTEL_SERVICE_NAME overrides the name of the
// service. delay is the longest time before spans are sent; 0 means OTEL_BSP_SCHEDULE_DELAY or five seconds. It does
// not connect: an unreachable collector loses its traces and affects nothing else. Settings for traces only in the
// environment (OTEL_EXPORTER_OTLP_TRACES_…) override the settings, as the standard requires; the library reads them.
func StartTracing(
	ctx context.Context, s TraceSettings, service string, delay time.Duration, log *slog.Logger,
) (*Tracing, error) {
	ownEndpoint := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	ownHeaders := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS") != ""
	if s.Endpoint == "" && !ownEndpoint {
		return nil, nil
	}
	headers, err := s.headers()
	if err != nil {
		return nil, err
	}
	discard := logr.FromSlogHandler(slog.DiscardHandler).GetSink()
	otel.SetLogger(logr.New(settingErrors{discard, log})) // before anything reads a setting
	var where []otlptracehttp.Option
	if !ownEndpoint {
		where = append(where, otlptracehttp.WithEndpointURL(strings.TrimSuffix(s.Endpoint, "/")+"/v1/traces"))
	}
	if !ownHeaders && headers != nil {
		where = append(where, otlptracehttp.WithHeaders(headers))
	}
	exporter, err := otlptracehttp.New(ctx, where...)
	if err != nil {
		return nil, errors.New("traces: the OTEL_EXPORTER_OTLP_… settings cannot be used")
	}
	who, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service),
		attribute.String("service.version", version.Number)), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, errors.New("traces: OTEL_RESOURCE_ATTRIBUTES cannot be read")
	}
	var batch []sdk.BatchSpanProcessorOption
	if delay > 0 {
		batch = append(batch, sdk.WithBatchTimeout(delay))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces not sent", "error", err) }))
	log.Info("sending traces", "service", service, "share", s.Share)
	return newTracing(sdk.WithBatcher(exporter, batch...), sdk.WithResource(who),
		sdk.WithSampler(sampler(s.Share))), nil
}

// settingErrors logs OpenTelemetry's errors without their values, because a header or an address may contain a secret.
type settingErrors struct {
	logr.LogSink // discards the other messages
	log          *slog.Logger
}

func (s settingErrors) Error(_ error, words string, _ ...any) {
	s.log.Warn("invalid OTEL_… setting", "where", words)
}

func (s settingErrors) WithValues(...any) logr.LogSink { return s }

func (s settingErrors) WithName(string) logr.LogSink { return s }

func newTracing(options ...sdk.TracerProviderOption) *Tracing {
	return &Tracing{provider: sdk.NewTracerProvider(options...)}
}

// Stop sends the remaining spans, for up to five seconds.
func (t *Tracing) Stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the error handler has logged it
}

// sampler records a share of the requests and follows an earlier decision (parentbased_traceidratio of the
// specification), except that only requests begin a trace (T3).
func sampler(share float64) sdk.Sampler {
	return sdk.ParentBased(requestsAlone{sdk.TraceIDRatioBased(share)})
}

type requestsAlone struct{ sdk.Sampler }

func (r requestsAlone) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if p.Kind != trace.SpanKindServer {
		return sdk.NeverSample().ShouldSample(p)
	}
	return r.Sampler.ShouldSample(p)
}

func (r requestsAlone) Description() string {
	return fmt.Sprintf("Requests{%s}", r.Sampler.Description())
}

// TraceSettings are the tracing settings of each program, with their standard names. Its configuration embeds them.
type TraceSettings struct {
	Endpoint string            `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the collector to send traces to, by OTLP over HTTP, like http://collector.internal:4318. Empty: no traces."`
	Headers  credential.Secret `env:"OTEL_EXPORTER_OTLP_HEADERS" doc:"Headers for the collector: name=value, the value percent-encoded, separated by commas."`
	Share    float64           `env:"OTEL_TRACES_SAMPLER_ARG" envDefault:"1" doc:"Share of requests to trace, 0 to 1. The decision of a trusted proxy takes precedence."`
}

// Check reports mistakes that the types cannot show. It quotes no value.
func (s *TraceSettings) Check() []error {
	var mistakes []error
	if s.Endpoint != "" && !isEndpoint(s.Endpoint) {
		mistakes = append(mistakes, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT must be a URL like "+
			"http://collector.internal:4318, without a user name or a query"))
	}
	if _, err := s.headers(); err != nil {
		mistakes = append(mistakes, err)
	}
	if !(s.Share >= 0 && s.Share <= 1) { // NaN is neither
		mistakes = append(mistakes, errors.New("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1"))
	}
	return mistakes
}

func isEndpoint(text string) bool {
	address, err := url.Parse(text)
	return err == nil && (address.Scheme == "http" || address.Scheme == "https") && address.Host != "" &&
		address.User == nil && address.RawQuery == "" && address.Fragment == ""
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// headers parses the headers as specified for OpenTelemetry exporters. It returns nil if there are none.
func (s *TraceSettings) headers() (map[string]string, error) {
	if s.Headers == "" {
		return nil, nil
	}
	headers := map[string]string{}
	for pair := range strings.SplitSeq(s.Headers.Reveal(), ",") {
		name, encoded, _ := strings.Cut(pair, "=")
		value, err := url.PathUnescape(encoded)
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if err != nil || value == "" || !headerName.MatchString(name) ||
			strings.ContainsFunc(value, unicode.IsControl) {
			return nil, errors.New(
				"OTEL_EXPORTER_OTLP_HEADERS must be name=value, the value percent-encoded, separated by commas")
		}
		headers[name] = value
	}
	return headers, nil
}

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

func (requestNames) Begins(r *http.Request) {
	trace.SpanFromContext(r.Context()).SetAttributes(
		attribute.String("almoner.request_id", web.RequestID(r.Context())),
		attribute.String("user_agent.original", "")) // replaces the library's value (T1)
}

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

func (w withoutQuery) RoundTrip(r *http.Request) (*http.Response, error) {
	address := *r.URL
	address.RawQuery, address.Fragment, address.User = "", "", nil
	trace.SpanFromContext(r.Context()).SetAttributes(attribute.String("url.full", address.String()))
	return w.next.RoundTrip(r)
}

// Postgres returns tracers that make a span for each statement with its text, which contains no values (T1).
// It returns none if tracing is off.
func (t *Tracing) Postgres() []pgx.QueryTracer {
	if t == nil {
		return nil
	}
	return []pgx.QueryTracer{otelpgx.NewTracer(
		otelpgx.WithTracerProvider(t.provider), otelpgx.WithMeterProvider(noop.NewMeterProvider()),
		otelpgx.WithDisableConnectionDetailsInAttributes())}
}

// Redis makes a span for each command with its name only (T1).
func (t *Tracing) Redis(client goredis.UniversalClient) error {
	if t == nil || client == nil {
		return nil
	}
	return redisotel.InstrumentTracing(client,
		redisotel.WithTracerProvider(t.provider), redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false))
}
