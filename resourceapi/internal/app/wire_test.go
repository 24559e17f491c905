package app

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A wire is a proxy between the service and Postgres that can be frozen: it accepts bytes and does not forward them,
// like a server that hangs. cut drops every connection.
type wire struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	open     []net.Conn
	flow     chan struct{} // closed while bytes flow
}

// through is a change that connects a service to Postgres by a new wire.
func through(t *testing.T, into **wire) change {
	return func(c *Config) {
		w, database := newWire(t, string(c.DatabaseURL))
		*into, c.DatabaseURL = w, credential.Secret(database)
	}
}

// newWire returns a wire to the server of the URL, and the URL of the wire.
func newWire(t *testing.T, database string) (*wire, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal("the database URL cannot be read")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, target: u.Host, flow: make(chan struct{})}
	close(w.flow)
	u.Host = listener.Addr().String()
	go w.accept()
	t.Cleanup(func() {
		_ = listener.Close()
		w.thaw()
		w.cut()
	})
	return w, u.String()
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.open = append(w.open, client, server)
		w.mu.Unlock()
		go w.carry(server, client)
		go w.carry(client, server)
	}
}

func (w *wire) carry(to io.WriteCloser, from io.Reader) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		flow := w.flow
		w.mu.Unlock()
		<-flow
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (w *wire) freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flow = make(chan struct{})
}

func (w *wire) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.flow:
	default:
		close(w.flow)
	}
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, connection := range w.open {
		_ = connection.Close()
	}
	w.open = nil
}
