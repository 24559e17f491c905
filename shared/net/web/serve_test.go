package web

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

// A gateway cannot resend a POST that it has sent on an established connection.
func TestListener_EndAcceptsEstablishedConnections(t *testing.T) {
	t.Parallel()
	l := anyListener(t)
	var connections []net.Conn
	for range 20 {
		connection := dial(t, l.Addr().String())
		_, _ = io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		connections = append(connections, connection)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.end() }()
	server := &http.Server{Handler: http.NotFoundHandler()}
	if err := server.Serve(l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("serve: %v", err)
	}
	must(t, <-ended)
	for _, connection := range connections {
		if answer, err := io.ReadAll(connection); err != nil || len(answer) == 0 {
			t.Errorf("a connection was lost: %q, %v", answer, err)
		}
	}
}

func TestListener_EndRefusesNewHandshakes(t *testing.T) {
	t.Parallel()
	l := anyListener(t)
	defer func() { _ = l.Close() }()
	raw, err := l.SyscallConn()
	must(t, err)
	before := dial(t, l.Addr().String())
	must(t, raw.Control(func(fd uintptr) { err = errors.Join(err, refuseHandshakes(int(fd))) }))
	must(t, err)
	if late, err := net.DialTimeout("tcp", l.Addr().String(), 200*time.Millisecond); err == nil {
		_ = late.Close()
		t.Error("a new handshake succeeded")
	}
	if _, err := io.WriteString(before, "x"); err != nil {
		t.Error(err)
	}
	accepted, err := l.Accept()
	must(t, err)
	defer func() { _ = accepted.Close() }()
	_ = accepted.SetReadDeadline(time.Now().Add(await.Long))
	if _, err := accepted.Read(make([]byte, 1)); err != nil {
		t.Errorf("data of an established connection was lost: %v", err)
	}
}

// dial opens a connection, which ends with the test.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	must(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	must(t, connection.SetDeadline(time.Now().Add(await.Long)))
	return connection
}

func anyListener(t *testing.T) listener {
	t.Helper()
	l, err := listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	return l
}

// The response to a request that began before the notice also closes its connection; otherwise the gateway
// would reuse it.
func TestServe_RequestInFlightClosesItsConnection(t *testing.T) {
	t.Parallel()
	begun := make(chan context.Context, 1)
	handler := Observe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- r.Context()
		await.True(t, "the process is about to stop", func() bool { return Leaving(r.Context()) })
	}), slog.New(slog.DiscardHandler), http.NotFoundHandler())
	address, stop, served := serving(t, Server{Notice: 100 * time.Millisecond}, handler.ServeHTTP)
	go func() {
		<-begun
		stop()
	}()
	if _, closes := fetch(t, address); !closes {
		t.Error("the response does not close the connection")
	}
	must(t, <-served)
}

func TestServe_ListensOnceReady(t *testing.T) {
	t.Parallel()
	l := anyListener(t) // to get a free address
	at := l.Addr().String()
	_ = l.Close()
	ctx, stop := context.WithCancel(t.Context())
	asked := 0
	ready := func(context.Context) error {
		if accepts(at) {
			t.Error("the server listens before it is ready")
		}
		if asked++; asked < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	err := Serve(ctx, Server{Address: at, Ready: ready}, http.NotFoundHandler(), slog.New(slog.DiscardHandler),
		func(net.Addr) { stop() })
	if err != nil || asked != 3 {
		t.Errorf("%v after %d calls of Ready", err, asked)
	}
}

// Without its stores a process also listens and reports what is wrong.
func TestServe_WaitsForReadinessAtMostThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan error)
		defer close(hangs)
		for name, ready := range map[string]func(context.Context) error{
			"no":    func(context.Context) error { return errors.New("no database") },
			"hangs": func(context.Context) error { return <-hangs },
		} {
			began := time.Now()
			Server{Ready: ready}.waitReady(t.Context(), slog.New(slog.DiscardHandler))
			if waited := time.Since(began); waited != readyTimeout {
				t.Errorf("%s: waited %s", name, waited)
			}
		}
	})
}

// http.Transport may open a connection long before it sends a request on it.
func TestServe_KeepsUnusedConnection(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration
		kept  bool
	}{
		"used after the header's time limit":  {2 * readHeaderTimeout, true},
		"used after the request's time limit": {2 * readTimeout, true},
		"not used":                            {idleTimeout + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := connect(t, readsBody)
				time.Sleep(c.pause)
				for range 2 {
					go func() {
						header := "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
						if _, err := io.WriteString(client, header); err != nil {
							return
						}
						time.Sleep(readHeaderTimeout + time.Second) // the body has a time limit of its own
						_, _ = io.WriteString(client, "body")
					}()
					response, err := http.ReadResponse(bufio.NewReader(client), nil)
					if kept := err == nil && response.StatusCode == http.StatusOK; kept != c.kept {
						t.Fatalf("got a response: %t (%v), want %t", kept, err, c.kept)
					}
					if !c.kept {
						return
					}
					time.Sleep(idleTimeout - time.Second)
				}
			})
		})
	}
}

