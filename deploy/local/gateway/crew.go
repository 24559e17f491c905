package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// A crew is the processes of one service, which take turns. One that says it is leaving, by closing the connection
// after an answer, or that nobody can connect to, is left out for a while: so a process can be restarted and no caller
// notices.
type crew struct {
	transport http.RoundTripper
	members   []*member
	turn      atomic.Uint64
}

type member struct {
	address *url.URL
	back    atomic.Int64 // when it gets requests again, in Unix nanoseconds
}

// leftOutFor is longer than the notice that a process of the local stack gives: meanwhile it has closed all
// connections.
const leftOutFor = 3 * time.Second

func newCrew(transport http.RoundTripper, addresses []*url.URL) *crew {
	c := &crew{transport: transport}
	for _, address := range addresses {
		c.members = append(c.members, &member{address: address})
	}
	return c
}

// RoundTrip sends the request to the next process. One that could not be connected to has got nothing of it, so another
// may.
func (c *crew) RoundTrip(request *http.Request) (*http.Response, error) {
	var err error
	for range c.members {
		m := c.next()
		var response *http.Response
		if response, err = c.transport.RoundTrip(m.addressed(request)); err == nil {
			if response.Close && request.ContentLength >= 0 { // after a body in chunks the connection ends anyway
				m.leaveOut()
			}
			return response, nil
		}
		var network *net.OpError
		if !errors.As(err, &network) || network.Op != "dial" {
			return nil, err
		}
		m.leaveOut()
	}
	return nil, err
}

// next is whose turn it is among those that are not left out; where all are, among all.
func (c *crew) next() *member {
	turn, now := c.turn.Add(1)-1, time.Now().UnixNano()
	count := uint64(len(c.members))
	for i := range count {
		if m := c.members[(turn+i)%count]; m.back.Load() <= now {
			return m
		}
	}
	return c.members[turn%count]
}

func (m *member) leaveOut() { m.back.Store(time.Now().Add(leftOutFor).UnixNano()) }

// addressed is the request as this process gets it. A transport closes the body even when it could not connect; the
// next one needs it.
func (m *member) addressed(request *http.Request) *http.Request {
	to := request.Clone(request.Context())
	to.URL.Host = m.address.Host
	if request.Body != nil {
		to.Body = io.NopCloser(request.Body)
	}
	return to
}
