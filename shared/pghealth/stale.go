package pghealth

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// idleLimit is pgxpool's default: after this time a connection may be dead without notice, for example behind
// a firewall.
const idleLimit = time.Second

// ShouldPing is for pgxpool.Config. Without it the first requests after a restart of PostgreSQL fail, one for each
// connection of the pool. It requests a ping if the connection was idle for long or has data to
// read: no statement is running, so that is the end of the connection or a message about it. It queries only
// the kernel, without a round trip.
func ShouldPing(_ context.Context, p pgxpool.ShouldPingParams) bool {
	return p.IdleDuration > idleLimit || readable(p.Conn.PgConn().Conn())
}

// ShouldPingProbe is ShouldPing for the connection of probes. A probe is itself a ping, so none is needed before it.
func ShouldPingProbe(_ context.Context, p pgxpool.ShouldPingParams) bool {
	return readable(p.Conn.PgConn().Conn())
}

func readable(connection net.Conn) bool {
	if secured, ok := connection.(*tls.Conn); ok {
		connection = secured.NetConn()
	}
	socket, ok := connection.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	var peeked error
	// Do not use Read: it would wait for pgconn's reader, which may still wait on a connection that was slow
	// to write to.
	err = raw.Control(func(fd uintptr) {
		_, _, peeked = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err != nil || !errors.Is(peeked, syscall.EAGAIN)
}
