package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/web"
)

// recorded returns a Tracing that stores its spans.
func recorded(share float64) (*Tracing, *tracetest.InMemoryExporter) {
	kept := tracetest.NewInMemoryExporter()
	return newTracing(sdk.WithSyncer(kept), sdk.WithSampler(sampler(share))), kept
}

const (
	theirs   = "4bf92f3577b34da6a3ce929d0e0e4736"
	asked    = "00-" + theirs + "-00f067aa0ba902b7-01"
	refused  = "00-" + theirs + "-00f067aa0ba902b7-00"
	proxy    = "192.0.2.7:1"
	stranger = "203.0.113.5:1"
)

func handler(t *Tracing, next http.HandlerFunc) http.Handler {
	proxies := web.Proxies{netip.MustParsePrefix("192.0.2.7/32")}
	return t.Server(web.Observe(next, slog.New(slog.DiscardHandler), http.NotFoundHandler(), t.Watchers()...), proxies)
}

func send(h http.Handler, from, parent string) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", "/things/7?code=hush", nil)
	request.RemoteAddr = from
	request.Header.Set("User-Agent", "hush")
	request.Header.Set("X-Forwarded-For", "hush, 198.51.100.9")
	if parent != "" {
		request.Header.Set("Traceparent", parent)
	}
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	return recorder
}

func TestT2_OnlyTrustedProxyControlsTraceAndAddress(t *testing.T) {
	for name, c := range map[string]struct {
		share        float64
		from, parent string
		spans        int
		continues    bool
		caller       string
	}{
		"a proxy":                        {1, proxy, asked, 1, true, "198.51.100.9"},
		"a proxy that wants no trace":    {1, proxy, refused, 0, false, ""},
		"a proxy decides, not our share": {0, proxy, asked, 1, true, "198.51.100.9"},
		"a stranger":                     {1, stranger, asked, 1, false, "203.0.113.5"},
		"a stranger wants none":          {1, stranger, refused, 1, false, "203.0.113.5"},
		"a stranger wants one":           {0, stranger, asked, 0, false, ""},
		"no header":                      {1, stranger, "", 1, false, "203.0.113.5"},
	} {
		tracing, kept := recorded(c.share)
		send(handler(tracing, func(http.ResponseWriter, *http.Request) {}), c.from, c.parent)
		spans := kept.GetSpans()
		if len(spans) != c.spans {
			t.Errorf("%s: %d spans", name, len(spans))
			continue
		}
		for _, span := range spans {
			if (span.SpanContext.TraceID().String() == theirs) != c.continues {
				t.Errorf("%s: trace %s", name, span.SpanContext.TraceID())
			}
			if !slices.Contains(span.Attributes, attribute.String("client.address", c.caller)) {
				t.Errorf("%s: the span does not have the caller's address %s: %v", name, c.caller, span.Attributes)
			}
		}
	}
}

func TestT1_SpanHasRouteAndIDWithoutQuery(t *testing.T) {
	tracing, kept := recorded(1)
	next := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Header.Get("Traceparent")))
	}))
	defer next.Close()
	answer := send(handler(tracing, func(w http.ResponseWriter, r *http.Request) {
		web.RecordRoute(r.Context(), "/things/{id}")
		out, err := http.NewRequestWithContext(r.Context(), "GET", next.URL+"/inner?secret=hush", nil)
		if err != nil {
			t.Error(err)
			return
		}
		response, err := tracing.Client(http.DefaultTransport).RoundTrip(out)
		if err != nil {
			t.Error(err)
			return
		}
		_ = response.Body.Close()
	}), stranger, "")
	spans := kept.GetSpans()
	if len(spans) != 2 || spans[0].Parent.SpanID() != spans[1].SpanContext.SpanID() {
		t.Fatalf("%d spans, want the client's within the server's", len(spans))
	}
	if spans[1].Name != "GET /things/{id}" {
		t.Errorf("span name %s", spans[1].Name)
	}
	said := map[attribute.Key]string{}
	for _, span := range spans {
		for _, one := range span.Attributes {
			said[one.Key] += one.Value.String()
			if strings.Contains(one.Value.String(), "hush") || strings.Contains(span.Name, "hush") {
				t.Errorf("T1: %s contains the query or a header", one.Key)
			}
		}
	}
	if said["almoner.request_id"] != answer.Header().Get(web.RequestIDHeader) || said["http.route"] != "/things/{id}" ||
		said["url.full"] != next.URL+"/inner" {
		t.Errorf("span attributes: %v", said)
	}
}

func TestT3_BackgroundWorkMakesNoTrace(t *testing.T) {
	t.Parallel()
	tracing, kept := recorded(1)
	options, err := goredis.ParseURL(testkit.NewRedis(t).URL)
	must(t, err)
	rdb := goredis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	must(t, tracing.Redis(rdb))
	ask := func(r *http.Request) { _ = rdb.Set(r.Context(), "key-hush", "value-hush", 0).Err() }
	ask(httptest.NewRequest("GET", "/", nil))
	if n := len(kept.GetSpans()); n != 0 {
		t.Errorf("%d spans without a request", n)
	}
	send(handler(tracing, func(_ http.ResponseWriter, r *http.Request) { ask(r) }), stranger, "")
	spans := kept.GetSpans()
	if len(spans) < 2 || spans[0].SpanKind != trace.SpanKindClient {
		t.Fatalf("%d spans, want the request's and the command's", len(spans))
	}
	for _, span := range spans {
		for _, one := range span.Attributes {
			if strings.Contains(one.Value.String(), "hush") {
				t.Errorf("T1: %s contains a key or a value", one.Key)
			}
		}
	}
}

