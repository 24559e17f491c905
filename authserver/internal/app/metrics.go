package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/server"
)

// oauthMetrics count the outcomes of token requests, rotations, replays, revocations and refusals of this process since
// it started. No label is an id or a name (M1 of shared/server).
type oauthMetrics struct {
	requests    *prometheus.CounterVec
	rotations   prometheus.Counter
	replays     prometheus.Counter
	revocations *prometheus.CounterVec
	throttled   *prometheus.CounterVec

	ended *lru.Cache[uuid.UUID, struct{}] // the grants that were counted last
}

// newOAuthMetrics makes the metrics. Every important label value exists from the start, so that the first event is
// visible as an increase.
func newOAuthMetrics(registry *server.Registry) *oauthMetrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		all := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "almoner_" + name, Help: help}, labels)
		registry.MustRegister(all)
		return all
	}
	ended, _ := lru.New[uuid.UUID, struct{}](maxRemembered) // fails only if the size is not positive
	m := &oauthMetrics{
		ended: ended,
		requests: counters("token_requests_total", "Well-formed token requests by grant type and outcome: ok, an "+
			"error code of RFC 6749, unavailable or error.", "grant_type", "outcome"),
		rotations: counters("grant_rotations_total", "Refresh tokens replaced by the next.").WithLabelValues(),
		replays: counters("grant_replays_total",
			"Grants ended because a superseded refresh token was presented.").WithLabelValues(),
		revocations: counters("grant_revocations_total", "Grants ended before they expired, by reason. A grant that "+
			"several processes end at the same time is counted by each of them.", "reason"),
		throttled: counters("refusals_throttled_total",
			"Refusals answered with 429, counted per client or per grant.", "counted"),
	}
	outcomes := []string{
		"ok", "unavailable", "error", "invalid_request", "invalid_client", "invalid_grant", "invalid_target",
	}
	for _, grantType := range engine.GrantTypes() {
		for _, outcome := range outcomes {
			m.requests.WithLabelValues(grantType, outcome)
		}
	}
	for _, reason := range grant.Reasons() {
		m.revocations.WithLabelValues(string(reason))
	}
	for _, counted := range []string{ratelimit.OfClient, ratelimit.OfGrant} {
		m.throttled.WithLabelValues(counted)
	}
	return m
}

// maxRemembered is the number of ended grants that are remembered, so that two requests that end one grant at once
// count as one.
const maxRemembered = 1024

// countRequest counts a token request. It observes the engine.
func (m *oauthMetrics) countRequest(_ context.Context, result engine.Outcome) {
	kind := result.Request.GrantType
	if !slices.Contains(engine.GrantTypes(), kind) {
		kind = "other"
	}
	m.requests.WithLabelValues(kind, outcome(result.Err)).Inc()
	if result.Err == nil && kind == engine.RefreshToken {
		m.rotations.Inc()
	}
}

func outcome(err error) string {
	refused, ok := errors.AsType[*engine.TokenError](err)
	switch {
	case err == nil:
		return "ok"
	case ok:
		return refused.Code
	case errors.Is(err, store.ErrUnavailable):
		return "unavailable"
	}
	return "error"
}

// countRevocation counts a grant that ends before its time. It observes the grant service.
func (m *oauthMetrics) countRevocation(id uuid.UUID, reason grant.Reason) {
	if known, _ := m.ended.ContainsOrAdd(id, struct{}{}); known {
		return
	}
	m.revocations.WithLabelValues(string(reason)).Inc()
	if reason == grant.Replayed {
		m.replays.Inc()
	}
}

// countThrottled counts a refusal that is answered with 429. It observes the limiter.
func (m *oauthMetrics) countThrottled(counted string) { m.throttled.WithLabelValues(counted).Inc() }

// countMails makes and registers the metrics of mails, and the gauges of the queue, which waiting reads at each scrape.
// It returns the function that counts a try.
func countMails(
	registry *server.Registry, waiting func(ctx context.Context) (count int, oldest time.Duration, err error),
) func(kind mail.Kind, outcome string) {
	mails := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "almoner_mails_total",
		Help: "Tries to send a mail by kind and outcome: sent, failed (tried again later), refused (by the mail " +
			"server), expired (not sent in time), unasked (there is no such account) or foreign (not readable with " +
			"the keys).",
	}, []string{"kind", "outcome"})
	registry.MustRegister(mails)
	count := prometheus.NewDesc("almoner_mails_waiting", "Mails that are not sent yet.", nil, nil)
	oldest := prometheus.NewDesc("almoner_mails_oldest_seconds",
		"How long the oldest mail that is not sent has waited.", nil, nil)
	server.WatchGauges(registry, func(ctx context.Context, set server.SetGauge) {
		if waits, age, err := waiting(ctx); err == nil {
			set(count, float64(waits))
			set(oldest, age.Seconds())
		}
	}, count, oldest)
	for _, kind := range mail.Kinds() {
		for _, outcome := range []string{mail.Sent, mail.Failed} {
			mails.WithLabelValues(string(kind), outcome)
		}
	}
	return func(kind mail.Kind, outcome string) { mails.WithLabelValues(string(kind), outcome).Inc() }
}
