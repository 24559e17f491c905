package torture

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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
		go func() {
			for {
				service, err := listener.Accept()
				if err != nil {
					return
				}
				go r.serve(service)
			}
		}()
	})
	return r.address
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
	defer func() { _ = service.Close() }()
	backend, err := net.Dial("tcp", r.server)
	if err != nil {
		return
	}
	defer func() { _ = backend.Close() }()
	w := &wire{relay: r, service: service, backend: backend, prepared: map[string]string{}}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		w.answers()
		_, _ = service.Close(), backend.Close()
	}()
	_ = w.questions() // any error ends the connection
	if w.mute.Load() {
		<-answered // the server has executed the statement
	}
}

// answers forwards the server's messages until one must not be forwarded.
func (w *wire) answers() {
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

// A Cutter connects to a server, whatever the address of a request. It cuts a connection after a given number of bytes
// in one direction. Each request has its own connection, and there is one request at a time.
type Cutter struct {
	server string
	limit  [2]int64
	last   *cuttable
	sizes  [2]int // of the last connection that was not cut
}

// A Direction is a direction of a connection.
type Direction int

// The directions.
const (
	OfRequest Direction = iota
	OfAnswer
)

const uncut = math.MaxInt64

// NewCutter returns a cutter of connections to a server.
func NewCutter(server string) *Cutter { return &Cutter{server: server, limit: [2]int64{uncut, uncut}} }

// Transport returns a transport that sends all requests through the cutter.
func (c *Cutter) Transport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			connection, err := (&net.Dialer{}).DialContext(ctx, network, c.server)
			if err != nil {
				return nil, err
			}
			c.last = &cuttable{Conn: connection, limit: c.limit}
			c.limit = [2]int64{uncut, uncut}
			return c.last, nil
		},
	}
}

// CutNext cuts the next connection after the given number of bytes of the request or the response.
func (c *Cutter) CutNext(of Direction, after int) { c.limit[of] = int64(after) }

// Size returns the number of bytes of the last request or response that was not cut.
func (c *Cutter) Size(of Direction) int {
	if c.last != nil && c.last.limit == [2]int64{uncut, uncut} {
		c.sizes = [2]int{int(c.last.passed[OfRequest].Load()), int(c.last.passed[OfAnswer].Load())}
	}
	return c.sizes[of]
}

// A cuttable is a connection that closes itself as soon as the limit of bytes has passed in a direction.
type cuttable struct {
	net.Conn
	limit  [2]int64
	passed [2]atomic.Int64
}

func (c *cuttable) Write(p []byte) (int, error) { return c.pass(OfRequest, p, c.Conn.Write) }

func (c *cuttable) Read(p []byte) (int, error) { return c.pass(OfAnswer, p, c.Conn.Read) }

func (c *cuttable) pass(of Direction, p []byte, do func([]byte) (int, error)) (n int, err error) {
	if left := c.limit[of] - c.passed[of].Load(); left > 0 {
		n, err = do(p[:min(int64(len(p)), left)])
	}
	if c.passed[of].Add(int64(n)) == c.limit[of] {
		_ = c.Close()
		if n == 0 || of == OfRequest {
			return n, errCut
		}
	}
	return n, err
}
