// Package redis stores the short-lived state of authserver that decides races.
//
// It stores the fast half of each grant (grant.RotationStore) as one hash under one key. Every decision is one Lua
// script on that key, so it also runs on Redis Cluster. Nothing depends on Redis keeping its data: the conditional
// updates in Postgres are authoritative. A response names the command that it belongs to (script.go): a response from a
// connection that is out of step decides nothing. KEYS.md lists every key, its fields and its time to live.
package redis

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Time limits of a call. A script takes well under a millisecond: a Redis that needs longer is not answering.
const (
	dialTimeout = 250 * time.Millisecond
	callTimeout = 250 * time.Millisecond
	poolTimeout = 500 * time.Millisecond
	connections = 64
	idleLongest = 5 * time.Minute
)

// Connect makes a client for the grant path. wait raises the limits of its calls (see grant.Service.WaitForStores); 0
// changes nothing. The client does not retry, because a script that is sent twice
// may run twice: the grant service retries with a nonce. A cluster client must retry to follow moved slots,
// so a connectionGuard observes each try. Connect does not dial. The error is redisurl.ErrURL.
func Connect(url credential.Source, wait time.Duration) (goredis.UniversalClient, error) {
	return connect(url, connections, wait)
}

// ConnectProbe makes a client with one connection for health checks, so that they do not wait for the
// connections of callers.
func ConnectProbe(url credential.Source) (goredis.UniversalClient, error) { return connect(url, 1, 0) }

func connect(url credential.Source, most int, wait time.Duration) (goredis.UniversalClient, error) {
	return redisurl.OpenFromSource(url, redisurl.Limits{
		Dial:        max(dialTimeout, wait),
		Call:        max(callTimeout, wait),
		Pool:        max(poolTimeout, wait),
		Idle:        idleLongest,
		Connections: most,
	}, new(connectionGuard))
}

// A connectionGuard records that a command may have reached a node although no response came. Even if the last of
// several tries was certainly not sent, an earlier one may have been. Each client has its own connectionGuard.
type connectionGuard struct{ epoch atomic.Int64 }

// A command is what a connectionGuard knows about one command to Redis, including retries.
type command struct {
	doubt atomic.Bool // whether an earlier try may have been executed
	guard atomic.Pointer[connectionGuard]
}

type commandKey struct{}

// observe returns a context in which the command is observed.
func observe(ctx context.Context) (watched context.Context, q *command) {
	q = new(command)
	return context.WithValue(ctx, commandKey{}, q), q
}

// outOfStep invalidates all existing connections.
func (c *command) outOfStep() {
	if w := c.guard.Load(); w != nil {
		w.epoch.Add(1)
	}
}

func (c *connectionGuard) record(ctx context.Context, err error) {
	q, asked := ctx.Value(commandKey{}).(*command)
	if !asked {
		return
	}
	q.guard.Store(c)
	if err != nil && !neverSent(err) {
		q.doubt.Store(true)
	}
}

// DialHook implements goredis.Hook.
func (c *connectionGuard) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		born := c.epoch.Load()
		dialled, err := next(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &guardedConnection{Conn: dialled, epoch: born, current: &c.epoch}, nil
	}
}

// ProcessHook implements goredis.Hook.
func (c *connectionGuard) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		c.record(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook: a command for a moving slot is sent together with ASKING.
func (c *connectionGuard) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		err := next(ctx, commands)
		c.record(ctx, err)
		return err
	}
}

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
