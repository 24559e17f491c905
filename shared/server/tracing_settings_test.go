package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/net/web"
)

func TestSettings_CheckReportsMistakes(t *testing.T) {
	const endpoint, headers = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"
	const share = "OTEL_TRACES_SAMPLER_ARG"
	for _, wrong := range [][2]string{
		{endpoint, "hush:4317"},
		{endpoint, "grpc://hush:4317"},
		{endpoint, "http://"},
		{endpoint, "http://user:hush@collector:4318"},
		{endpoint, "http://collector:4318?key=hush"},
		{endpoint, "http://collector:4318#hush"},
		{endpoint, "http://hush:port:x"},
		{headers, "Bearer hush"},
		{headers, "=hush"},
		{headers, "hush="},
		{headers, "x=%zzhush"},
		{headers, "x y=hush"},
		{headers, "x=hush%0d%0ay: z"},
		{headers, "x=hush,"},
		{share, "1.1"},
		{share, "-0.1"},
		{share, "NaN"},
		{share, "hush"},
	} {
		_, err := envconf.Load(&TraceSettings{}, []string{wrong[0] + "=" + wrong[1]})
		if err == nil || !strings.HasPrefix(err.Error(), wrong[0]) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s=%s: %v", wrong[0], wrong[1], err)
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
		send(
			tracing.Server(
				web.Observe(http.NotFoundHandler(), slog.New(slog.DiscardHandler), http.NotFoundHandler(),
					tracing.Watchers()...),
				nil,
			),
			stranger,
			"",
		)
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
