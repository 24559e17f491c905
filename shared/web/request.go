package web

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// RequestIDHeader carries the id of a request to the caller, and from the gateway to the services.
const RequestIDHeader = "X-Request-Id"

// Observe gives each request an id, logs its outcome, and responds to a panic with lastResort. It does not
// log query strings and headers, because they may contain codes and tokens. It uses the id that the caller
// sent only if that is a UUID. The logger must come from NewLogger, which adds the ids. Watchers observe each
// request.
func Observe(next http.Handler, log *slog.Logger, lastResort http.Handler, watchers ...Watcher) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(RequestIDHeader)
		if _, err := uuid.Parse(id); err != nil || len(id) != 36 {
			id = uuid.NewString()
		}
		w.Header().Set(RequestIDHeader, id)
		known := &request{id: id}
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, known))
		for _, watcher := range watchers {
			watcher.Begins(r)
		}
		recorder := &statusRecorder{ResponseWriter: w, leaving: leavingOf(r.Context())}
		began := time.Now()
		defer func() {
			took := time.Since(began)
			defer func() {
				for _, watcher := range watchers {
					watcher.Ends(r, Outcome{Route: known.route, Status: recorder.status, Took: took})
				}
			}()
			if cause := recover(); cause != nil {
				if cause == http.ErrAbortHandler {
					panic(cause)
				}
				log.ErrorContext(r.Context(), "panic", "path", r.URL.Path, "cause", cause,
					"stack", string(debug.Stack()))
				if recorder.status == 0 {
					lastResort.ServeHTTP(recorder, r)
				}
			}
			level := slog.LevelInfo
			if recorder.status >= 500 {
				level = slog.LevelError
			}
			log.LogAttrs(r.Context(), level, "request", append([]slog.Attr{
				slog.String("method", r.Method),
				slog.String("path", r.URL.Path),
				slog.Int("status", recorder.status),
				slog.Int64("bytes", recorder.bytes),
				slog.Int64("ms", took.Milliseconds()),
			}, known.about()...)...)
		}()
		next.ServeHTTP(recorder, r)
		if recorder.status == 0 {
			recorder.begin(http.StatusOK) // the default of net/http for a handler that writes nothing
		}
	})
}

// A Watcher is called when a request begins and when it ends, whatever the outcome.
type Watcher interface {
	Begins(r *http.Request)
	Ends(r *http.Request, outcome Outcome)
}

// An Outcome is the outcome of a request.
type Outcome struct {
	Route  string // the pattern of the router; "" if none matched
	Status int    // 0 if the connection was cut without a response
	Took   time.Duration
}

type statusRecorder struct {
	http.ResponseWriter
	leaving *atomic.Bool
	status  int
	bytes   int64
}

// begin records the status. If the server began to shut down during the request, the response closes its
// connection.
func (s *statusRecorder) begin(status int) {
	if s.status != 0 {
		return
	}
	s.status = status
	if s.leaving != nil && s.leaving.Load() {
		s.Header().Set("Connection", "close")
	}
}

func (s *statusRecorder) WriteHeader(status int) {
	s.begin(status)
	s.ResponseWriter.WriteHeader(status)
}

func (s *statusRecorder) Write(p []byte) (int, error) {
	s.begin(http.StatusOK)
	n, err := s.ResponseWriter.Write(p)
	s.bytes += int64(n)
	return n, err
}

// Unwrap is used by http.ResponseController.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Method returns the method of a request if it is a known one, or "other", so that callers cannot invent
// labels or names.
func Method(name string) string {
	switch name {
	case http.MethodGet,
		http.MethodHead,
		http.MethodPost,
		http.MethodPatch,
		http.MethodDelete,
		http.MethodOptions,
		http.MethodPut:
		return name
	}
	return "other"
}
