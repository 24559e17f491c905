package metrics

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/almonerhq/almoner/shared/web"
)

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
