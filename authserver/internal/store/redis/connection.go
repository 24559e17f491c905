package redis

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
)

// errOutOfStep reports that a connection returned, or may return, the response to another command.
var errOutOfStep = errors.New("connection out of step: it returned the response to another command")

// A guardedConnection is valid until its client's epoch changes. After that nothing read from it is used, and
// go-redis discards it.
type guardedConnection struct {
	net.Conn
	epoch   int64
	current *atomic.Int64
}

func (g *guardedConnection) isExpired() bool { return g.current.Load() != g.epoch }

func (g *guardedConnection) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if g.isExpired() {
		return 0, errOutOfStep
	}
	return n, err
}

func (g *guardedConnection) Write(p []byte) (int, error) {
	if g.isExpired() {
		return 0, errOutOfStep
	}
	return g.Conn.Write(p)
}

// SyscallConn is called by go-redis before it takes a connection out of its pool: it closes a connection that
// returns an error.
func (g *guardedConnection) SyscallConn() (syscall.RawConn, error) {
	if g.isExpired() {
		return nil, errOutOfStep
	}
	if plain, ok := g.Conn.(syscall.Conn); ok {
		return plain.SyscallConn()
	}
	return opaque{}, nil
}

// opaque hides a TLS connection from go-redis: unread bytes there may be a message of TLS itself.
type opaque struct{}

func (opaque) Control(func(uintptr)) error    { return nil }
func (opaque) Read(func(uintptr) bool) error  { return nil }
func (opaque) Write(func(uintptr) bool) error { return nil }
