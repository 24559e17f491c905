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
