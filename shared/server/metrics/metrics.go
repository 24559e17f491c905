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
	"strconv"
	"time"

	"github.com/IBM/pgxpoolprometheus"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/extra/redisprometheus/v9"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/net/web"
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

// HTTP counts requests by the pattern of their route. It implements web.Watcher.
type HTTP struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

// NewHTTP makes the metrics of HTTP requests.
func NewHTTP(registry *Registry) *HTTP {
	h := &HTTP{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "almoner_http_requests_total",
			Help: "Requests by method, route and status class; none means that the connection was closed.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "almoner_http_request_duration_seconds", Help: "Request duration by route.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "almoner_http_requests_in_flight", Help: "Requests in progress.",
		}),
	}
	registry.MustRegister(h.requests, h.duration, h.inFlight)
	return h
}

// noRoute is the route of a request without a matching route.
const noRoute = "none"

// Begins implements web.Watcher.
func (h *HTTP) Begins(*http.Request) { h.inFlight.Inc() }

// Ends implements web.Watcher.
func (h *HTTP) Ends(r *http.Request, outcome web.Outcome) {
	h.inFlight.Dec()
	route := outcome.Route
	if route == "" {
		route = noRoute
	}
	h.requests.WithLabelValues(web.Method(r.Method), route, class(outcome.Status)).Inc()
	h.duration.WithLabelValues(route).Observe(outcome.Took.Seconds())
}

func class(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}

// WatchPostgres registers the metrics pgxpool_… of a pool. Their label pool is its name.
func WatchPostgres(registry *Registry, name string, stat func() *pgxpool.Stat) {
	registry.MustRegister(pgxpoolprometheus.NewCollector(postgresPool(stat), map[string]string{"pool": name}))
}

// WatchRedis registers the metrics redis_pool_….
func WatchRedis(registry *Registry, stats func() *goredis.PoolStats) {
	registry.MustRegister(redisprometheus.NewCollector("redis", "", redisPool(stats)))
}

type postgresPool func() *pgxpool.Stat

func (p postgresPool) Stat() *pgxpool.Stat { return p() }

type redisPool func() *goredis.PoolStats

func (r redisPool) PoolStats() *goredis.PoolStats { return r() }

// gaugesTimeout limits the query for the values of gauges.
const gaugesTimeout = time.Second

// A SetGauge sets a gauge with the values of its labels.
type SetGauge func(gauge *prometheus.Desc, value float64, labels ...string)

// WatchGauges registers gauges whose values are queried at each scrape. read sets them all, or none if they cannot be
// read, since 0 would be wrong.
func WatchGauges(registry *Registry, read func(context.Context, SetGauge), gauges ...*prometheus.Desc) {
	registry.MustRegister(queriedGauges{read, gauges})
}

type queriedGauges struct {
	read   func(context.Context, SetGauge)
	gauges []*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (q queriedGauges) Describe(out chan<- *prometheus.Desc) {
	for _, gauge := range q.gauges {
		out <- gauge
	}
}

// Collect implements prometheus.Collector.
func (q queriedGauges) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugesTimeout)
	defer cancel()
	q.read(ctx, func(gauge *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(gauge, prometheus.GaugeValue, value, labels...)
	})
}
