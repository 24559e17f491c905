// Package metrics exports metrics of the submission queue.
package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/almonerhq/almoner/shared/server/metrics"
)

// A Queue counts its unfinished jobs by state and returns how long the oldest job that could run has waited.
type Queue interface {
	Jobs(ctx context.Context) (byState map[string]int, oldest time.Duration, err error)
}

// WatchQueue registers metrics of the queue, which is queried at each scrape. All processes report the same queue.
func WatchQueue(registry *metrics.Registry, queue Queue, log *slog.Logger) {
	jobs := prometheus.NewDesc("almoner_queue_jobs",
		"Submissions not processed yet, by the state of their job. All processes report the same queue.",
		[]string{"state"}, nil)
	oldest := prometheus.NewDesc("almoner_queue_oldest_job_seconds",
		"How long the oldest runnable job has waited; 0 if none waits.", nil, nil)
	metrics.WatchGauges(registry, func(ctx context.Context, set metrics.SetGauge) {
		byState, age, err := queue.Jobs(ctx)
		if err != nil {
			log.Warn("queue not measured", "cause", err)
			return
		}
		for _, state := range []string{"available", "running", "retryable", "scheduled"} {
			set(jobs, float64(byState[state]), state)
		}
		set(oldest, age.Seconds())
	}, jobs, oldest)
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
	registry.MustRegister(w.deliveries, w.seconds)
	endpoints := prometheus.NewDesc("almoner_webhook_endpoints",
		"Webhook endpoints by state: enabled, failing (enabled, and the last attempt failed), disabled. All "+
			"processes report the same endpoints.", []string{"state"}, nil)
	metrics.WatchGauges(registry, func(ctx context.Context, set metrics.SetGauge) {
		states, err := count(ctx)
		if err != nil {
			log.Warn("webhook endpoints not counted", "cause", err)
			return
		}
		for state, n := range states {
			set(endpoints, float64(n), state)
		}
	}, endpoints)
	return w
}

// Count counts one attempt.
func (w *Webhooks) Count(outcome string, took time.Duration) {
	w.deliveries.WithLabelValues(outcome).Inc()
	w.seconds.Observe(took.Seconds())
}