func TestStart_IsOffWithoutCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	off, err := StartTracing(t.Context(), TraceSettings{}, "x", 0, slog.New(slog.DiscardHandler))
	if off != nil || err != nil {
		t.Fatal(off, err)
	}
	next := http.NotFoundHandler()
	if off.Watchers() != nil || off.Postgres() != nil || off.Redis(nil) != nil ||
		off.Client(http.DefaultTransport) != http.DefaultTransport {
		t.Error("a disabled Tracing is not a no-op")
	}
	if got := off.Server(next, nil); send(got, stranger, "").Code != http.StatusNotFound {
		t.Error("Server returned another handler")
	}
	off.Stop()
}

// An unknown method in a request names no span, because collectors count by name.
func TestServer_UnknownMethodNamesNoSpan(t *testing.T) {
	tracing, kept := recorded(1)
	request := httptest.NewRequest("MADEUP", "/things/7", nil)
	for _, next := range []http.HandlerFunc{
		http.NotFound,
		func(_ http.ResponseWriter, r *http.Request) { web.RecordRoute(r.Context(), "/things/{id}") },
	} {
		handler(tracing, next).ServeHTTP(httptest.NewRecorder(), request)
	}
	for _, span := range kept.GetSpans() {
		if strings.Contains(span.Name, "MADEUP") {
			t.Errorf("span name %s", span.Name)
		}
	}
}

// The library reads some settings itself. Mistakes in them are logged without their values: headers contain
// the collector's token.
func TestStart_LogsMistakesWithoutSecrets(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://user:hush@host:port:x")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Authorization Bearer hush, x=%zzhush")
	var said strings.Builder
	tracing, err := StartTracing(t.Context(), TraceSettings{}, "trial", 0, slog.New(slog.NewJSONHandler(&said, nil)))
	must(t, err)
	tracing.Stop()
	if words := said.String(); strings.Contains(words, "hush") || !strings.Contains(words, "parse headers") {
		t.Errorf("logged: %s", words)
	}
}

func TestSettings_CheckReportsMistakes(t *testing.T) {
	const endpoint, headers = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"
	const share = "OTEL_TRACES_SAMPLER_ARG"
	for name, values := range map[string][]string{
		endpoint: {
			"hush:4317", "grpc://hush:4317", "http://", "http://user:hush@collector:4318",
			"http://collector:4318?key=hush", "http://collector:4318#hush", "http://hush:port:x",
		},
		headers: {
			"Bearer hush", "=hush", "hush=", "x=%zzhush", "x y=hush", "x=hush%0d%0ay: z", "x=hush,",
		},
		share: {"1.1", "-0.1", "NaN", "hush"},
	} {
		for _, wrong := range values {
			_, err := envconf.Load(&TraceSettings{}, []string{name + "=" + wrong})
			if err == nil || !strings.HasPrefix(err.Error(), name) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s=%s: %v", name, wrong, err)
			}
		}
	}
	reading, _ := envconf.Load(&TraceSettings{}, []string{endpoint + "=hush", headers + "=hush", share + "=2"})
	if len(reading.Mistakes) != 3 {
		t.Errorf("not all mistakes reported: %q", reading.Mistakes)
	}
	for _, good := range []TraceSettings{
		{},
		{Endpoint: "https://collector.internal", Share: 1},
		{Endpoint: "http://[::1]:4318/otlp/", Headers: "a=b, c=d%20e%3D", Share: 0.1},
	} {
		if mistakes := good.Check(); len(mistakes) > 0 {
			t.Errorf("%+v: %v", good, mistakes)
		}
	}
	for i, name := range []string{endpoint, headers, share} {
		if v := reading.Values[i]; v.Setting != name || v.Secret != (name == headers) {
			t.Errorf("%+v", v)
		}
	}
}

// The collector receives requests with the path and headers of the settings, from whatever source they were
// read, unless the environment has settings for traces only.
func TestStart_SendsTracesAccordingToSettings(t *testing.T) {
	received := make(chan *http.Request, 8)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r }))
	defer collector.Close()
	trace := func(s TraceSettings) *http.Request {
		t.Helper()
		tracing, err := StartTracing(t.Context(), s, "trial", 0, slog.New(slog.DiscardHandler))
		must(t, err)
		send(handler(tracing, http.NotFound), stranger, "")
		tracing.Stop()
		select {
		case r := <-received:
			return r
		default:
			return nil
		}
	}
	if r := trace(TraceSettings{Endpoint: collector.URL, Headers: "X-Key=a%20key", Share: 1}); r == nil ||
		r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "a key" {
		t.Fatalf("received %+v", r)
	}
	if r := trace(TraceSettings{Endpoint: collector.URL + "/otlp/", Share: 1}); r == nil ||
		r.URL.Path != "/otlp/v1/traces" {
		t.Errorf("received %+v", r)
	}
	if r := trace(TraceSettings{Endpoint: collector.URL, Share: 0}); r != nil {
		t.Errorf("request to %s with share 0", r.URL)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/traces-alone")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "X-Key=alone")
	for _, s := range []TraceSettings{{Share: 1}, {Endpoint: "http://127.0.0.1:9", Headers: "X-Key=hush", Share: 1}} {
		if r := trace(s); r == nil || r.URL.Path != "/traces-alone" || r.Header.Get("X-Key") != "alone" {
			t.Errorf("received %+v", r)
		}
	}
}
