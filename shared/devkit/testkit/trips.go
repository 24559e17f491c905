package testkit

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Trips counts the round trips of a client to a store on all its connections, including logins. What is sent
// without waiting for a response, such as a batch, counts as one. Pings do not count: how many a service sends depends
// on how long the store takes to respond.
type Trips struct {
	listener net.Listener
	target   string
	count    atomic.Int64

	mu     sync.Mutex
	open   []net.Conn
	closed bool
}

// CountTrips puts a counting proxy in front of the server of a URL, and returns the URL of the proxy. The
// proxy ends with the test.
func CountTrips(t testing.TB, server string) (through string, trips *Trips) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil || u.Port() == "" {
		t.Fatal("the server's URL has no host and port") // it may contain a password, so it is not quoted
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

// Of returns the number of round trips that do takes.
func (t *Trips) Of(do func()) int {
	before := t.count.Load()
	do()
	return int(t.count.Load() - before)
}

func (t *Trips) accept() {
	for {
		client, err := t.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", t.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !t.keep(client, server) {
			return
		}
		var answered atomic.Bool
		answered.Store(true)
		go relay(client, server, func(part []byte) {
			if !isPing(part) && answered.Swap(false) {
				t.count.Add(1)
			}
		})
		go relay(server, client, func([]byte) { answered.Store(true) })
	}
}

// isPing reports whether a client sent only the ping of pgx or of go-redis.
func isPing(part []byte) bool {
	sent := string(part)
	return sent == "Q\x00\x00\x00\x0c-- ping\x00" || sent == "*1\r\n$4\r\nping\r\n"
}

// relay copies data and calls seen first for each part, until one side ends; then it closes both.
func relay(from, to net.Conn, seen func(part []byte)) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			seen(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// keep registers connections to be closed with the test, or closes them if the test is over.
func (t *Trips) keep(connections ...net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = append(t.open, connections...)
	if t.closed {
		closeAll(connections)
	}
	return !t.closed
}

func (t *Trips) close() {
	_ = t.listener.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	closeAll(t.open)
}

func closeAll(connections []net.Conn) {
	for _, one := range connections {
		_ = one.Close()
	}
}