func TestServe_EndsSlowRequests(t *testing.T) {
	for name, c := range map[string]struct {
		beginning string
		ends      time.Duration
	}{
		"a header": {"P", readHeaderTimeout},
		"a body":   {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", readTimeout},
		// net/http reads these bodies itself.
		"a body of OPTIONS *": {"OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", readTimeout},
		"a body after a refusal": {
			"POST / HTTP/1.1\r\nHost: x\r\nExpect: x\r\nContent-Length: 100\r\n\r\n", readTimeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := connect(t, readsBody)
				const unused = 3 * time.Second
				time.Sleep(unused)
				began := time.Now()
				var sender sync.WaitGroup
				defer sender.Wait()
				sender.Go(func() {
					_, err := io.WriteString(client, c.beginning)
					for err == nil {
						time.Sleep(time.Second)
						_, err = io.WriteString(client, "x")
					}
				})
				_, _ = io.Copy(io.Discard, client)
				if took := time.Since(began); took < c.ends || took > c.ends+time.Second {
					t.Errorf("ended after %s, want %s", took, c.ends)
				}
			})
		})
	}
}

// A handler may work for longer than a body may take, for example on an export.
func TestServe_LeavesContextOfLongRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := connect(t, func(w http.ResponseWriter, r *http.Request) {
			readsBody(w, r)
			select {
			case <-r.Context().Done():
				w.WriteHeader(http.StatusServiceUnavailable)
			case <-time.After(writeTimeout - time.Second):
			}
		})
		for _, request := range []string{
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
		} {
			_, err := io.WriteString(client, request)
			must(t, err)
			response, err := http.ReadResponse(bufio.NewReader(client), nil)
			must(t, err)
			if response.StatusCode != http.StatusOK {
				t.Errorf("the context of %q was cancelled", request)
			}
		}
	})
}

// readsBody aborts the response if the body cannot be read.
func readsBody(_ http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// connect returns the client's end of a connection to a server with the handler.
func connect(t *testing.T, handler http.HandlerFunc) net.Conn {
	t.Helper()
	server := newServer(handler, new(atomic.Bool), slog.New(slog.DiscardHandler))
	client, accepted := net.Pipe()
	listener := pipeListener{make(chan net.Conn, 1), make(chan struct{})}
	listener.accepted <- &firstByteConn{Conn: accepted}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return client
}

// A pipeListener returns one in-memory connection, which testing/synctest supports.
type pipeListener struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipeListener) Close() error {
	close(p.closed)
	return nil
}

func (p pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// pacedServer serves a response of length bytes, and reports how writing it ended.
func pacedServer(t *testing.T, p pace, length int) (address string, ended <-chan error) {
	t.Helper()
	done := make(chan error, 1)
	server := httptest.NewUnstartedServer(p.keep(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, length))
		done <- err
	})))
	server.Listener = listener{server.Listener.(*net.TCPListener)}
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), done
}

func ask(t *testing.T, address string) net.Conn {
	t.Helper()
	c := dial(t, address)
	must(t, c.(*net.TCPConn).SetReadBuffer(16<<10))
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	must(t, err)
	return c
}

// F14: the connection of a client that does not read a response, or reads a byte now and then, is cut. The whole
// response has a time limit too.
func TestPace_CutsOffSlowReaders(t *testing.T) {
	const short = 300 * time.Millisecond
	nothing := func(net.Conn) {}
	trickle := func(c net.Conn) {
		for _, err := c.Read(make([]byte, 1)); err == nil; _, err = c.Read(make([]byte, 1)) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	for name, c := range map[string]struct {
		read func(net.Conn)
		pace pace
	}{
		"that read nothing":    {nothing, pace{64 << 10, short, time.Minute}},
		"that trickle":         {trickle, pace{64 << 10, short, time.Minute}},
		"at the end of it all": {nothing, pace{64 << 10, await.Long / 2, short}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, ended := pacedServer(t, c.pace, 16<<20)
			go c.read(ask(t, address))
			select {
			case err := <-ended:
				if err == nil {
					t.Error("the whole response was written")
				}
			case <-time.After(await.Long):
				t.Fatal("the response is still held for a client that does not read")
			}
		})
	}
}

func TestPace_ReadersGetEveryByte(t *testing.T) {
	t.Parallel()
	address, ended := pacedServer(t, pace{64 << 10, await.Long, await.Long}, 9<<20+1)
	if body, _ := fetch(t, address); len(body) != 9<<20+1 {
		t.Errorf("%d bytes", len(body))
	}
	must(t, <-ended)
}

// A handler that streams a long response can set a later deadline. Otherwise the response ends at the usual deadline.
func TestPace_HandlerSetsLaterEnd(t *testing.T) {
	for name, longer := range map[string]bool{"usual end": false, "later end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pace{chunk: 64 << 10, within: await.Long, whole: 300 * time.Millisecond}
			server := httptest.NewServer(p.keep(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if longer {
					if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(await.Long)); err != nil {
						t.Error(err)
					}
				}
				for range 10 {
					if _, err := w.Write(make([]byte, 128<<10)); err != nil {
						panic(http.ErrAbortHandler)
					}
					time.Sleep(60 * time.Millisecond)
				}
			})))
			t.Cleanup(server.Close)
			answer, err := http.Get(server.URL)
			must(t, err)
			content, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if whole := err == nil && len(content) == 10*128<<10; whole != longer {
				t.Errorf("%d bytes, %v", len(content), err)
			}
		})
	}
}
