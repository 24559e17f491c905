// Package metrics exports metrics of the submission queue.
package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/almonerhq/almoner/shared/metrics"
)

// A Queue counts its unfinished jobs by state and returns how long the oldest job that could run has waited.
type Queue interface {
	Jobs(ctx context.Context) (byState map[string]int, oldest time.Duration, err error)
}

type queue struct {
	jobs, oldest *prometheus.Desc
	queue        Queue
	log          *slog.Logger
}

// WatchQueue registers metrics of the queue, which is queried at each scrape. All processes report the same queue.
func WatchQueue(registry *metrics.Registry, of Queue, log *slog.Logger) {
	registry.MustRegister(&queue{
		jobs: prometheus.NewDesc("almoner_queue_jobs",
			"Submissions not processed yet, by the state of their job. All processes report the same queue.",
			[]string{"state"}, nil),
		oldest: prometheus.NewDesc("almoner_queue_oldest_job_seconds",
			"How long the oldest runnable job has waited; 0 if none waits.", nil, nil),
		queue: of,
		log:   log,
	})
}

// Describe implements prometheus.Collector.
func (q *queue) Describe(to chan<- *prometheus.Desc) {
	to <- q.jobs
	to <- q.oldest
}

const queryTimeout = time.Second

// Collect implements prometheus.Collector. If the query fails, it reports nothing, since 0 would be wrong.
func (q *queue) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	byState, oldest, err := q.queue.Jobs(ctx)
	if err != nil {
		q.log.Warn("queue not measured", "cause", err)
		return
	}
	for _, state := range []string{"available", "running", "retryable", "scheduled"} {
		to <- prometheus.MustNewConstMetric(q.jobs, prometheus.GaugeValue, float64(byState[state]), state)
	}
	to <- prometheus.MustNewConstMetric(q.oldest, prometheus.GaugeValue, oldest.Seconds())
}

// Webhooks counts the deliveries of this process to webhook endpoints.
type Webhooks struct {
	deliveries *prometheus.CounterVec
	seconds    prometheus.Histogram
}

// NewWebhooks registers the metrics of webhooks. It calls count, which returns the number of endpoints by state, at
// each scrape.
func NewWebhooks(
	registry *metrics.Registry, outcomes []string, count func(context.Context) (map[string]int, error),
	log *slog.Logger,
) *Webhooks {
	w := &Webhooks{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "almoner_webhook_deliveries_total",
			Help: "Attempts to deliver to webhook endpoints, by outcome: accepted, refused (another status than " +
				"2xx), unreachable, not_public.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "almoner_webhook_delivery_seconds",
			Help:    "How long webhook endpoints took to answer.",
			Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
		}),
	}
	for _, outcome := range outcomes {
		w.deliveries.WithLabelValues(outcome)
	}
	registry.MustRegister(w.deliveries, w.seconds, &endpoints{
		states: prometheus.NewDesc("almoner_webhook_endpoints",
			"Webhook endpoints by state: enabled, failing (enabled, and the last attempt failed), disabled. All "+
				"processes report the same endpoints.", []string{"state"}, nil),
		count: count,
		log:   log,
	})
	return w
}

// Count counts one attempt.
func (w *Webhooks) Count(outcome string, took time.Duration) {
	w.deliveries.WithLabelValues(outcome).Inc()
	w.seconds.Observe(took.Seconds())
}

type endpoints struct {
	states *prometheus.Desc
	count  func(context.Context) (map[string]int, error)
	log    *slog.Logger
}

// Describe implements prometheus.Collector.
func (e *endpoints) Describe(to chan<- *prometheus.Desc) { to <- e.states }

// Collect implements prometheus.Collector. If the query fails, it reports no value, since 0 would be wrong.
func (e *endpoints) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	states, err := e.count(ctx)
	if err != nil {
		e.log.Warn("webhook endpoints not counted", "cause", err)
		return
	}
	for state, n := range states {
		to <- prometheus.MustNewConstMetric(e.states, prometheus.GaugeValue, float64(n), state)
	}
}
