package torture

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Relay is a proxy between the services and Postgres (harness.Options.Between) that runs until the process ends. It
// can delay every statement, and close a connection at a statement of a certain kind: before the server receives it, or
// after the server has executed it and before the response has passed. In both cases the service cannot know what
// happened.
type Relay struct {
	server, address string
	serving         sync.Once
	delay           atomic.Int64 // nanoseconds

	mu  sync.Mutex
	cut *Cut
}

// A Cut says at which statements connections are closed.
type Cut struct {
	At    string // substring of the statement's SQL
	Done  bool   // the server executes the statement first
	Times int    // maximum number of cuts

	made int
}

// Detour starts relaying to the server and returns the address to connect to instead.
func (r *Relay) Detour(server string) string {
	r.serving.Do(func() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		r.server, r.address = server, listener.Addr().String()
		go accept(listener, r.serve)
	})
	return r.address
}

// accept serves the connections of a listener until it is closed.
func accept(listener net.Listener, serve func(net.Conn)) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go serve(connection)
	}
}

// relayTo serves the connections to a new address, each with a connection to the server, until the test ends. It
// returns the address.
func relayTo(t testing.TB, server string, serve func(client, server net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go accept(listener, func(client net.Conn) {
		defer func() { _ = client.Close() }()
		backend, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer func() { _ = backend.Close() }()
		serve(client, backend)
	})
	return listener.Addr().String()
}

// reset lets everything pass again.
func (r *Relay) reset() {
	r.Slow(0)
	r.Made()
}

// Slow delays every statement. 0 ends the delay.
func (r *Relay) Slow(by time.Duration) { r.delay.Store(int64(by)) }

// CutAt starts closing connections. Made returns how many.
func (r *Relay) CutAt(c Cut) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = &c
}

// Made stops closing connections and returns how many were closed.
func (r *Relay) Made() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut == nil {
		return 0
	}
	made := r.cut.made
	r.cut = nil
	return made
}

// meets reports whether the connection is closed at the statement, and whether the server executes it first.
func (r *Relay) meets(sql string) (cut, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut == nil || r.cut.made >= r.cut.Times || !strings.Contains(sql, r.cut.At) {
		return false, false
	}
	r.cut.made++
	return true, r.cut.Done
}

// A wire is one connection of a service, with its prepared statements.
type wire struct {
	relay            *Relay
	service, backend net.Conn
	prepared         map[string]string // name → SQL
	mute             atomic.Bool       // the response to the last statement is not forwarded
}

func (r *Relay) serve(service net.Conn) {
	backend, err := net.Dial("tcp", r.server)
	if err != nil {
		_ = service.Close()
		return
	}
	w := &wire{relay: r, service: service, backend: backend, prepared: map[string]string{}}
	go w.answers()
	_ = w.questions() // any error ends the connection
	if !w.mute.Load() {
		w.close()
	}
}

func (w *wire) close() {
	_ = w.service.Close()
	_ = w.backend.Close()
}

// answers forwards the server's messages until one must not be forwarded.
func (w *wire) answers() {
	defer w.close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := w.backend.Read(buffer)
		if err != nil || w.mute.Load() {
			return
		}
		if _, err := w.service.Write(buffer[:n]); err != nil {
			return
		}
	}
}

var errCut = errors.New("cut")

// questions forwards the client's messages, grouped by statement (PostgreSQL documentation, "Message Flow").
func (w *wire) questions() error {
	greeting := make([]byte, 4)
	if _, err := io.ReadFull(w.service, greeting); err != nil {
		return err
	}
	if err := w.pass(greeting, binary.BigEndian.Uint32(greeting)-4); err != nil {
		return err
	}
	var question []byte
	cut, done := false, false
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(w.service, head); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(w.service, body); err != nil {
			return err
		}
		question = append(append(question, head...), body...)
		if sql := w.sql(head[0], body); sql != "" && !cut {
			cut, done = w.relay.meets(sql)
		}
		if strings.IndexByte("SQpX", head[0]) < 0 { // Sync, Query, password, Terminate end a statement
			continue
		}
		time.Sleep(time.Duration(w.relay.delay.Load()))
		if cut && !done {
			return errCut
		}
		w.mute.Store(cut)
		if _, err := w.backend.Write(question); err != nil {
			return err
		}
		if cut {
			return errCut
		}
		question = question[:0]
	}
}

func (w *wire) pass(head []byte, rest uint32) error {
	if _, err := w.backend.Write(head); err != nil {
		return err
	}
	_, err := io.CopyN(w.backend, w.service, int64(rest))
	return err
}

// sql returns the SQL that a message executes: the text of a Query, or of the statement that a Bind names.
func (w *wire) sql(kind byte, body []byte) string {
	parts := strings.SplitN(string(body), "\x00", 3)
	switch {
	case kind == 'Q':
		return parts[0]
	case kind == 'P' && len(parts) > 1:
		w.prepared[parts[0]] = parts[1]
	case kind == 'B' && len(parts) > 1:
		return w.prepared[parts[1]]
	}
	return ""
}

// A Cutter is a relay between a client and a server. It cuts a connection after a given number of bytes in one
// direction. Each request has its own connection.
type Cutter struct {
	address string

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
	c := &Cutter{limit: [2]int{uncut, uncut}}
	c.address = relayTo(t, server, c.relay)
	return c
}

// Transport returns a transport that sends all requests through the relay, whatever their address.
func (c *Cutter) Transport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, c.address)
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

func (c *Cutter) relay(client, server net.Conn) {
	c.last.Add(1)
	defer c.last.Done()
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
