// Package metrics answers: how often, how long and how much, for whoever watches a service?
//
// Prometheus metrics (client_golang) in a registry that is handed in, served on an address of their own and never on
// the public one. Their names begin with almoner_. M1: a label's values are few and known beforehand; an id, a path, a
// name or a text that a caller sent is never one of them.
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

// A Registry is where a process keeps its metrics.
type Registry = prometheus.Registry

// NewRegistry makes a registry that tells of the process and of Go's runtime. It fails for no reason that a running
// program could have.
func NewRegistry() *Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Path is where the metrics are.
const Path = "/metrics"

const (
	answerWithin = 5 * time.Second
	askersAtOnce = 4
	headerWithin = 5 * time.Second
)

// Serve serves the metrics at address until stop is called. It fails at once where it cannot listen there. An empty
// address serves nothing.
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
		ErrorLog: complaints{
			log,
		},
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
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	log.Info("metrics are served", "address", listener.Addr().String())
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// CheckAddress says what is wrong with an address to serve metrics at, where taken are those of the service. Another
// address of the machine on the same port would be one slip from being public.
func CheckAddress(address string, taken ...string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return errors.New("is an address and a port, like 127.0.0.1:9090")
	}
	for _, other := range taken {
		if _, otherPort, err := net.SplitHostPort(other); err == nil && port == otherPort && port != "0" {
			return errors.New(
				"has a port that is taken: metrics have one of their own, which the public does not reach",
			)
		}
	}
	return nil
}

// complaints are what a scrape could not gather.
type complaints struct{ log *slog.Logger }

// Println is promhttp.Logger's.
func (c complaints) Println(words ...any) {
	c.log.WarnContext(context.Background(), "metrics", "error", fmt.Sprint(words...))
}
