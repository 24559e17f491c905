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

// A pool is the set of processes of one service, which alternate. A process that announces its end, by closing the
// connection after a response, or that accepts no connection is skipped for a while. So a process can be restarted
// without effect for callers.
type pool struct {
	transport http.RoundTripper
	members   []*member
	turn      atomic.Uint64
}

type member struct {
	address *url.URL
	back    atomic.Int64 // when the process gets requests again, in Unix nanoseconds
}

// skipFor exceeds the notice that a process of the local stack gives, within which it closes all connections.
const skipFor = 3 * time.Second

func newPool(transport http.RoundTripper, addresses []*url.URL) *pool {
	p := &pool{transport: transport}
	for _, address := range addresses {
		p.members = append(p.members, &member{address: address})
	}
	return p
}

// RoundTrip sends the request to the next process. If a connection fails, the process has received nothing, and another
// one gets the request.
func (p *pool) RoundTrip(request *http.Request) (*http.Response, error) {
	var err error
	for range p.members {
		m := p.next()
		var response *http.Response
		if response, err = p.transport.RoundTrip(m.addressed(request)); err == nil {
			if response.Close && request.ContentLength >= 0 { // the connection always ends after a chunked body
				m.skip()
			}
			return response, nil
		}
		var network *net.OpError
		if !errors.As(err, &network) || network.Op != "dial" {
			return nil, err
		}
		m.skip()
	}
	return nil, err
}

// next returns the next process that is not skipped, or the next one if all are skipped.
func (p *pool) next() *member {
	turn, now := p.turn.Add(1)-1, time.Now().UnixNano()
	count := uint64(len(p.members))
	for i := range count {
		if m := p.members[(turn+i)%count]; m.back.Load() <= now {
			return m
		}
	}
	return p.members[turn%count]
}

func (m *member) skip() { m.back.Store(time.Now().Add(skipFor).UnixNano()) }

// addressed returns the request for this process. A transport closes the body even if the connection fails; the next
// process needs it.
func (m *member) addressed(request *http.Request) *http.Request {
	to := request.Clone(request.Context())
	to.URL.Host = m.address.Host
	if request.Body != nil {
		to.Body = io.NopCloser(request.Body)
	}
	return to
}
