package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Time limits of the server. A slow client is cut off; the stores' own limits bound a slow response.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 60 * time.Second // before the first request too (firstByteConn)
	maxHeaderBytes    = 16 << 10
	drainTimeout      = 20 * time.Second
)

// A starting process listens once it is ready, because a gateway without readiness checks (nginx) sends
// requests as soon as it can connect. After readyTimeout it listens anyway and reports what is wrong.
const (
	readyTimeout = 3 * time.Second
	readyEvery   = 50 * time.Millisecond
)

// A Server configures Serve.
type Server struct {
	Address string
	// Notice is how long the server still accepts requests once ctx has ended. During that time Leaving is true and
	// every response closes its connection. It must be as long as the senders need to redirect requests.
	Notice time.Duration
	// Ready reports whether requests can be served. Serve calls it before it listens. nil means ready.
	Ready func(context.Context) error

	after func(time.Duration) <-chan time.Time // time.After, unless a test replaces it
}

// Serve listens and serves handler until ctx ends, then gives notice and lets requests in flight finish, for
// up to 20 seconds. It calls ready once it listens.
func Serve(ctx context.Context, config Server, handler http.Handler, log *slog.Logger, ready func(net.Addr)) error {
	if config.after == nil {
		config.after = time.After
	}
	config.waitReady(ctx, log)
	listener, err := listen(ctx, config.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	leaving := new(atomic.Bool)
	server := newServer(handler, leaving, log)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	if ready != nil {
		ready(listener.Addr())
	}
	select {
	case err := <-stopped:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	leaving.Store(true)
	select {
	case err := <-stopped:
		return fmt.Errorf("serve: %w", err)
	case <-config.after(config.Notice):
	}
	if config.Notice > 0 {
		if err := listener.end(); err != nil {
			return fmt.Errorf("stop listening: %w", err)
		}
		if err := <-stopped; !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		close(stopped)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		return fmt.Errorf("requests in flight did not finish: %w", err)
	}
	if err, more := <-stopped; more && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// newServer returns a server for connections of the type firstByteConn.
func newServer(handler http.Handler, leaving *atomic.Bool, log *slog.Logger) *http.Server {
	handler = pace{paceChunk, paceTime, writeTimeout}.keep(handler)
	return &http.Server{
		Handler:           closing(handler),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), leavingKey{}, leaving)
		},
	}
}

// waitReady returns once the process is ready, readyTimeout has passed or ctx has ended. A hanging Ready does
// not delay it further.
func (s Server) waitReady(ctx context.Context, log *slog.Logger) {
	if s.Ready == nil {
		return
	}
	waiting, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var cause error
	for waiting.Err() == nil {
		answer := make(chan error, 1)
		go func() { answer <- s.Ready(waiting) }()
		select {
		case cause = <-answer:
			if cause == nil {
				return
			}
		case <-waiting.Done():
		}
		select {
		case <-time.After(readyEvery):
		case <-waiting.Done():
		}
	}
	if ctx.Err() == nil {
		log.Warn("listening, but not ready", "address", s.Address, "cause", cause)
	}
}

type leavingKey struct{}

// Leaving reports whether the server of a request was told to shut down. It is then not ready, although it
// still responds.
func Leaving(ctx context.Context) bool {
	leaving := leavingOf(ctx)
	return leaving != nil && leaving.Load()
}

func leavingOf(ctx context.Context) *atomic.Bool {
	leaving, _ := ctx.Value(leavingKey{}).(*atomic.Bool)
	return leaving
}

// closing closes the connection after responses during the notice, because a later request on it would find no
// server, and after a request with a chunked body. net/http removes a Content-Length next to it, so the server cannot
// detect it; a proxy that used that length would have taken the following bytes for another request, or for none
// (RFC 9112, section 6.1: the server "MUST close the connection after responding").
func closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Leaving(r.Context()) {
			w.Header().Set("Connection", "close")
		}
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// probeTimeout is longer than /readyz waits for its stores.
const probeTimeout = 3 * time.Second

// probeInterval is the pause between two calls of AskReady.
const probeInterval = 100 * time.Millisecond

// AwaitReady calls AskReady, at least once, until it returns nil. After wait, it returns the last error.
func AwaitReady(ctx context.Context, listen string, wait time.Duration) error {
	over := time.Now().Add(wait)
	for {
		err := AskReady(ctx, listen)
		if err == nil || !time.Now().Add(probeInterval).Before(over) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(probeInterval):
		}
	}
}

// AskReady returns nil if the server at an address of this machine, such as :8081, is ready (/readyz). It is
// for health checks without other programs, as in a container image.
func AskReady(ctx context.Context, listen string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// Dialling an address without a host, or 0.0.0.0, reaches this machine (package net); such an address is
	// not valid in a URL.
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", listen)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/readyz", nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return errors.Join(errors.New("not ready: no response from "+listen), err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // the error does not matter
	return fmt.Errorf("not ready: %s: %s", response.Status, body)
}

// Limits for callers that read slowly.
const (
	// sendBuffer is the kernel's buffer per connection for unread responses. By default it would be
	// megabytes, which count as memory of this process in a control group.
	sendBuffer = 256 << 10
	// paceChunk bytes of a response must be read within paceTime, or the connection is cut.
	paceChunk = 64 << 10
	paceTime  = 5 * time.Second
)

// A pace is how fast callers must read responses.
type pace struct {
	chunk  int
	within time.Duration // for each chunk
	whole  time.Duration // for the whole response
}

// keep cuts the connection of a caller that does not read a response at this pace, so that its memory is freed.
func (p pace) keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&pacedWriter{
			ResponseWriter: w,
			control:        http.NewResponseController(w),
			pace:           p,
			end:            time.Now().Add(p.whole),
		}, r)
	})
}

