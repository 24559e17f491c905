package redis

import (
	"sync"
	"time"
)

// A clock estimates the time of a Redis server's clock from the times in its responses. The estimate is a
// lower bound: a deadline computed from it is never later, by the server's clock, than the intended moment
// (grants.md, G10).
type clock struct {
	mu     sync.Mutex
	sample clockSample
}

// A clockSample is one response that carried the server's time.
type clockSample struct {
	server         int64     // milliseconds; the server read its clock between sent and received
	sent, received time.Time // with the monotonic clock
}

// The rates of two clocks differ by less than this (NTP adjusts by up to 500 parts per million).
const driftPerSecond = 500 * time.Microsecond

func drift(d time.Duration) time.Duration {
	return time.Duration(d.Seconds() * float64(driftPerSecond))
}

// lower returns the lowest time that the server's clock can show at the moment at.
func (c clockSample) lower(at time.Time) int64 {
	since := at.Sub(c.received)
	return c.server + (since - drift(since)).Milliseconds()
}

// upper returns the highest time that the server's clock can show at the moment at.
func (c clockSample) upper(at time.Time) int64 {
	since := at.Sub(c.sent)
	return c.server + 1 + (since + drift(since)).Milliseconds()
}

// observe records a response. The response replaces the sample if it contradicts it, because a clock was set,
// or if it now bounds the server's clock more tightly.
func (c *clock) observe(answer clockSample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sample := c.sample
	contradicts := sample.received.IsZero() || answer.server < sample.lower(answer.sent)-1 ||
		answer.server > sample.upper(answer.received)
	if contradicts || answer.lower(answer.received) >= sample.lower(answer.received) {
		c.sample = answer
	}
}

// deadline returns a lower bound of the server's clock at the moment at, or 0 if there is no sample.
func (c *clock) deadline(at time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sample.received.IsZero() {
		return 0
	}
	return c.sample.lower(at)
}
