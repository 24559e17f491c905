package web

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A listener can be closed without losing a connection (end).
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
	connection, err := l.TCPListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, net.ErrClosed
	}
	return connection, err
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

// A firstByteListener lets a connection wait idleTimeout for its first request. http.Server would close it after
// readHeaderTimeout. Go's http.Transport, which Traefik and the gateway of the local stack use, opens connections that
// it may use only later, and cannot repeat a POST if the server closes the connection at that moment.
type firstByteListener struct{ net.Listener }

// Accept implements net.Listener.
func (f firstByteListener) Accept() (net.Conn, error) {
	accepted, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &firstByteConn{Conn: accepted}, nil
}

// A firstByteConn counts the time limits of its first request from the first byte. http.Server sets two read deadlines
// for it, before the first byte and after the header, and counts both from the start of the connection.
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
