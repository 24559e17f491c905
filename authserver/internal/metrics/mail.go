package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/shared/metrics"
)

// Mail holds the metrics of mails.
type Mail struct{ mails *prometheus.CounterVec }

// NewMail makes the metrics of mails, and registers the gauges of the queue, which waiting reads at each scrape.
func NewMail(
	registry *metrics.Registry, waiting func(ctx context.Context) (count int, oldest time.Duration, err error),
) *Mail {
	m := &Mail{mails: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "almoner_mails_total",
		Help: "Tries to send a mail by kind and outcome: sent, failed (tried again later), refused (by the mail " +
			"server), expired (not sent in time), unasked (there is no such account) or foreign (not readable with " +
			"the keys).",
	}, []string{"kind", "outcome"})}
	registry.MustRegister(m.mails, newMailQueue(waiting))
	for _, kind := range mail.Kinds() {
		for _, outcome := range []string{mail.Sent, mail.Failed} {
			m.mails.WithLabelValues(string(kind), outcome)
		}
	}
	return m
}

// Count counts one try.
func (m *Mail) Count(kind mail.Kind, outcome string) {
	m.mails.WithLabelValues(string(kind), outcome).Inc()
}

// A mailQueue collects the state of the queue.
type mailQueue struct {
	waiting func(ctx context.Context) (int, time.Duration, error)
	count   *prometheus.Desc
	oldest  *prometheus.Desc
}

func newMailQueue(waiting func(ctx context.Context) (int, time.Duration, error)) *mailQueue {
	return &mailQueue{
		waiting: waiting,
		count:   prometheus.NewDesc("almoner_mails_waiting", "Mails that are not sent yet.", nil, nil),
		oldest: prometheus.NewDesc("almoner_mails_oldest_seconds",
			"How long the oldest mail that is not sent has waited.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (q *mailQueue) Describe(out chan<- *prometheus.Desc) {
	out <- q.count
	out <- q.oldest
}

// Collect implements prometheus.Collector. A queue that cannot be read is left out of the scrape.
func (q *mailQueue) Collect(out chan<- prometheus.Metric) {
	count, oldest, err := q.waiting(context.Background())
	if err != nil {
		return
	}
	out <- prometheus.MustNewConstMetric(q.count, prometheus.GaugeValue, float64(count))
	out <- prometheus.MustNewConstMetric(q.oldest, prometheus.GaugeValue, oldest.Seconds())
}