// pacedWriter sets a deadline for each chunk of a response after the first.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	pace    pace
	end     time.Time
	sent    int
}

func (p *pacedWriter) Write(b []byte) (written int, err error) {
	for {
		part := b[:min(len(b), p.pace.chunk)]
		if p.sent += len(part); p.sent > p.pace.chunk {
			deadline := time.Now().Add(p.pace.within)
			if deadline.After(p.end) {
				deadline = p.end
			}
			_ = p.control.SetWriteDeadline(deadline) // a writer without deadlines is not a connection
		}
		n, err := p.ResponseWriter.Write(part)
		written += n
		if b = b[len(part):]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// SetWriteDeadline implements http.ResponseController's interface. A handler that streams a long response sets the
// deadline for the whole response; the time for each chunk does not change.
func (p *pacedWriter) SetWriteDeadline(end time.Time) error {
	p.end = end
	return p.control.SetWriteDeadline(end)
}

// Unwrap is used by http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// A listener can be closed without losing a connection (end). Its connections have small buffers and wait for their
// first byte.
type listener struct{ *net.TCPListener }

func listen(ctx context.Context, address string) (listener, error) {
	var settings net.ListenConfig
	settings.SetMultipathTCP(false) // MPTCP sockets do not support the filter (refuseHandshakes)
	listening, err := settings.Listen(context.WithoutCancel(ctx), "tcp", address)
	if err != nil {
		return listener{}, err
	}
	return listener{listening.(*net.TCPListener)}, nil // Listen returns this type for "tcp"
}

// Accept implements net.Listener. It fails with net.ErrClosed after end.
func (l listener) Accept() (net.Conn, error) {
	connection, err := l.AcceptTCP()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, net.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	_ = connection.SetWriteBuffer(sendBuffer) // on failure the kernel's default stays
	return &firstByteConn{Conn: connection}, nil
}

const (
	handshakeTime = 50 * time.Millisecond // longer than a handshake takes between machines of one site
	acceptEvery   = 5 * time.Millisecond
	acceptTime    = 2 * time.Second // for a busy machine
)

// end makes Accept fail once every connection that the kernel has established was accepted. The caller of
// Accept closes the listener.
//
// Closing the listener directly would reset connections that were not accepted yet, although their clients
// may have sent a request: a gateway cannot resend a POST. So new handshakes are dropped, while those in
// progress complete and are accepted. A client whose handshake was dropped retries a second later (RFC 6298)
// and is then refused: it knows that nothing of its request was sent. If the kernel does not accept the
// filter, end skips the wait and a connection may still be lost.
func (l listener) end() error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var unfiltered error
	if err := raw.Control(func(fd uintptr) { unfiltered = refuseHandshakes(int(fd)) }); err != nil {
		return err
	}
	if unfiltered == nil {
		time.Sleep(handshakeTime)
	}
	for end := time.Now().Add(acceptTime); time.Now().Before(end) && waiting(raw.Control) > 0; {
		time.Sleep(acceptEvery)
	}
	return l.SetDeadline(time.Unix(1, 0))
}

// waiting returns the number of established connections that were not accepted.
func waiting(control func(func(fd uintptr)) error) uint32 {
	var count uint32
	err := control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			count = info.Unacked // for a listening socket, the length of its queue
		}
	})
	if err != nil {
		return 0
	}
	return count
}

// refuseHandshakes drops segments with SYN and without ACK, which begin a handshake. The filter sees a
// segment from its TCP header; byte 13 contains the flags.
func refuseHandshakes(fd int) error {
	const syn, ack, wholeSegment = 0x02, 0x10, 0xffff
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: wholeSegment},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
}

// A firstByteConn waits idleTimeout for its first request, and counts the time limits of that request from the first
// byte. http.Server sets two read deadlines for it, before the first byte and after the header, counts both from the
// start of the connection, and would close it after readHeaderTimeout. Go's http.Transport, which Traefik and the
// gateway of the local stack use, opens connections that it may use only later, and cannot repeat a POST if the server
// closes the connection at that moment.
//
// The fields are written only by the goroutine that reads the first request, before net/http starts its background
// read.
type firstByteConn struct {
	net.Conn
	first   time.Time // when the first byte was read; zero before
	limited bool      // the deadline for the whole first request was set
}

// SetReadDeadline implements net.Conn.
func (f *firstByteConn) SetReadDeadline(end time.Time) error {
	switch {
	case f.first.IsZero():
		end = time.Now().Add(idleTimeout)
	case !f.limited:
		f.limited = true
		end = f.first.Add(readTimeout)
	}
	return f.Conn.SetReadDeadline(end)
}

// Read implements net.Conn.
func (f *firstByteConn) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if n > 0 && f.first.IsZero() {
		f.first = time.Now()
		_ = f.Conn.SetReadDeadline(f.first.Add(readHeaderTimeout)) // a closed connection fails at the next read
	}
	return n, err
}

// CloseWrite shuts down the sending side of the connection. http.Server calls it before it closes a connection with an
// unread body, so that the client can read the response before a reset.
func (f *firstByteConn) CloseWrite() error {
	if tcp, ok := f.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}
