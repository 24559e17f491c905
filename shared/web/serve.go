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

// A process that starts listens once it is ready: a gateway that asks nobody whether a process is ready (nginx) sends
// requests as soon as it can connect. After readyTimeout it listens all the same, and says itself what is wrong.
const (
	readyTimeout = 3 * time.Second
	readyEvery   = 50 * time.Millisecond
)

// A Server is where a server listens and how it leaves.
type Server struct {
	Address string
	// Notice is how long it still takes requests once it is told to end, while Leaving is true and every answer closes
	// its connection: as long as whoever sends the requests needs to send them elsewhere.
	Notice time.Duration
	// Ready says whether requests can be served. Serve asks it before it listens; nil: they can.
	Ready func(context.Context) error
}

// Serve listens and serves handler until ctx ends, then gives notice and lets requests in flight finish (20 seconds at
// most). ready is called once the address is listened on.
func Serve(ctx context.Context, place Server, handler http.Handler, log *slog.Logger, ready func(net.Addr)) error {
	place.waitReady(ctx, log)
	listener, err := listen(ctx, place.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	leaving := new(atomic.Bool)
	server := &http.Server{
		Handler: closing(
			endAfterChunks(pace{paceChunk, paceTime, writeTimeout}.keep(handler)),
		),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), leavingKey{}, leaving)
		},
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(smallBuffers{listener}) }()
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
	if place.Notice > 0 {
		if err := listener.end(); err != nil {
			return fmt.Errorf("end listening: %w", err)
		}
		if err := <-stopped; !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		close(stopped)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		return fmt.Errorf("requests in flight did not finish: %w", err)
	}
	if err, more := <-stopped; more && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// waitReady returns once the process is ready, or has had readyTimeout to become so, or ctx has ended. A question that
// hangs keeps nothing from listening.
func (p Server) waitReady(ctx context.Context, log *slog.Logger) {
	if p.Ready == nil {
		return
	}
	waiting, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var cause error
	for waiting.Err() == nil {
		answer := make(chan error, 1)
		go func() { answer <- p.Ready(waiting) }()
		select {
		case cause = <-answer:
			if cause == nil {
				return
			}
		case <-waiting.Done():
		}
		select {
		case <-time.After(readyEvery):
		case <-waiting.Done():
		}
	}
	if ctx.Err() == nil {
		log.Warn("listening although not ready", "address", p.Address, "cause", cause)
	}
}

type leavingKey struct{}

// Leaving says whether the server that a request came to was told to end. It is not ready then, though it still
// answers.
func Leaving(ctx context.Context) bool {
	leaving := leavingOf(ctx)
	return leaving != nil && leaving.Load()
}

func leavingOf(ctx context.Context) *atomic.Bool {
	leaving, _ := ctx.Value(leavingKey{}).(*atomic.Bool)
	return leaving
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

// endAfterChunks closes the connection after a request whose body came in chunks. Where a Content-Length stood beside
// them, net/http has dropped it, and nobody can tell any more; a reader on the way that went by it took what follows
// for another request, or for none (RFC 9112, section 6.1: the server "MUST close the connection after responding").
func endAfterChunks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
