// Package metrics provides Prometheus metrics of a service.
//
// Metrics (client_golang) are in a registry that the caller passes, and are served on a separate address,
// never on the public one. Our names begin with almoner_. M1: each label has a small, fixed set of
// values. An id, a path, a name or a text from a caller is never a value.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Registry holds the metrics of a process.
type Registry = prometheus.Registry

// NewRegistry makes a registry with metrics of the process and of Go's runtime. It cannot fail in a running
// program.
func NewRegistry() *Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Path is the path of the metrics.
const Path = "/metrics"

const (
	answerWithin = 5 * time.Second
	askersAtOnce = 4
	headerWithin = 5 * time.Second
)

// Serve serves the metrics at address until stop is called. It returns an error if it cannot listen there. An
// empty address serves nothing.
func Serve(address string, registry *Registry, log *slog.Logger) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            complaints{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: askersAtOnce,
		Timeout:             answerWithin,
	}))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerWithin,
		ReadTimeout:       headerWithin,
		WriteTimeout:      2 * answerWithin,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics server failed", "error", err)
		}
	}()
	log.Info("serving metrics", "address", listener.Addr().String())
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// CheckAddress returns what is wrong with an address for metrics, where taken are the addresses of the
// service. It refuses the same port on another address, because a small mistake would make it public.
func CheckAddress(address string, taken ...string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return errors.New("must be an address and a port, like 127.0.0.1:9090")
	}
	for _, other := range taken {
		if _, otherPort, err := net.SplitHostPort(other); err == nil && port == otherPort && port != "0" {
			return errors.New("must have another port than the service, because metrics must not be public")
		}
	}
	return nil
}

// complaints logs errors of a scrape.
type complaints struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (c complaints) Println(words ...any) {
	c.log.WarnContext(context.Background(), "metrics request failed", "error", fmt.Sprint(words...))
}

// CountDeleted returns a function that counts deleted records by their kind.
func CountDeleted(registry *Registry) func(kind string, deleted int64) {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "almoner_retention_deleted_total",
		Help: "Records that were deleted because they were no longer needed.",
	}, []string{"kind"})
	registry.MustRegister(total)
	return func(kind string, deleted int64) { total.WithLabelValues(kind).Add(float64(deleted)) }
}
