package web

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
)

// lines parses a log with one JSON object per line.
func lines(t *testing.T, log string) (all []map[string]any) {
	t.Helper()
	for text := range strings.Lines(log) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("not JSON: %s", text)
		}
		if strings.Count(text, `"grant_id"`) > 1 || strings.Count(text, `"request_id"`) > 1 {
			t.Errorf("duplicate id: %s", text)
		}
		all = append(all, line)
	}
	return all
}

func TestNewLogger_LinesHaveRequestIDs(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo)
	grant, other := uuid.New(), uuid.New()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{3}})
	handler := Observe(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		log.WarnContext(r.Context(), "before")
		RecordGrant(r.Context(), uuid.Nil) // an invalid token has no grant
		RecordGrant(r.Context(), grant)
		log.With("part", 1).WarnContext(context.WithoutCancel(r.Context()), "after")
		log.WarnContext(r.Context(), "of another", "grant_id", other)
	}), log, status(500))
	request := httptest.NewRequest("GET", "/", nil)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request.WithContext(trace.ContextWithSpanContext(request.Context(), span)))
	log.Warn("of no request")

	id := recorder.Header().Get(RequestIDHeader)
	all := lines(t, out.String())
	for i, want := range []struct{ message, grant any }{
		{"before", nil},
		{"after", grant.String()},
		{"of another", other.String()},
		{"request", grant.String()},
	} {
		line := all[i]
		if line["msg"] != want.message || line["grant_id"] != want.grant || line["request_id"] != id ||
			line["trace_id"] != span.TraceID().String() {
			t.Errorf("line %d: %v", i, line)
		}
	}
	if last := all[4]; last["request_id"] != nil || last["grant_id"] != nil || last["trace_id"] != nil {
		t.Errorf("line outside a request has ids: %v", last)
	}
}

func BenchmarkObserve(b *testing.B) {
	handler := Observe(status(200), NewLogger(discard{}, slog.LevelInfo), status(500))
	request := httptest.NewRequest("GET", "/v1/programmes/programmes", nil)
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(httptest.NewRecorder(), request)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// F18: the access log names the credential and the address of a request, and no secret.
func TestObserve_AccessLogNamesCaller(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo)
	c := Caller{Credential: uuid.New(), Workspace: uuid.New(), User: uuid.New(), Client: uuid.New()}
	proxies, err := ParseProxies("192.0.2.1")
	must(t, err)
	handler := Observe(RecordAddress(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		RecordCaller(r.Context(), Caller{User: uuid.New(), Client: c.Client})
		RecordCaller(r.Context(), Caller{Credential: c.Credential, Workspace: c.Workspace, User: c.User})
	}), proxies), log, status(500))
	request := httptest.NewRequest("GET", "/?token=secret", nil)
	request.Header.Set("X-Forwarded-For", "198.51.100.7")
	request.Header.Set("Authorization", "Bearer secret")
	handler.ServeHTTP(httptest.NewRecorder(), request)
	Observe(status(200), log, status(500)).ServeHTTP(httptest.NewRecorder(), request)
	all := lines(t, out.String())
	for name, want := range map[string]any{
		"credential_id":  c.Credential.String(),
		"workspace_id":   c.Workspace.String(),
		"user_id":        c.User.String(),
		"client_id":      c.Client.String(),
		"remote_address": "198.51.100.7",
	} {
		if all[0][name] != want {
			t.Errorf("%s is %v, want %v", name, all[0][name], want)
		}
		if _, named := all[1][name]; named {
			t.Errorf("%s is logged although it is unknown", name)
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("the log contains a secret")
	}
}
