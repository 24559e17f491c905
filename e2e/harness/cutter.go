package harness

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// A Cutter is a relay between a client and a server. It cuts a connection after a given number of bytes in one
// direction. Each request has its own connection.
type Cutter struct {
	server   string
	listener net.Listener

	mu    sync.Mutex
	limit [2]int
	last  sync.WaitGroup // the relayed connections
	sizes [2]int         // of the last connection that was not cut
}

// A Direction is a direction of a connection.
type Direction int

// The directions.
const (
	OfRequest Direction = iota
	OfAnswer
)

const uncut = -1

// NewCutter starts a relay to the server at an address, and stops it when the test ends.
func NewCutter(t testing.TB, server string) *Cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cutter{server: server, listener: listener, limit: [2]int{uncut, uncut}}
	t.Cleanup(func() { _ = listener.Close() })
	go c.accept()
	return c
}

// Transport returns a transport that sends all requests through the relay, whatever their address.
func (c *Cutter) Transport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, c.listener.Addr().String())
		},
	}
}

// CutNext cuts the next connection after the given number of bytes of the request or the response.
func (c *Cutter) CutNext(of Direction, after int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = [2]int{uncut, uncut}
	c.limit[of] = after
}

// Size returns the number of bytes of the last request or response that was not cut.
func (c *Cutter) Size(of Direction) int {
	c.last.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sizes[of]
}

func (c *Cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.last.Add(1)
		go func() {
			defer c.last.Done()
			c.relay(client)
		}()
	}
}

func (c *Cutter) relay(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	c.mu.Lock()
	limit := c.limit
	c.limit = [2]int{uncut, uncut}
	c.mu.Unlock()
	var passed [2]int
	requestOver := make(chan struct{})
	go func() {
		defer close(requestOver)
		passed[OfRequest] = pass(server, client, limit[OfRequest])
		if limit[OfRequest] != uncut {
			_, _ = client.Close(), server.Close()
		}
	}()
	passed[OfAnswer] = pass(client, server, limit[OfAnswer])
	_, _ = client.Close(), server.Close()
	<-requestOver
	if limit == [2]int{uncut, uncut} {
		c.mu.Lock()
		c.sizes = passed
		c.mu.Unlock()
	}
}

// pass copies at most limit bytes, or all if limit is uncut, and returns their number.
func pass(to io.Writer, from io.Reader, limit int) int {
	if limit != uncut {
		from = io.LimitReader(from, int64(limit))
	}
	n, _ := io.Copy(to, from)
	return int(n)
}
