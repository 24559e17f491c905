package testkit

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Trips counts how often a client waits for a store: the round trips on all its connections, those of logging in
// included. What is sent without waiting for an answer in between, such as a batch, is one, whatever it holds.
type Trips struct {
	listener net.Listener
	target   string
	count    atomic.Int64

	mu     sync.Mutex
	open   []net.Conn
	closed bool
}

// CountTrips puts a counter before the server of a URL, and returns the URL that leads through it. It ends with the
// test.
func CountTrips(t testing.TB, server string) (through string, trips *Trips) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil || u.Port() == "" {
		t.Fatal("the server's URL has no host and port") // and may have a password, so it is not quoted
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	trips = &Trips{listener: listener, target: u.Host}
	u.Host = listener.Addr().String()
	go trips.accept()
	t.Cleanup(trips.close)
	return u.String(), trips
}

// Of is how many trips do takes.
func (c *Trips) Of(do func()) int {
	before := c.count.Load()
	do()
	return int(c.count.Load() - before)
}

func (c *Trips) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !c.keep(client, server) {
			return
		}
		var answered atomic.Bool
		answered.Store(true)
		go relay(client, server, func() {
			if answered.Swap(false) {
				c.count.Add(1)
			}
		})
		go relay(server, client, func() { answered.Store(true) })
	}
}

// relay hands on what comes, once seen has heard of it, until one side ends; then it ends the other.
func relay(from, to net.Conn, seen func()) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			seen()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// keep remembers connections to be closed with the test, or closes them because it is over.
func (c *Trips) keep(connections ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, connections...)
	if c.closed {
		closeAll(connections)
	}
	return !c.closed
}

func (c *Trips) close() {
	_ = c.listener.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	closeAll(c.open)
}

func closeAll(connections []net.Conn) {
	for _, one := range connections {
		_ = one.Close()
	}
}
