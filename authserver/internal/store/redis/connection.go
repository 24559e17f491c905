package redis

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
)

// errOutOfStep says that a connection gave, or may give, the answer to another question.
var errOutOfStep = errors.New("the connection is out of step: it gave the answer to another question")

// A connection is good until its era is over. Nothing that is read from it then is believed, and go-redis does not use
// it again.
type guardedConnection struct {
	net.Conn
	born int64
	era  *atomic.Int64
}

func (c *guardedConnection) isOver() bool { return c.era.Load() != c.born }

func (c *guardedConnection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.isOver() {
		return 0, errOutOfStep
	}
	return n, err
}

func (c *guardedConnection) Write(p []byte) (int, error) {
	if c.isOver() {
		return 0, errOutOfStep
	}
	return c.Conn.Write(p)
}

// SyscallConn is what go-redis looks into before it takes a connection out of its pool: one with an error is closed.
func (c *guardedConnection) SyscallConn() (syscall.RawConn, error) {
	if c.isOver() {
		return nil, errOutOfStep
	}
	if plain, ok := c.Conn.(syscall.Conn); ok {
		return plain.SyscallConn()
	}
	return opaque{}, nil
}

// opaque shows nothing of a connection with TLS: what has arrived there unread may be a message of TLS itself.
type opaque struct{}

func (opaque) Control(func(uintptr)) error    { return nil }
func (opaque) Read(func(uintptr) bool) error  { return nil }
func (opaque) Write(func(uintptr) bool) error { return nil }
