// Package tracing answers: which way did one request go, and how long did each step take?
//
// OpenTelemetry traces, sent by OTLP over HTTP to the collector that the Settings name; without one there are none, and
// nothing is done for them. Invariants:
//
//   - T1 No span has a query string, a User-Agent, an X-Forwarded-For of a stranger, a statement's arguments, or a Redis command's key or arguments.
//   - T2 Who is no trusted proxy cannot choose a trace's id, nor that it is recorded.
//   - T3 A trace begins with a request: what the process does by itself makes none.
//
// A nil *Tracing is one that is off.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/almonerhq/almoner/shared/version"
)

// Tracing makes spans. It is safe for concurrent use.
type Tracing struct {
	provider *sdk.TracerProvider
	headers  propagation.TraceContext // W3C's; baggage is nobody's business
}

// Options say where traces go.
type Options struct {
	Settings
	Service string        // who we are; OTEL_SERVICE_NAME wins
	Delay   time.Duration // the longest that a span waits to be sent; 0: OTEL_BSP_SCHEDULE_DELAY, or five seconds
}

// Start returns nil where nobody wants traces. It connects to nobody: a collector that is away costs its traces and
// nothing else. What the environment says of traces alone (OTEL_EXPORTER_OTLP_TRACES_…) wins over the settings, by the
// standard, and is read by the library.
func Start(ctx context.Context, o Options, log *slog.Logger) (*Tracing, error) {
	ownEndpoint, ownHeaders := os.Getenv(
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
	) != "", os.Getenv(
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS",
	) != ""
	if o.Endpoint == "" && !ownEndpoint {
		return nil, nil
	}
	headers, err := o.headers()
	if err != nil {
		return nil, err
	}
	otel.SetLogger(logr.New(complaints{log})) // before anything reads a setting
	var where []otlptracehttp.Option
	if !ownEndpoint {
		where = append(where, otlptracehttp.WithEndpointURL(strings.TrimSuffix(o.Endpoint, "/")+"/v1/traces"))
	}
	if !ownHeaders && headers != nil {
		where = append(where, otlptracehttp.WithHeaders(headers))
	}
	exporter, err := otlptracehttp.New(ctx, where...)
	if err != nil {
		return nil, errors.New("traces: the OTEL_EXPORTER_OTLP_… settings cannot be used")
	}
	who, err := resource.New(ctx, resource.WithAttributes(
		attribute.String(
			"service.name",
			o.Service,
		),
		attribute.String("service.version", version.Number),
	), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, errors.New("traces: OTEL_RESOURCE_ATTRIBUTES cannot be read")
	}
	var batch []sdk.BatchSpanProcessorOption
	if o.Delay > 0 {
		batch = append(batch, sdk.WithBatchTimeout(o.Delay))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces could not be sent", "error", err) }))
	log.Info("traces are sent", "service", o.Service, "share", o.Share)
	return newTracing(
		sdk.WithBatcher(exporter, batch...),
		sdk.WithResource(who),
		sdk.WithSampler(sampler(o.Share)),
	), nil
}

// complaints passes on what OpenTelemetry complains of, and not what it quotes: a header or an address may hold a
// secret.
type complaints struct{ log *slog.Logger }

// Init is logr.LogSink's.
func (complaints) Init(logr.RuntimeInfo) {}

// Enabled is logr.LogSink's.
func (complaints) Enabled(int) bool { return false }

// Info is logr.LogSink's.
func (complaints) Info(int, string, ...any) {}

// Error is logr.LogSink's.
func (c complaints) Error(_ error, words string, _ ...any) {
	c.log.Warn("traces: a setting of OTEL_… cannot be used as it is", "where", words)
}

// WithValues is logr.LogSink's.
func (c complaints) WithValues(...any) logr.LogSink { return c }

// WithName is logr.LogSink's.
func (c complaints) WithName(string) logr.LogSink { return c }

func newTracing(options ...sdk.TracerProviderOption) *Tracing {
	return &Tracing{provider: sdk.NewTracerProvider(options...)}
}

const sendWithin = 5 * time.Second

// Stop sends what is not sent yet, for five seconds at most.
func (t *Tracing) Stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendWithin)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the error handler was told
}

// sampler takes a share of the requests, and follows whoever has decided before (parentbased_traceidratio of the
// specification) but that nothing else begins a trace (T3).
func sampler(share float64) sdk.Sampler {
	return sdk.ParentBased(requestsAlone{sdk.TraceIDRatioBased(share)})
}

type requestsAlone struct{ sdk.Sampler }

// ShouldSample is sdk.Sampler's.
func (s requestsAlone) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if p.Kind != trace.SpanKindServer {
		return sdk.NeverSample().ShouldSample(p)
	}
	return s.Sampler.ShouldSample(p)
}

// Description is sdk.Sampler's.
func (s requestsAlone) Description() string {
	return fmt.Sprintf("Requests{%s}", s.Sampler.Description())
}
