// Package pg connects to PostgreSQL: it opens pools, detects pooled connections that PostgreSQL has closed, detects a
// server that does not respond, and combines concurrent queries into shared statements. Both services use it.
package pg

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Options are what differs between pools.
type Options struct {
	Name        string        // of the program, as the server shows it
	Connections int32         // maximum
	Idle        int32         // minimum
	Connect     time.Duration // limit of a new connection
	Ping        time.Duration // limit of the ping of an idle connection
	Parameters  map[string]string
	Probes      bool // the pool is for probes alone: each is itself a ping, so none is needed before it
	Tracers     []pgx.QueryTracer
	Check       func(context.Context, *pgx.Conn) error // of a new connection, or nil
}

// errURL replaces the library's error, which quotes the URL.
var errURL = errors.New("the database URL cannot be read")

// Open prepares a pool and does not connect, so that a service starts without its database. Each new connection uses
// the current user and password of url.
func Open(ctx context.Context, url credential.Source, o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url().Reveal())
	if err != nil {
		return nil, errURL
	}
	RequirePrimary(&config.ConnConfig.Config)
	config.MaxConns, config.MinIdleConns = o.Connections, o.Idle
	config.MaxConnLifetime, config.MaxConnLifetimeJitter = 30*time.Minute, 5*time.Minute
	config.MaxConnIdleTime, config.HealthCheckPeriod = 5*time.Minute, 15*time.Second
	config.PingTimeout, config.ConnConfig.ConnectTimeout = o.Ping, o.Connect
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		return p.IdleDuration > idleLimit && !o.Probes || readable(p.Conn.PgConn().Conn())
	}
	// Never the simple protocol, whatever the URL says: it inserts values into the text of a statement.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	config.ConnConfig.RuntimeParams["application_name"] = o.Name
	maps.Copy(config.ConnConfig.RuntimeParams, o.Parameters)
	if len(o.Tracers) > 0 {
		config.ConnConfig.Tracer = multitracer.New(o.Tracers...)
	}
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		present, err := pgx.ParseConfig(url().Reveal())
		if err != nil {
			return errURL
		}
		config.User, config.Password = present.User, present.Password
		return nil
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		registerUUIDs(c.TypeMap())
		if o.Check == nil {
			return nil
		}
		return o.Check(ctx, c)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, errors.New("the database pool cannot be made")
	}
	return pool, nil
}

// A Pinger shares one ping among concurrent callers. The zero value is ready to use.
type Pinger struct{ group singleflight.Group }

// Ping returns nil if the server of the pool responds before ctx ends, and within the limit.
func (p *Pinger) Ping(ctx context.Context, pool *pgxpool.Pool, limit time.Duration) error {
	shared := p.group.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		return nil, pool.Ping(ctx)
	})
	select {
	case ping := <-shared:
		return ping.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RequirePrimary makes a connection to one of several servers fail at those that do not accept writes, unless the URL
// has target_session_attrs. Otherwise a service that lost the primary would read from a replica, which may lack the
// latest revocations.
func RequirePrimary(config *pgconn.Config) {
	other := func(f *pgconn.FallbackConfig) bool { return f.Host != config.Host || f.Port != config.Port }
	if config.ValidateConnect == nil && slices.ContainsFunc(config.Fallbacks, other) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// idleLimit is pgxpool's default: after this time a connection may be dead without notice, for example behind
// a firewall.
const idleLimit = time.Second

// readable reports whether an idle connection has data to read: no statement is running, so that is the end of the
// connection or a message about it. Without a ping of such connections, the first requests after a restart of
// PostgreSQL fail, one for each connection of the pool. It queries only the kernel, without a round trip.
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

// denied is the SQLSTATE insufficient_privilege.
const denied = "42501"

// ExplainDenied adds advice to the error of a command whose database role lacks a right. role is the role of the
// program's commands.
func ExplainDenied(err error, role string) error {
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok && fault.Code == denied {
		return fmt.Errorf(
			"the role of ALMONER_DATABASE_URL may not do this. Use a role that is a member of %s, or for migrate the "+
				"owner of the database: %w", role, err)
	}
	return err
}

// registerUUIDs makes a connection send and receive UUIDs as their 16 bytes.
//
// pgx does not know uuid.UUID and would use its database/sql interfaces, which write each identifier as text
// and parse it again. A wrapper (such as pgx-google-uuid) cannot prevent that for values that are read, and
// for pointers, because pgx tries it after the database/sql interfaces. A codec is tried first.
func registerUUIDs(types *pgtype.Map) {
	one := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: codec{}}
	types.RegisterType(one)
	types.RegisterType(
		&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: one}})
}

// A codec handles uuid.UUID and *uuid.UUID; everything else is handled by pgx.
type codec struct{ pgtype.UUIDCodec }

// PlanEncode implements pgtype.Codec.
func (c codec) PlanEncode(types *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case uuid.UUID, *uuid.UUID:
			return plan{}
		}
	}
	return c.UUIDCodec.PlanEncode(types, oid, format, value)
}

// PlanScan implements pgtype.Codec.
func (c codec) PlanScan(types *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ours := target.(*uuid.UUID); ours && format == pgtype.BinaryFormatCode {
		return plan{}
	}
	return c.UUIDCodec.PlanScan(types, oid, format, target)
}

// A plan encodes a uuid.UUID or a *uuid.UUID, and scans into a *uuid.UUID.
type plan struct{}

// Encode implements pgtype.EncodePlan.
func (plan) Encode(value any, out []byte) ([]byte, error) {
	switch id := value.(type) {
	case uuid.UUID:
		return append(out, id[:]...), nil
	case *uuid.UUID:
		if id != nil {
			return append(out, id[:]...), nil
		}
	}
	return nil, nil // NULL
}

var errNull = errors.New("NULL is not an identifier: read it into a *uuid.UUID")

// Scan implements pgtype.ScanPlan.
func (plan) Scan(in []byte, target any) error {
	if in == nil {
		return errNull
	}
	id := target.(*uuid.UUID) // guaranteed by PlanScan
	if len(in) != len(id) {
		return fmt.Errorf("an identifier of %d bytes", len(in))
	}
	copy(id[:], in)
	return nil
}
