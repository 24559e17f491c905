// Package metrics counts what happens to tokens and grants.
//
// Its decorators wrap the parts that decide, pass every call on and count the outcomes (M1 of package metrics
// holds: no id, no name). The counts are those of this process since it started.
package metrics

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
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/server/metrics"
)

// OAuth holds the metrics of tokens and grants.
type OAuth struct {
	requests    *prometheus.CounterVec
	rotations   prometheus.Counter
	replays     prometheus.Counter
	revocations *prometheus.CounterVec
	throttled   *prometheus.CounterVec
}

// New makes the metrics. Every important label value exists from the start, so that the first event is
// visible as an increase.
func New(registry *metrics.Registry) *OAuth {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "almoner_" + name, Help: help}
	}
	m := &OAuth{
		requests: prometheus.NewCounterVec(counter("token_requests_total",
			"Well-formed token requests by grant type and outcome: ok, an error code of RFC 6749, unavailable or "+
				"error."), []string{"grant_type", "outcome"}),
		rotations: prometheus.NewCounter(counter("grant_rotations_total", "Refresh tokens replaced by the next.")),
		replays: prometheus.NewCounter(
			counter("grant_replays_total", "Grants ended because a superseded refresh token was presented.")),
		revocations: prometheus.NewCounterVec(counter("grant_revocations_total",
			"Grants ended before they expired, by reason. A grant that several processes end at the same time is "+
				"counted by each of them."), []string{"reason"}),
		throttled: prometheus.NewCounterVec(counter("refusals_throttled_total",
			"Refusals answered with 429, counted per client or per grant."), []string{"counted"}),
	}
	registry.MustRegister(m.requests, m.rotations, m.replays, m.revocations, m.throttled)
	for _, grantType := range engine.GrantTypes() {
		for _, outcome := range []string{
			ok,
			unavailable,
			failed,
			"invalid_request",
			"invalid_client",
			"invalid_grant",
			"invalid_target",
		} {
			m.requests.WithLabelValues(grantType, outcome)
		}
	}
	for _, reason := range []grant.Reason{
		grant.Replayed,
		grant.CodeReused,
		grant.CodeGuessed,
		grant.ByUser,
		grant.ByClient,
		grant.ByAdmin,
		grant.MembershipOver,
		grant.ClientDeleted,
		grant.ByPolicy,
		grant.AddressProven,
	} {
		m.revocations.WithLabelValues(string(reason))
	}
	for _, counted := range []string{ofClient, ofGrant} {
		m.throttled.WithLabelValues(counted)
	}
	return m
}

// Outcomes that are not error codes.
const (
	ok          = "ok"
	unavailable = "unavailable"
	failed      = "error"
)

const (
	ofClient = "client"
	ofGrant  = "grant"
)

// An Exchanger decides token requests (endpoint/protocol/token).
type Exchanger interface {
	Token(ctx context.Context, request engine.TokenRequest) (engine.Tokens, error)
}

// Tokens returns an Exchanger that counts the decisions of next.
func (o *OAuth) Tokens(next Exchanger) Exchanger { return exchanger{o, next} }

type exchanger struct {
	*OAuth
	next Exchanger
}

// Token implements Exchanger.
func (e exchanger) Token(ctx context.Context, request engine.TokenRequest) (engine.Tokens, error) {
	tokens, err := e.next.Token(ctx, request)
	kind := grantType(request)
	e.requests.WithLabelValues(kind, outcome(err)).Inc()
	if err == nil && kind == engine.RefreshToken {
		e.rotations.Inc()
	}
	return tokens, err
}

func grantType(r engine.TokenRequest) string {
	switch {
	case slices.Contains(engine.GrantTypes(), r.GrantType):
		return r.GrantType
	case r.GrantType == "" && r.Dialect == engine.JSON:
		return engine.GrantTypes()[0] // the default of this dialect
	}
	return "other"
}

func outcome(err error) string {
	var refused *engine.TokenError
	switch {
	case err == nil:
		return ok
	case errors.As(err, &refused):
		return refused.Code
	case errors.Is(err, store.ErrUnavailable):
		return unavailable
	}
	return failed
}

// Rotations returns a RotationStore that counts the grants that end: every revocation reaches it, whatever
// its cause (grant.Service.PropagateRevocation).
func (o *OAuth) Rotations(next grant.RotationStore) grant.RotationStore {
	ended, _ := lru.New[uuid.UUID, struct{}](maxRemembered) // fails only if the size is not positive
	return rotationStore{RotationStore: next, metrics: o, ended: ended}
}

// maxRemembered is the number of ended grants that are remembered, so that two requests that end one grant at
// once count as one.
const maxRemembered = 1024

type rotationStore struct {
	grant.RotationStore
	metrics *OAuth
	ended   *lru.Cache[uuid.UUID, struct{}]
}

// Revoke implements grant.RotationStore.
func (r rotationStore) Revoke(ctx context.Context, id uuid.UUID, reason grant.Reason, ends time.Time) error {
	if known, _ := r.ended.ContainsOrAdd(id, struct{}{}); !known {
		r.metrics.revocations.WithLabelValues(string(reason)).Inc()
		if reason == grant.Replayed {
			r.metrics.replays.Inc()
		}
	}
	return r.RotationStore.Revoke(ctx, id, reason, ends)
}

// Failures counts refusals and returns how long the caller must wait (package ratelimit).
type Failures interface {
	ForClient(name string) time.Duration
	ForGrant(id uuid.UUID) time.Duration
}

// Failures returns a Failures that counts the refusals that next throttles.
func (o *OAuth) Failures(next Failures) Failures { return throttle{o, next} }

type throttle struct {
	*OAuth
	next Failures
}

// ForClient implements Failures.
func (t throttle) ForClient(name string) time.Duration {
	return t.count(t.next.ForClient(name), ofClient)
}

// ForGrant implements Failures.
func (t throttle) ForGrant(id uuid.UUID) time.Duration { return t.count(t.next.ForGrant(id), ofGrant) }

func (t throttle) count(wait time.Duration, counted string) time.Duration {
	if wait > 0 {
		t.throttled.WithLabelValues(counted).Inc()
	}
	return wait
}

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
	registry.MustRegister(m.mails)
	count := prometheus.NewDesc("almoner_mails_waiting", "Mails that are not sent yet.", nil, nil)
	oldest := prometheus.NewDesc("almoner_mails_oldest_seconds",
		"How long the oldest mail that is not sent has waited.", nil, nil)
	metrics.WatchGauges(registry, func(ctx context.Context, set metrics.SetGauge) {
		if mails, age, err := waiting(ctx); err == nil {
			set(count, float64(mails))
			set(oldest, age.Seconds())
		}
	}, count, oldest)
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
