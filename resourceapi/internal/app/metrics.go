package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/almonerhq/almoner/shared/server"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// watchQueue registers metrics of the queue of submissions, which is queried at each scrape. All processes report the
// same queue.
func watchQueue(registry *server.Registry, store *postgres.Store, log *slog.Logger) {
	jobs := prometheus.NewDesc("almoner_queue_jobs",
		"Submissions not processed yet, by the state of their job. All processes report the same queue.",
		[]string{"state"}, nil)
	oldest := prometheus.NewDesc("almoner_queue_oldest_job_seconds",
		"How long the oldest runnable job has waited; 0 if none waits.", nil, nil)
	server.WatchGauges(registry, func(ctx context.Context, set server.SetGauge) {
		byState, age, err := store.Jobs(ctx)
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

// countDeliveries registers metrics of webhooks, of which the number of endpoints by state is read at each scrape. It
// returns a function that counts one attempt of this process.
func countDeliveries(
	registry *server.Registry, store *postgres.Webhooks, log *slog.Logger,
) func(delivery.Outcome, time.Duration) {
	deliveries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "almoner_webhook_deliveries_total",
		Help: "Attempts to deliver to webhook endpoints, by outcome: accepted, refused (another status than 2xx), " +
			"unreachable, not_public.",
	}, []string{"outcome"})
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "almoner_webhook_delivery_seconds",
		Help:    "How long webhook endpoints took to answer.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
	})
	for _, outcome := range delivery.Outcomes() {
		deliveries.WithLabelValues(string(outcome))
	}
	registry.MustRegister(deliveries, seconds)
	endpoints := prometheus.NewDesc("almoner_webhook_endpoints",
		"Webhook endpoints by state: enabled, failing (enabled, and the last attempt failed), disabled. All "+
			"processes report the same endpoints.", []string{"state"}, nil)
	server.WatchGauges(registry, func(ctx context.Context, set server.SetGauge) {
		states, err := store.WebhookStates(ctx)
		if err != nil {
			log.Warn("webhook endpoints not counted", "cause", err)
			return
		}
		for state, n := range states {
			set(endpoints, float64(n), state)
		}
	}, endpoints)
	return func(outcome delivery.Outcome, took time.Duration) {
		deliveries.WithLabelValues(string(outcome)).Inc()
		seconds.Observe(took.Seconds())
	}
}
