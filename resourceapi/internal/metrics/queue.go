// Package metrics answers: is the queue of submissions worked off, in numbers?
package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/almonerhq/almoner/shared/metrics"
)

// A Queue knows its jobs that have no end yet: how many there are by state, and how long the oldest one that could run
// has waited.
type Queue interface {
	Jobs(ctx context.Context) (byState map[string]int, oldest time.Duration, err error)
}

type queue struct {
	jobs, oldest *prometheus.Desc
	queue        Queue
	log          *slog.Logger
}

// WatchQueue tells of the queue, asked at each scrape. All processes tell of the same one.
func WatchQueue(registry *metrics.Registry, of Queue, log *slog.Logger) {
	registry.MustRegister(&queue{
		jobs: prometheus.NewDesc(
			"almoner_queue_jobs",
			"Submissions that are not processed yet, by the state of their job. Every process tells of the same queue.",
			[]string{"state"},
			nil,
		),
		oldest: prometheus.NewDesc(
			"almoner_queue_oldest_job_seconds",
			"How long the oldest job that could run has waited; 0 where none waits.",
			nil,
			nil,
		),
		queue: of,
		log:   log,
	})
}

// Describe is prometheus.Collector's.
func (q *queue) Describe(to chan<- *prometheus.Desc) {
	to <- q.jobs
	to <- q.oldest
}

const patience = time.Second

// Collect is prometheus.Collector's. Where the queue does not answer, it says nothing of it: 0 would be a lie.
func (q *queue) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	byState, oldest, err := q.queue.Jobs(ctx)
	if err != nil {
		q.log.Warn("the queue could not be measured", "cause", err)
		return
	}
	for _, state := range []string{"available", "running", "retryable", "scheduled"} {
		to <- prometheus.MustNewConstMetric(q.jobs, prometheus.GaugeValue, float64(byState[state]), state)
	}
	to <- prometheus.MustNewConstMetric(q.oldest, prometheus.GaugeValue, oldest.Seconds())
}
