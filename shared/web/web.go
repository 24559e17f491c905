// Package web answers: what does every HTTP server of ours do, whatever it serves?
//
// It knows no route. Request ids, the access log, the last resort for a panic, methods, JSON, addresses behind
// proxies, and a server with time limits that drains before it stops.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// JSON answers with value as JSON. Answers are about one caller at one moment, so nobody may keep them.
func JSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // a caller who has left is no error of ours
}

// Methods serves each method by its handler (GET serves HEAD too) and leaves every other to refuse, with Allow set
// (RFC 9110, section 15.5.6).
func Methods(handlers map[string]http.Handler, refuse http.Handler) http.Handler {
	var allowed []string
	for method := range handlers {
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		handler, ok := handlers[method]
		if !ok {
			w.Header().Set("Allow", allow)
			handler = refuse
		}
		handler.ServeHTTP(w, r)
	})
}

// endAfterChunks closes the connection after a request whose body came in chunks. Where a Content-Length stood beside them,
// net/http has dropped it, and nobody can tell any more; a reader on the way that went by it took what follows for another
// request, or for none (RFC 9112, section 6.1: the server "MUST close the connection after responding").
func endAfterChunks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Time limits of the server. A slow client is cut off; a slow answer of ours is bounded by the stores' own limits.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	drainTimeout      = 20 * time.Second
)

// Serve listens on address and serves handler until ctx ends, then lets requests in flight finish (20 seconds at most).
// ready is called once the address is listened on.
func Serve(ctx context.Context, address string, handler http.Handler, log *slog.Logger, ready func(net.Addr)) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{
		Handler: endAfterChunks(handler), ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	if ready != nil {
		ready(listener.Addr())
	}
	select {
	case err := <-stopped:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		return fmt.Errorf("requests in flight did not finish: %w", err)
	}
	if err := <-stopped; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
