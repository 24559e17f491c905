package redis

import (
	"sync"
	"time"
)

// A clock estimates what a Redis server's clock says, from the times that its answers carry. The estimate is a lower
// bound: a deadline made from it is never later, by the server's clock, than the moment that was meant (grants.md,
// G10).
type clock struct {
	mu     sync.Mutex
	sample clockSample
}

// A sample is one answer that carried the server's time.
type clockSample struct {
	server         int64     // milliseconds; the server read its clock between sent and received
	sent, received time.Time // with the monotonic clock
}

// The rates of two clocks differ by less than this (NTP adjusts by 500 parts per million at most).
const driftPerSecond = 500 * time.Microsecond

func drift(d time.Duration) time.Duration {
	return time.Duration(d.Seconds() * float64(driftPerSecond))
}

// lower is the lowest time that the server's clock can show at the moment at.
func (s clockSample) lower(at time.Time) int64 {
	since := at.Sub(s.received)
	return s.server + (since - drift(since)).Milliseconds()
}

// upper is the highest one.
func (s clockSample) upper(at time.Time) int64 {
	since := at.Sub(s.sent)
	return s.server + 1 + (since + drift(since)).Milliseconds()
}

// observe takes an answer into account: one that contradicts the sample, because a clock was set, replaces it; so does
// one that bounds the server's clock more narrowly by now.
func (c *clock) observe(answer clockSample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.sample
	contradicts := known.received.IsZero() || answer.server < known.lower(answer.sent)-1 ||
		answer.server > known.upper(answer.received)
	if contradicts || answer.lower(answer.received) >= known.lower(answer.received) {
		c.sample = answer
	}
}

// deadline is the time of the server's clock at the moment at, at the latest; or 0 where nothing is known of it.
func (c *clock) deadline(at time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sample.received.IsZero() {
		return 0
	}
	return c.sample.lower(at)
}
