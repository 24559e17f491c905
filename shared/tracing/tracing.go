// Package tracing records OpenTelemetry traces.
//
// It sends them by OTLP over HTTP to the collector in the Settings; without a collector it does nothing.
// Invariants:
//
//   - T1 No span has a query string, a User-Agent, an untrusted X-Forwarded-For, a statement's arguments, or a Redis
//     command's key or arguments.
//   - T2 Only a trusted proxy can choose a trace's id or decide that it is recorded.
//   - T3 A trace begins with a request: background work of the process makes none.
//
// A nil *Tracing is off.
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
	headers  propagation.TraceContext // W3C trace context; baggage is not propagated
}

// Options configures Start.
type Options struct {
	Settings
	Service string        // the service name; OTEL_SERVICE_NAME overrides it
	Delay   time.Duration // maximum delay before sending; 0 means OTEL_BSP_SCHEDULE_DELAY or five seconds
}

// Start starts tracing, or returns nil if no endpoint is configured. It does not connect: an unreachable
// collector loses its traces and affects nothing else. Settings for traces only in the environment
// (OTEL_EXPORTER_OTLP_TRACES_…) override the settings, as the standard requires; the library reads them.
func Start(ctx context.Context, o Options, log *slog.Logger) (*Tracing, error) {
	ownEndpoint := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	ownHeaders := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS") != ""
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
	who, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", o.Service),
		attribute.String("service.version", version.Number)), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, errors.New("traces: OTEL_RESOURCE_ATTRIBUTES cannot be read")
	}
	var batch []sdk.BatchSpanProcessorOption
	if o.Delay > 0 {
		batch = append(batch, sdk.WithBatchTimeout(o.Delay))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces not sent", "error", err) }))
	log.Info("sending traces", "service", o.Service, "share", o.Share)
	return newTracing(sdk.WithBatcher(exporter, batch...), sdk.WithResource(who),
		sdk.WithSampler(sampler(o.Share))), nil
}

// complaints logs OpenTelemetry's messages without their values, because a header or an address may contain a
// secret.
type complaints struct{ log *slog.Logger }

// Init implements logr.LogSink.
func (complaints) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (complaints) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (complaints) Info(int, string, ...any) {}

// Error implements logr.LogSink.
func (c complaints) Error(_ error, words string, _ ...any) {
	c.log.Warn("invalid OTEL_… setting", "where", words)
}

// WithValues implements logr.LogSink.
func (c complaints) WithValues(...any) logr.LogSink { return c }

// WithName implements logr.LogSink.
func (c complaints) WithName(string) logr.LogSink { return c }

func newTracing(options ...sdk.TracerProviderOption) *Tracing {
	return &Tracing{provider: sdk.NewTracerProvider(options...)}
}

const sendWithin = 5 * time.Second

// Stop sends the remaining spans, for up to five seconds.
func (t *Tracing) Stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendWithin)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the error handler has logged it
}

// sampler records a share of the requests and follows an earlier decision (parentbased_traceidratio of the
// specification), except that only requests begin a trace (T3).
func sampler(share float64) sdk.Sampler {
	return sdk.ParentBased(requestsAlone{sdk.TraceIDRatioBased(share)})
}

type requestsAlone struct{ sdk.Sampler }

// ShouldSample implements sdk.Sampler.
func (s requestsAlone) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if p.Kind != trace.SpanKindServer {
		return sdk.NeverSample().ShouldSample(p)
	}
	return s.Sampler.ShouldSample(p)
}

// Description implements sdk.Sampler.
func (s requestsAlone) Description() string {
	return fmt.Sprintf("Requests{%s}", s.Sampler.Description())
}
