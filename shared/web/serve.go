package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Time limits of the server. A slow client is cut off; a slow answer of ours is bounded by the stores' own limits.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	drainTimeout      = 20 * time.Second
)

// A Place is where a server listens and how it leaves.
type Place struct {
	Address string
	// Notice is how long it still takes requests once it is told to end, while Leaving is true and every answer closes its
	// connection: as long as whoever sends the requests needs to send them elsewhere.
	Notice time.Duration
}

// Serve listens and serves handler until ctx ends, then gives notice and lets requests in flight finish (20 seconds at most).
// ready is called once the address is listened on.
func Serve(ctx context.Context, place Place, handler http.Handler, log *slog.Logger, ready func(net.Addr)) error {
	listener, err := net.Listen("tcp", place.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	leaving := new(atomic.Bool)
	server := &http.Server{
		Handler: closing(endAfterChunks(handler)), ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), leavingKey{}, leaving)
		},
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
	leaving.Store(true)
	select {
	case err := <-stopped:
		return fmt.Errorf("serve: %w", err)
	case <-time.After(place.Notice):
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

type leavingKey struct{}

// Leaving says whether the server that a request came to was told to end. It is not ready then, though it still answers.
func Leaving(ctx context.Context) bool {
	leaving, ok := ctx.Value(leavingKey{}).(*atomic.Bool)
	return ok && leaving.Load()
}

// closing lets no connection outlive the notice: the next request on it would meet nobody.
func closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Leaving(r.Context()) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
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
