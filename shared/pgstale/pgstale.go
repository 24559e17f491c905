// Package pgstale finds pooled connections that PostgreSQL has closed, before a statement is sent on one.
//
// Both services use it. Without it the first requests after a restart of PostgreSQL fail, one for each connection of
// the pool.
package pgstale

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// idleLimit is pgxpool's own: after it a connection may be dead without a sign of it here, as behind a firewall.
const idleLimit = time.Second

// ShouldPing is for pgxpool.Config. A connection is pinged if it was idle for long, or if there is something to read on
// it: no statement is under way, so that is its end, or a message about it. It asks the kernel alone, which is no round
// trip.
func ShouldPing(_ context.Context, p pgxpool.ShouldPingParams) bool {
	return p.IdleDuration > idleLimit || readable(p.Conn.PgConn().Conn())
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
	// Not Read: it would wait for pgconn's own reader, which may still wait on a connection that was slow to write to.
	err = raw.Control(func(fd uintptr) {
		_, _, peeked = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err != nil || !errors.Is(peeked, syscall.EAGAIN)
}
